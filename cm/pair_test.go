package cm

import (
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// pairUp is two Managers and a perfect network between them.
type pairUp struct {
	a, b *Manager
	now  mono.Time
	qpn  bth.QPN     // the last QPN of the passive side
	on   func(Event) // sees every event first, if set
	tap  func(Out)   // sees every datagram, if set
}

func newPair(t testing.TB) *pairUp {
	var n uint32
	random := func() uint32 { n = n*1664525 + 1013904223; return n }
	p := &pairUp{}
	var err error
	if p.a, err = NewManager(Config{GUID: 1, Rand: random}); err != nil {
		t.Fatal(err)
	}
	if p.b, err = NewManager(Config{GUID: 2, Rand: random}); err != nil {
		t.Fatal(err)
	}
	if _, err := p.b.Listen(ListenParam{ServiceID: service, Backlog: 1 << 20}); err != nil {
		t.Fatal(err)
	}
	return p
}

// settle delivers all messages and answers all events, until there are no more.
func (p *pairUp) settle(t testing.TB) (ups int) {
	for busy := true; busy; {
		busy = false
		for _, m := range []*Manager{p.a, p.b} {
			to := p.a
			if m == p.a {
				to = p.b
			}
			for o, ok := m.NextMAD(); ok; o, ok = m.NextMAD() {
				if p.tap != nil {
					p.tap(o)
				}
				to.HandleMAD(p.now, o.From, o.To, o.MAD[:])
				busy = true
			}
			for e, ok := m.NextEvent(); ok; e, ok = m.NextEvent() {
				busy = true
				if p.on != nil {
					p.on(e)
				}
				var err error
				switch e.Kind {
				case ConnectRequest:
					ap := acceptParam()
					p.qpn++
					ap.QPN = p.qpn
					err = e.Conn.Accept(p.now, ap)
				case ConnectResponse:
					err = e.Conn.ReadyToUse(p.now, nil)
				case Established:
					ups++
				case DisconnectRequest:
					err = e.Conn.Disconnect(p.now, nil)
				case Rejected, Unreachable:
					t.Fatalf("event %v", e)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return ups
}

func (p *pairUp) connect(t testing.TB, n int) *Conn {
	cp := connectParam()
	cp.QPN = bth.QPN(n)
	c, err := p.a.Connect(p.now, cp)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (p *pairUp) pass(d time.Duration) {
	p.now = p.now.Add(d)
	p.a.HandleTimeout(p.now)
	p.b.HandleTimeout(p.now)
}

// TestConnectToItself: both ends may be on one device.
func TestConnectToItself(t *testing.T) {
	p := newPair(t)
	p.a = p.b
	cp := connectParam()
	cp.Remote, cp.Dst, cp.QPN = cp.Local, netip.AddrPortFrom(ownAddr, 7174), 2
	p.qpn = 100
	for range 3 {
		c, err := p.b.Connect(p.now, cp)
		if err != nil {
			t.Fatal(err)
		}
		if p.settle(t) != 1 || c.State() != StateEstablished || p.b.Len() != 2 {
			t.Fatalf("%v, %d connections", c.State(), p.b.Len())
		}
		if err := c.Disconnect(p.now, nil); err != nil {
			t.Fatal(err)
		}
		p.settle(t)
		p.pass(time.Second)
		p.settle(t)
		if err := p.b.check(); err != nil || p.b.Len() != 0 {
			t.Fatalf("%d remain, %v", p.b.Len(), err)
		}
	}
}

// TestNoGrowth: after ten thousand connections, one after the other, the Managers keep nothing.
func TestNoGrowth(t *testing.T) {
	p := newPair(t)
	var before, after runtime.MemStats
	const rounds = 10000
	for n := range rounds {
		if n == rounds/10 {
			runtime.GC()
			runtime.ReadMemStats(&before)
		}
		c := p.connect(t, n+2)
		if p.settle(t) != 1 {
			t.Fatalf("connection %d is not established", n)
		}
		if err := c.Disconnect(p.now, nil); err != nil {
			t.Fatal(err)
		}
		p.settle(t)
		p.pass(ms(100)) // so a few are in timewait at any time
		p.settle(t)
		if p.a.Len() > 6 || p.b.Len() > 6 {
			t.Fatalf("%d and %d connections remembered after %d", p.a.Len(), p.b.Len(), n)
		}
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<10 {
		t.Errorf("heap grew by %d bytes", grown)
	}
	p.pass(time.Second)
	p.settle(t)
	for _, m := range []*Manager{p.a, p.b} {
		if n := m.Len() + len(m.byRemote) + len(m.byQPN) + len(m.timers); n != 0 || m.out.Cap() > queueKeep || m.events.Cap() > queueKeep {
			t.Errorf("left over: %d, rings of %d and %d", n, m.out.Cap(), m.events.Cap())
		}
	}
}

// TestTenThousandAtOnce: ten thousand connections at the same time.
func TestTenThousandAtOnce(t *testing.T) {
	p := newPair(t)
	p.b.cfg.MaxHalfOpen = 1 << 20
	const n = 10000
	conns := make([]*Conn, n)
	for i := range conns {
		conns[i] = p.connect(t, i+2)
	}
	if err := p.a.check(); err != nil {
		t.Fatal(err)
	}
	if ups := p.settle(t); ups != n {
		t.Fatalf("%d established", ups)
	}
	for _, c := range conns {
		c.Destroy(p.now)
	}
	p.settle(t)
	p.pass(time.Second)
	p.settle(t)
	if p.a.Len()+p.b.Len() != 0 {
		t.Errorf("%d and %d remain", p.a.Len(), p.b.Len())
	}
}

func BenchmarkConnectDisconnect(b *testing.B) {
	p := newPair(b)
	b.ReportAllocs()
	for n := range b.N {
		c := p.connect(b, n&0xFFFFFF)
		p.settle(b)
		c.Disconnect(p.now, nil)
		p.settle(b)
		p.pass(time.Second)
		p.settle(b)
	}
}

package scenario_test

import (
	"context"
	"errors"
	"flag"
	"net/netip"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/scenario"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/mem"
)

// TestMain fails if tests leave goroutines of this module behind.
func TestMain(m *testing.M) { os.Exit(scenario.Run(m)) }

// bubble runs f in simulated time, in which only waiting takes time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// network is a switch for devices. Addresses are netip strings.
type network struct {
	t    testing.TB
	hub  *mem.Hub
	bare bool // the ports of devices leave the headers to the kernel

	filters map[*roce.Device]*linktest.Filter // early drop of devices, if wanted
}

// earlyDrop makes the ports of all devices drop early.
var earlyDrop = flag.Bool("earlydrop", false, "put early drop before the ports of all devices")

// newFiltered is newNetwork with early drop before the ports of devices.
func newFiltered(t testing.TB) *network {
	n := newNetwork(t)
	n.filters = map[*roce.Device]*linktest.Filter{}
	return n
}

func newNetwork(t testing.TB) *network { return newNetworkOf(t, mem.Config{MTU: 4200}) }

func newNetworkOf(t testing.TB, c mem.Config) *network {
	return &network{t: t, hub: mem.NewHub(c)}
}

// port plugs a port in for an address.
func (n *network) port(addr string) link.Port {
	n.t.Helper()
	return ok(n.hub.Port(addr, roce.DerivedMAC(netip.MustParseAddr(addr))))(n.t)
}

// config is the configuration of a device with one port, to be changed before
// open.
func (n *network) config(addr string) roce.Config {
	n.t.Helper()
	return roce.Config{Ports: []link.Port{n.port(addr)}, Addrs: []netip.Addr{netip.MustParseAddr(addr)}}
}

func (n *network) open(c roce.Config) *roce.Device {
	n.t.Helper()
	if n.bare {
		for i, p := range c.Ports {
			c.Ports[i] = linktest.Bare(p, i%2 == 1)
		}
	}
	var filter *linktest.Filter
	if n.filters != nil || *earlyDrop {
		c.Ports, filter = linktest.Filtered(c.Ports)
	}
	d := ok(roce.Open(c))(n.t)
	if n.filters != nil {
		n.filters[d] = filter
	}
	n.t.Cleanup(func() {
		if err := d.Close(); err != nil && !errors.Is(err, roce.ErrClosed) {
			n.t.Errorf("closing a device: %v", err)
		}
	})
	return d
}

// keepBusy drives polled devices on separate goroutines until they are closed: a polled device answers only while a
// goroutine drives it.
func keepBusy(t testing.TB, devices ...*roce.Device) {
	t.Helper()
	var wg sync.WaitGroup
	for _, d := range devices {
		idle := ok(d.CreateCQ(1))(t)
		wg.Go(func() { idle.Wait(context.Background()) })
	}
	t.Cleanup(func() {
		for _, d := range devices {
			d.Close()
		}
		wg.Wait()
	})
}

// device opens a device in background mode.
func (n *network) device(addr string) *roce.Device {
	n.t.Helper()
	return n.open(n.config(addr))
}

// ok returns a function that returns v, and fails the test if err is not nil.
func ok[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// check fails the test if err is not nil.
func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantErr fails the test unless err is target.
func wantErr(t testing.TB, what string, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Errorf("%s: error %v, want %v", what, err, target)
	}
}

// within returns a context that ends after d, in the time of the bubble.
func within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// patient returns a context that lasts long enough for the kernel, also on a busy machine.
func patient(t testing.TB) context.Context { return within(t, time.Minute) }

// peer is one end of a transfer: a queue pair with its queue and some memory
// that is open to the other end.
type peer struct {
	t    testing.TB
	dev  *roce.Device
	pd   *roce.PD
	cq   *roce.CQ
	qp   *roce.QP
	mr   *roce.MR
	buf  []byte
	psn  roce.PSN
	next uint64 // ID of the next work request
}

// allRights are the rights of a peer's memory.
const allRights = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic

// deepCaps are queue sizes that no test fills by accident.
var deepCaps = roce.Caps{MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}

// newPeer makes an unconnected peer with size bytes of memory.
func newPeer(t testing.TB, d *roce.Device, size int) *peer { return newPeerOn(t, d, 0, size) }

func newPeerOn(t testing.TB, d *roce.Device, shard, size int) *peer {
	t.Helper()
	p := &peer{t: t, dev: d, pd: d.AllocPD(), psn: d.RandomPSN()}
	p.cq = ok(d.CreateCQWith(roce.CQConfig{Entries: 1023, Shard: shard}))(t)
	p.mr = ok(p.pd.AllocMR(size, allRights))(t)
	p.buf = p.mr.Bytes()
	p.qp = ok(p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq, Caps: deepCaps}))(t)
	check(t, p.qp.Init(roce.DefaultQPAccess, 0))
	return p
}

// connected makes a peer of 100 bytes on a device with a configuration, and connects it
// to one on an ordinary device at 10.0.0.2.
func (n *network) connected(c roce.Config) (a, b *peer) {
	n.t.Helper()
	a, b = newPeer(n.t, n.open(c), 100), newPeer(n.t, n.device("10.0.0.2"), 100)
	connect(n.t, a, b)
	return a, b
}

// connect joins two peers, which may be the same.
func connect(t testing.TB, a, b *peer) {
	t.Helper()
	connectOne(t, a, b)
	if a != b {
		connectOne(t, b, a)
	}
}

func connectOne(t testing.TB, a, b *peer) {
	t.Helper()
	check(t, a.qp.Connect(context.Background(), roce.Peer{
		AHAttr: roce.AHAttr{DGID: b.dev.GIDs()[0]}, QPN: b.qp.Num(), PSN: b.psn, MTU: a.dev.Query().PathMTU,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16,
	}, a.psn))
}

// newPair makes two connected peers on two new devices.
func newPair(t testing.TB, size int) (a, b *peer) {
	t.Helper()
	n := newNetwork(t)
	a, b = newPeer(t, n.device("10.0.0.1"), size), newPeer(t, n.device("10.0.0.2"), size)
	connect(t, a, b)
	return a, b
}

// post posts a work request with n bytes of p's memory at off. remote is the offset in the memory of to.
func (p *peer) post(op roce.Opcode, off, n int, to *peer, remote int) {
	p.t.Helper()
	p.next++
	check(p.t, p.qp.PostSend(p.wr(op, off, n, to, remote)))
}

func (p *peer) wr(op roce.Opcode, off, n int, to *peer, remote int) *roce.SendWR {
	wr := &roce.SendWR{ID: p.next, Opcode: op, Flags: roce.Signaled, SG: []roce.SGE{p.mr.SGE(off, n)}}
	if to != nil {
		wr.RemoteAddr, wr.RKey = to.mr.Addr()+uint64(remote), to.mr.RKey()
	}
	return wr
}

// recv posts a receive.
func (p *peer) recv(off, n int) {
	p.t.Helper()
	p.next++
	check(p.t, p.qp.PostRecv(&roce.RecvWR{ID: p.next, SG: []roce.SGE{p.mr.SGE(off, n)}}))
}

// wait takes the next completion, which must be a success.
func (p *peer) wait() roce.WC {
	p.t.Helper()
	return p.waitFor(cq.Success)
}

// waitFor takes the next completion and checks its status.
func (p *peer) waitFor(status cq.Status) roce.WC {
	p.t.Helper()
	wc, err := p.cq.Next(within(p.t, time.Minute))
	if err != nil {
		p.t.Fatalf("no completion: %v", err)
	}
	if wc.Status != status {
		p.t.Fatalf("completion of work request %d: %v, want %v", wc.ID, wc.Status, status)
	}
	return wc
}

// fill writes a pattern that differs from place to place.
func fill(b []byte, seed int) {
	for i := range b {
		b[i] = byte(i*7 + i>>8 + seed)
	}
}

// must returns v, and panics if there is an error: benchmarks call it where nothing may be
// allocated.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

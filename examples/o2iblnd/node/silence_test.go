package node

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	port "github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/link/pcap"
)

// The tests of this file repeat captures of Lustre nodes with a silent peer, in virtual time (synctest). One peer is frozen
// when it gets a connection request, the other one loses its power under load.

// seenPacket is a packet that a device has sent or that is in a capture.
type seenPacket struct {
	at  time.Time
	op  bth.Opcode
	psn bth.PSN
	mad cm.Message
	src netip.Addr
	raw []byte // the frame
}

func parse(at time.Time, raw []byte, layout frame.Layout) (s seenPacket, ok bool) {
	var p frame.Packet
	if p.Parse(raw, layout) != nil {
		return s, false
	}
	s = seenPacket{at: at, op: p.Op, psn: p.PSN(), src: p.Src.Addr(), raw: raw}
	if p.Op.Transport() == bth.UD {
		s.mad, _ = cm.DecodeMAD(p.Payload()) // nil if it is another datagram
	}
	return s, true
}

// tap is a port that keeps the sent packets. When off is set, it receives nothing.
type tap struct {
	port.Port
	off atomic.Bool

	mu   sync.Mutex // guards sent
	sent []seenPacket
}

func (p *tap) Commit() {
	if s, ok := parse(time.Now(), append([]byte(nil), p.Lent()...), frame.LayoutEthernet); ok {
		p.mu.Lock()
		p.sent = append(p.sent, s)
		p.mu.Unlock()
	}
	p.Port.Commit()
}

func (p *tap) Recv(fr []port.Frame) (int, error) {
	n, err := p.Port.Recv(fr)
	if p.off.Load() {
		n = 0
	}
	return n, err
}

// take returns the packets that were sent since the last call.
func (p *tap) take() []seenPacket {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.sent
	p.sent = nil
	return s
}

// messages returns the messages of type T from src in packets, with their times.
func messages[T cm.Message](seen []seenPacket, src netip.Addr) (all []T, at []time.Time) {
	for _, s := range seen {
		if m, ok := s.mad.(T); ok && s.src == src {
			all, at = append(all, m), append(at, s.at)
		}
	}
	return all, at
}

// captured reads a capture.
func captured(t *testing.T, name string) (seen []seenPacket) {
	t.Helper()
	f, err := os.Open("../../../testdata/pcaps/lnet/" + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return seen
		}
		if err != nil {
			t.Fatal(err)
		}
		raw, layout, ok := rec.Frame()
		if !ok {
			continue
		}
		cut := make([]byte, rec.OrigLen-len(rec.Data))
		if s, ok := parse(rec.Time, append(append([]byte(nil), raw...), cut...), layout); ok {
			seen = append(seen, s)
		}
	}
}

// host1 and host2 are the hosts of the captures.
var host1, host2 = netip.MustParseAddr("10.77.0.1"), netip.MustParseAddr("10.77.0.2")

// device opens a device with a tap.
func device(t *testing.T, hub *mem.Hub, ip netip.Addr) (*roce.Device, *tap) {
	t.Helper()
	end, err := hub.Port(fmt.Sprint(ip), roce.DerivedMAC(ip))
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{Port: end}
	dev, err := roce.Open(roce.Config{Ports: []port.Port{p}, Addrs: []netip.Addr{ip}})
	if err != nil {
		t.Fatal(err)
	}
	return dev, p
}

// inBubble runs a test in virtual time, with a wire.
func inBubble(t *testing.T, f func(t *testing.T, hub *mem.Hub)) {
	synctest.Test(t, func(t *testing.T) { f(t, mem.NewHub(mem.Config{MTU: 1500})) })
}

// open opens a node with a tap. close closes it.
func open(t *testing.T, hub *mem.Hub, ip netip.Addr) (n *Node, p *tap, close func()) {
	t.Helper()
	dev, p := device(t, hub, ip)
	n, err := Open(dev, Config{Addr: ip})
	if err != nil {
		t.Fatal(err)
	}
	return n, p, func() { n.Close(); dev.Close() }
}

// TestFrozenPeer sends a connection request to a peer that does not answer, as in connect-timeout-216. The node must repeat
// the same request after the same time, give up no later than the captured node, and send the same refusal.
func TestFrozenPeer(t *testing.T) {
	seen := captured(t, "connect-timeout-216")
	requests, asked := messages[*cm.REQ](seen, host1)
	gaveUp, end := messages[*cm.REJ](seen, host1)
	if len(requests) != 3 || len(gaveUp) != 1 {
		t.Fatalf("the capture has %d requests and gives up %d times", len(requests), len(gaveUp))
	}
	inBubble(t, func(t *testing.T, hub *mem.Hub) {
		n, p, done := open(t, hub, host1)
		defer done()
		if _, err := hub.Port("frozen", roce.DerivedMAC(host2)); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		_, err := n.Ping(t.Context(), wire.O2IB(host2, 0))
		if took, limit := time.Since(start), end[0].Sub(asked[0]); !errors.Is(err, lnd.ErrUnreachable) || took < 49*time.Second/4 || took > limit {
			t.Errorf("after %v: %v; want %v in 12.25 s or more, and less than the captured %v", took, err, lnd.ErrUnreachable, limit)
		}
		synctest.Wait() // the refusal is sent
		sent := p.take()
		got, at := messages[*cm.REQ](sent, host1)
		if len(got) < 2 {
			t.Fatalf("%d requests", len(got))
		}
		for i, m := range got {
			if *m != *got[0] {
				t.Errorf("request %d is another one", i)
			}
		}
		if ours, theirs := at[1].Sub(at[0]), asked[1].Sub(asked[0]); ours < theirs*9/10 || ours > theirs*11/10 {
			t.Errorf("the second request follows after %v, captured was %v", ours, theirs)
		}
		// The parameters of the captured request, except its incarnation and numbers.
		m, c := *got[0], *requests[0]
		m.Header, m.LocalID, m.QPN, m.StartingPSN, m.LocalGUID, m.Primary = c.Header, c.LocalID, c.QPN, c.StartingPSN, c.LocalGUID, c.Primary
		for i := range 8 {
			m.Private[36+24+i] = c.Private[36+24+i]
		}
		if m.Private != c.Private {
			t.Errorf("private data\n% x, captured\n% x", m.Private, c.Private)
		}
		if m.ServiceID != c.ServiceID || m.RetryCount != c.RetryCount || m.RNRRetryCount != c.RNRRetryCount {
			t.Errorf("asks for\n%+v, captured\n%+v", m, c)
		}
		refused, _ := messages[*cm.REJ](sent, host1)
		if len(refused) != 1 || refused[0].Reason != gaveUp[0].Reason || refused[0].Of != gaveUp[0].Of || refused[0].LocalID != got[0].LocalID || refused[0].RemoteID != 0 {
			t.Errorf("gives up with %+v, captured %+v", refused, gaveUp[0])
		}
	})
}

// inject sends a captured packet from a port to a device.
func inject(t *testing.T, from port.Port, to frame.MAC, s seenPacket) {
	t.Helper()
	var p frame.Packet
	if err := p.Parse(s.raw, frame.LayoutEthernet); err != nil {
		t.Fatal(err)
	}
	path, err := frame.NewPath(frame.PathConfig{Src: p.Src, Dst: p.Dst, SrcMAC: from.Info().MAC, DstMAC: to, SrcPort: p.SrcPort, HopLimit: 64})
	if err != nil {
		t.Fatal(err)
	}
	packet := p.Data[:len(p.Data)-bth.ICRCLen]
	body, crc, ok := from.Begin(path, len(p.Data))
	if !ok {
		t.Fatal("no room")
	}
	copy(body, packet)
	bth.PutICRC(body[len(packet):], crc.UpdateBody(packet))
	from.Commit()
	if err := from.Flush(); err != nil {
		t.Fatal(err)
	}
}

// TestRepeatedRequest is the other end of connect-timeout-216. The request comes three times, at the captured times. The node
// accepts the first. The second is a repetition, and the timer of the acceptance repeats the answer. The third comes after the
// node has stopped waiting for the peer, so the node accepts it as a new request. When the peer gives up, no connection is left.
// Without a listener, each request gets the refusal that the captured node sent after it was frozen.
func TestRepeatedRequest(t *testing.T) {
	seen := captured(t, "connect-timeout-216")
	_, asked := messages[*cm.REQ](seen, host1)
	refusals, _ := messages[*cm.REJ](seen, host2)
	var script []seenPacket // the packets of host 1
	for _, s := range seen {
		if s.src == host1 && s.mad != nil {
			script = append(script, s)
		}
	}
	if len(script) != 4 || len(refusals) != 3 {
		t.Fatalf("the capture has %d messages of the one host and %d refusals of the other", len(script), len(refusals))
	}
	play := func(t *testing.T, hub *mem.Hub, each func(s seenPacket)) {
		from, err := hub.Port("peer", roce.DerivedMAC(host1))
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		for _, s := range script {
			time.Sleep(time.Until(start.Add(s.at.Sub(asked[0]))))
			inject(t, from, roce.DerivedMAC(host2), s)
			synctest.Wait()
			each(s)
		}
	}
	inBubble(t, func(t *testing.T, hub *mem.Hub) {
		n, p, done := open(t, hub, host2)
		defer done()
		var attempts [][]*cm.REP // by the ID of this side
		var began []time.Time
		links := func() int {
			n.mu.Lock()
			defer n.mu.Unlock()
			return len(n.links)
		}
		play(t, hub, func(s seenPacket) {
			switch m := s.mad.(type) {
			case *cm.REQ:
				if n := links(); n != 1 {
					t.Errorf("%d connections of one request", n)
				}
				answers, at := messages[*cm.REP](p.take(), host2)
				for i, rep := range answers { // some are repetitions, because there was no RTU
					if len(attempts) == 0 || attempts[len(attempts)-1][0].LocalID != rep.LocalID {
						attempts, began = append(attempts, nil), append(began, at[i])
					}
					last := len(attempts) - 1
					attempts[last] = append(attempts[last], rep)
					ack, err := wire.Decode(rep.Private[:])
					if err != nil || ack.Type != wire.ConnAck || ack.Conn.QueueDepth != 8 || ack.Conn.MaxFrags != wire.MaxFragments || rep.RemoteID != m.LocalID || *rep != *attempts[last][0] {
						t.Errorf("accepted with %v, %v: %+v", ack, err, rep)
					}
				}
			case *cm.REJ:
				if n := links(); n != 0 {
					t.Errorf("%d connections when the peer has given up", n)
				}
			}
		})
		if len(attempts) != 2 || len(attempts[0]) < 3 || !began[1].Equal(began[0].Add(asked[2].Sub(asked[0]))) {
			t.Errorf("accepted %d times, at %v, the first time repeated %d times; want twice, with the first request and the last", len(attempts), began, len(attempts[0])-1)
		}
	})
	inBubble(t, func(t *testing.T, hub *mem.Hub) {
		dev, p := device(t, hub, host2)
		defer dev.Close()
		i := 0
		play(t, hub, func(s seenPacket) {
			if _, ok := s.mad.(*cm.REQ); !ok {
				return
			}
			got, _ := messages[*cm.REJ](p.take(), host2)
			if want := refusals[i]; len(got) != 1 || *got[0] != *want {
				t.Errorf("request %d is answered\n%+v, captured\n%+v", i, got, want)
			}
			i++
		})
	})
}

// TestPowerCut cuts the power of a peer under load, as in kill-216. The queue pair repeats the unacknowledged packets as often as
// the queue pair of the captured node, and then the node disconnects. All operations end with an error.
func TestPowerCut(t *testing.T) {
	repeats := func(seen []seenPacket, from time.Time) (most int) {
		times := map[bth.PSN]int{}
		for _, s := range seen {
			if s.src == host1 && s.op.Transport() == bth.RC && s.op != bth.RCAck && !s.at.Before(from) {
				times[s.psn]++
				most = max(most, times[s.psn]-1)
			}
		}
		return most
	}
	seen := captured(t, "kill-216")
	theirs := repeats(seen, time.Time{})
	if _, ended := messages[*cm.DREQ](seen, host1); theirs != 5 || len(ended) != 1 || !ended[0].Equal(seen[len(seen)-1].at) {
		t.Fatalf("the captured node repeats %d times and disconnects at %v", theirs, ended)
	}
	inBubble(t, func(t *testing.T, hub *mem.Hub) {
		a, pa, closeA := open(t, hub, host1)
		defer closeA()
		b, pb, closeB := open(t, hub, host2)
		defer closeB()
		room := make([]byte, 1<<16)
		b.Attach(&Target{Portal: 7, Ignore: ^uint64(0), Put: func(h *wire.LNetHeader) []byte { return room[:h.PayloadLen] }})
		if _, err := a.Put(t.Context(), b.NID(), 7, 1, make([]byte, 1<<16), true); err != nil {
			t.Fatal(err)
		}
		pa.take()
		pb.off.Store(true)
		pa.off.Store(true)
		cut := time.Now()
		failed := make(chan error, 4)
		for range cap(failed) {
			go func() {
				_, err := a.Put(t.Context(), b.NID(), 7, 1, make([]byte, 1<<16), true)
				failed <- err
			}()
		}
		for range cap(failed) {
			if err := <-failed; !errors.Is(err, lnd.ErrAborted) {
				t.Errorf("an operation without a peer ended with %v", err)
			}
		}
		took := time.Since(cut)
		sent := pa.take()
		left, at := messages[*cm.DREQ](sent, host1)
		// Between the timeouts our queue pair sends probes.
		if ours := a.dev.Counters().LocalAckTimeout; ours != uint64(theirs)+1 || repeats(sent, cut) < theirs || len(left) == 0 {
			t.Errorf("repeated after %d timeouts, captured %d; disconnected %d times", ours-1, theirs, len(left))
		}
		// An ACK timeout of code 19 is 2.15 s, or up to four times as long; the captured node took 13.8 s.
		if least := 6 * 4096 * time.Nanosecond << ackTimeout; took < least || took > 4*least || len(at) > 0 && at[0].Sub(cut) < least {
			t.Errorf("gave up after %v, want %v to %v", took, least, 4*least)
		}
	})
}

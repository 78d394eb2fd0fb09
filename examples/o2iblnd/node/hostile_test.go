package node

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	port "github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// nodes runs a test with count nodes on one wire, in virtual time (synctest).
func nodes(t *testing.T, count int, f func(t *testing.T, n []*Node)) {
	synctest.Test(t, func(t *testing.T) {
		hub := mem.NewHub(mem.Config{MTU: 4200})
		var all []*Node
		for i := range count {
			ip := netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)})
			end, err := hub.Port(fmt.Sprint(i), roce.DerivedMAC(ip))
			if err != nil {
				t.Fatal(err)
			}
			dev, err := roce.Open(roce.Config{Ports: []port.Port{end}, Addrs: []netip.Addr{ip}})
			if err != nil {
				t.Fatal(err)
			}
			n, err := Open(dev, Config{Addr: ip})
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, n)
			defer func() { n.Close(); dev.Close() }()
		}
		f(t, all)
	})
}

// forge sends an LNet message unchanged. The node must be locked, as it is in the functions of a target.
func (n *Node) forge(dst wire.NID, h wire.LNetHeader, payload []byte) {
	h.Dst, h.PayloadLen = dst, uint32(len(payload))
	n.submit(dst, &lnd.Op{Kind: lnd.SendImmediate, LNet: h, Payload: payload})
}

// TestForgedResponses has a node wait for the REPLY to its ping. The pinged node first sends an ACK
// for it, and another node sends a REPLY with the right descriptor. Only the true REPLY must count.
func TestForgedResponses(t *testing.T) {
	nodes(t, 3, func(t *testing.T, n []*Node) {
		a, b, c := n[0], n[1], n[2]
		asked := make(chan wire.LNetHeader, 1)
		b.Attach(&Target{Portal: wire.PingPortal, MatchBits: wire.PingMatchBits, Once: true, Get: func(h *wire.LNetHeader) []byte {
			asked <- *h
			return nil
		}})
		type answer struct {
			info *wire.PingInfo
			err  error
		}
		got := make(chan answer, 1)
		go func() {
			info, err := a.Ping(t.Context(), b.NID())
			got <- answer{info, err}
		}()
		h := <-asked
		send := func(from *Node, typ wire.LNetType, size uint32, payload []byte) {
			from.mu.Lock()
			defer from.mu.Unlock()
			r := from.header(typ, a.NID())
			r.MD, r.MLength = h.MD, size
			from.forge(a.NID(), r, payload)
		}
		send(b, wire.Ack, 1<<20, nil)
		send(c, wire.Reply, 0, c.pingInfo())
		if _, err := c.Ping(t.Context(), a.NID()); err != nil { // a answers this after it has handled the forged REPLY
			t.Fatal(err)
		}
		send(b, wire.Reply, 0, b.pingInfo())
		send(b, wire.Reply, 0, []byte("again"))
		r := <-got
		if r.err != nil || r.info.Interfaces[1].NID != b.NID() {
			t.Errorf("the ping was answered %+v, %v", r.info, r.err)
		}
	})
}

// TestEarlyAck has a peer send the ACK of a PUT before its PUT_ACK. The PUT must not end
// while its memory can still be sent.
func TestEarlyAck(t *testing.T) {
	nodes(t, 2, func(t *testing.T, n []*Node) {
		a, peer := n[0], n[1].NID()
		a.mu.Lock()
		defer a.mu.Unlock()
		md, p := a.await(peer)
		p.expects, p.most = expectsAck, 8192
		ack := wire.LNetHeader{Type: wire.Ack, Src: peer, MD: md, MLength: 8000}
		a.acked(&ack)
		if len(p.result) != 0 {
			t.Error("the PUT ended by its ACK alone")
		}
		a.moved(md.Object, 8192, nil)
		if len(p.result) != 1 || (<-p.result).n != 8000 || len(a.pending) != 0 {
			t.Error("the PUT did not end with what the ACK says")
		}
	})
}

// TestForgedSource checks that a node that names another node as the source of its messages cannot make this
// node connect to the other node.
func TestForgedSource(t *testing.T) {
	nodes(t, 3, func(t *testing.T, n []*Node) {
		a, b, c := n[0], n[1], n[2]
		b.mu.Lock()
		h := b.header(wire.Get, a.NID())
		h.Src, h.Portal, h.MatchBits, h.SinkLen = c.NID(), wire.PingPortal, wire.PingMatchBits, pingSink
		b.forge(a.NID(), h, nil)
		b.mu.Unlock()
		time.Sleep(time.Second) // virtual time
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.peers[c.NID()] != nil {
			t.Error("the node has answered the one that was named")
		}
		if len(a.links)+len(a.peers) != 0 {
			t.Errorf("%d connections and %d peers are left after a violation", len(a.links), len(a.peers))
		}
	})
}

// TestHugeSizes has a peer GET with a sink of 4 GiB, in one or more fragments. The peer gets the available data, even from
// a node whose int has 32 bits.
func TestHugeSizes(t *testing.T) {
	nodes(t, 2, func(t *testing.T, n []*Node) {
		a, b := n[0], n[1]
		const huge = 1<<32 - 1
		moved := make(chan int, 1)
		a.Attach(&Target{Portal: 7, Get: func(*wire.LNetHeader) []byte { return make([]byte, 100) }, Done: func(_ *wire.LNetHeader, n int, _ error) { moved <- n }})
		sink := make([]byte, 100)
		b.mu.Lock()
		m, err := b.pool.Map(sink)
		b.mu.Unlock()
		if err != nil {
			t.Fatal(err)
		}
		for _, frags := range []int{0, 1, 2} { // 0: an IMMEDIATE, which is answered by one
			h := b.header(wire.Get, a.NID())
			h.Portal, h.SinkLen = 7, huge
			op := &lnd.Op{Kind: lnd.SendImmediate, LNet: h}
			if frags > 0 {
				op.Kind, op.User, op.Sink = lnd.SendGet, &transfer{mapping: m}, m.Descriptor(0)
				for op.Sink.Frags[0].Len = huge; len(op.Sink.Frags) < frags; {
					op.Sink.Frags = append(op.Sink.Frags, op.Sink.Frags[0])
				}
			}
			b.mu.Lock()
			b.submit(a.NID(), op)
			b.mu.Unlock()
			if got := <-moved; got != len(sink) {
				t.Errorf("%d fragments: %d bytes were moved, want %d", frags, got, len(sink))
			}
			synctest.Wait()
			if b.mu.Lock(); frags > 0 {
				m, _ = b.pool.Map(sink)
			}
			b.mu.Unlock()
		}
	})
}

// TestLargePush checks that the node drops large pushes to the portal of pings. So a peer cannot make the node allocate 1 MiB for
// each of its credits.
func TestLargePush(t *testing.T) {
	nodes(t, 2, func(t *testing.T, n []*Node) {
		for size, want := range map[int]int{100: 100, maxPush: maxPush, maxPush + 1: 0, wire.MaxPayload: 0} {
			got, err := n[1].Put(t.Context(), n[0].NID(), wire.PingPortal, wire.PingMatchBits, make([]byte, size), false)
			if err != nil || got != want {
				t.Errorf("%d bytes: %d were taken, want %d; %v", size, got, want, err)
			}
		}
	})
}

// TestOneUse checks that a target for one use by one node cannot be used by another node or twice.
func TestOneUse(t *testing.T) {
	nodes(t, 3, func(t *testing.T, n []*Node) {
		a, b, c := n[0], n[1], n[2]
		memory, done := make([]byte, 8192), make(chan int, 8)
		a.Attach(&Target{Portal: 7, MatchBits: 1, From: b.NID(), Once: true,
			Put: func(*wire.LNetHeader) []byte { return memory }, Done: func(_ *wire.LNetHeader, size int, _ error) { done <- size }})
		for i, from := range []*Node{c, b, b} {
			data := bytes.Repeat([]byte{byte(i + 1)}, len(memory))
			if size, err := from.Put(t.Context(), a.NID(), 7, 1, data, false); err != nil || size != len(data) && i == 1 {
				t.Errorf("put %d: %d, %v", i, size, err)
			}
		}
		synctest.Wait()
		if len(done) != 1 || memory[0] != 2 || memory[len(memory)-1] != 2 {
			t.Errorf("used %d times, memory begins with %d", len(done), memory[0])
		}
	})
}

// TestFragmentsFit checks that a small FragmentSize does not make more fragments than a message has room for.
func TestFragmentsFit(t *testing.T) {
	nodes(t, 2, func(t *testing.T, n []*Node) {
		n[0].cfg.FragmentSize = 100
		sink, data := make([]byte, 1<<20), bytes.Repeat([]byte("data"), 1<<18)
		n[1].Attach(&Target{Portal: 7, Get: func(*wire.LNetHeader) []byte { return data }})
		if size, err := n[0].Get(t.Context(), n[1].NID(), 7, 0, sink); err != nil || size != len(data) || !bytes.Equal(sink, data) {
			t.Errorf("get: %d, %v", size, err)
		}
	})
}

// TestCacheOfDead checks that the cache does not keep memory whose registration was posted but never executed.
func TestCacheOfDead(t *testing.T) {
	nodes(t, 1, func(t *testing.T, n []*Node) {
		p := NewPool(n[0].pd, PoolConfig{Mode: FMR, Cache: true})
		defer p.Close()
		b := make([]byte, 8192)
		m, err := p.Map(b)
		if err != nil {
			t.Fatal(err)
		}
		m.wr = nil // posted, and flushed with its queue pair
		p.Unmap(m)
		if m, err = p.Map(b); err != nil || m.wr == nil {
			t.Errorf("%v; the mapping is reused: %t", err, m.wr == nil)
		}
	})
}

package node

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Target is memory that peers PUT into or GET from. Put and Get run with the node locked and
// must not call the node. Done runs on its own goroutine.
type Target struct {
	Portal            uint32
	MatchBits, Ignore uint64   // bits of Ignore need not match
	From              wire.NID // the only peer that may use it; 0: any
	Once              bool     // the first use detaches the target

	// Put returns the memory for the payload of a PUT. Shorter memory truncates the payload, nil drops it.
	Put func(h *wire.LNetHeader) []byte
	// Get returns the data for a GET, nil for none. Data that exceeds the peer's sink is not sent.
	Get func(h *wire.LNetHeader) []byte
	// Done, if set, is called when a transfer has moved n bytes or has failed.
	Done func(h *wire.LNetHeader, n int, err error)
}

func (t *Target) matches(h *wire.LNetHeader) bool {
	return (t.From == 0 || t.From == h.Src) && t.Portal == h.Portal && (t.MatchBits^h.MatchBits)&^t.Ignore == 0 &&
		(h.Type == wire.Put && t.Put != nil || h.Type == wire.Get && t.Get != nil)
}

func (t *Target) done(h *wire.LNetHeader, n int, err error) {
	if t.Done != nil {
		h := *h
		go t.Done(&h, n, err)
	}
}

// Attach offers a target to peers. If several targets match, the one that was attached first is used.
func (n *Node) Attach(t *Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.targets = append(n.targets, t)
}

// Detach removes a target.
func (n *Node) Detach(t *Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detach(t)
}

// detach removes a target. The caller holds mu.
func (n *Node) detach(t *Target) {
	n.targets = slices.DeleteFunc(n.targets, func(o *Target) bool { return o == t })
}

func (n *Node) match(h *wire.LNetHeader) *Target {
	for _, t := range n.targets {
		if t.matches(h) {
			if t.Once {
				n.detach(t)
			}
			return t
		}
	}
	return nil
}

// transfer is the data of this package in an operation.
type transfer struct {
	mapping *Mapping
	done    func(n int, err error)
}

func userOf(op *lnd.Op) (*transfer, bool) {
	if op == nil {
		return nil, false
	}
	x, ok := op.User.(*transfer)
	return x, ok
}

// finished ends an operation.
func (n *Node) finished(f *lnd.Finished) {
	x, ok := userOf(f.Op)
	if !ok {
		return
	}
	f.Op.User = nil
	if x.mapping != nil {
		n.pool.Unmap(x.mapping)
	}
	if x.done != nil {
		x.done(f.N, f.Err)
	}
}

// sendData sends a PUT or a REPLY: small data in the message, large data by WRITE.
func (n *Node) sendData(dst wire.NID, h wire.LNetHeader, data []byte, done func(int, error)) {
	h.PayloadLen = uint32(len(data))
	op := &lnd.Op{Kind: lnd.SendImmediate, LNet: h, Payload: data}
	x := &transfer{done: done}
	if len(data) > wire.MaxImmediate {
		m, err := n.pool.Map(data)
		if err != nil {
			done(0, err)
			return
		}
		op.Kind, op.Payload, op.Size, x.mapping = lnd.SendPut, nil, len(data), m
	} else {
		x.done = func(_ int, err error) { done(len(data), err) }
	}
	op.User = x
	n.submit(dst, op)
}

// pinging returns the target of pings and of pushes, nil for other messages. The node drops the data of pushes.
func (n *Node) pinging(h *wire.LNetHeader) *Target {
	if h.Portal != wire.PingPortal || h.MatchBits != wire.PingMatchBits {
		return nil
	}
	return &Target{
		Get: func(*wire.LNetHeader) []byte { return n.pingInfo() },
		Put: func(h *wire.LNetHeader) []byte {
			if h.PayloadLen > maxPush {
				return nil
			}
			return make([]byte, h.PayloadLen)
		},
	}
}

// maxPush is how many bytes a peer may push. A push has the format of the answer to a ping, with as many interfaces.
const maxPush = 1 << 16

// arrived acts on a message of a peer.
func (n *Node) arrived(l *link, a *lnd.Arrival) {
	h := &a.LNet
	if h.Dst != n.NID() || h.Src != l.peer.NID { // the response must not go to a node that has not asked
		l.conn.Close(&lnd.Violation{Message: wire.Immediate, Detail: fmt.Sprintf("LNet message from %v for %v; there are no routers", h.Src, h.Dst)})
		return
	}
	switch {
	case a.Op == nil:
		n.arrivedWhole(h, a.Payload)
	case a.Op.Kind == lnd.TakePut:
		n.takePut(l, a.Op)
	default:
		n.serveGet(l, a.Op)
	}
}

func (n *Node) target(h *wire.LNetHeader) *Target {
	if t := n.match(h); t != nil {
		return t
	}
	return n.pinging(h)
}

// arrivedWhole acts on a message with its payload.
func (n *Node) arrivedWhole(h *wire.LNetHeader, payload []byte) {
	switch h.Type {
	case wire.Ack:
		n.acked(h)
	case wire.Reply:
		n.replied(h, payload)
	case wire.Put:
		if t := n.target(h); t != nil {
			if b := t.Put(h); b != nil {
				n.taken(t, h, copy(b, payload), nil)
			}
		}
	case wire.Get:
		if t := n.target(h); t != nil {
			if b := t.Get(h); b != nil {
				n.reply(t, h, b[:min(len(b), h.Size())])
			}
		}
	}
}

// taken ends a PUT of a peer, and acknowledges it if the peer wants an ACK.
func (n *Node) taken(t *Target, h *wire.LNetHeader, size int, err error) {
	t.done(h, size, err)
	if err != nil || h.MD == wire.NoMD {
		return
	}
	ack := n.header(wire.Ack, h.Src)
	ack.MD, ack.MatchBits, ack.MLength = h.MD, h.MatchBits, uint32(size)
	if done, ok := n.responding(h.Src, func(int, error) {}); ok {
		n.submit(h.Src, &lnd.Op{Kind: lnd.SendImmediate, LNet: ack, User: &transfer{done: done}})
	}
}

// maxResponses is how many unsent ACKs and REPLYs the node holds for a peer. It drops further ones, so
// operations of the peer time out.
const maxResponses = 4096

// ErrTooMany ends the REPLYs to a peer that does not take its responses.
var ErrTooMany = errors.New("node: the peer takes no responses")

// responding counts a response until the returned function is called, which also calls done. It returns false if
// there are too many.
func (n *Node) responding(dst wire.NID, done func(int, error)) (func(int, error), bool) {
	p := n.peer(dst)
	if p.responses >= maxResponses {
		return nil, false
	}
	p.responses++
	return func(size int, err error) {
		p.responses--
		done(size, err)
	}, true
}

// reply answers a GET that came without a descriptor.
func (n *Node) reply(t *Target, h *wire.LNetHeader, data []byte) {
	r := n.header(wire.Reply, h.Src)
	r.MD = h.MD
	done, ok := n.responding(h.Src, func(size int, err error) { t.done(h, size, err) })
	if !ok {
		t.done(h, 0, ErrTooMany)
		return
	}
	n.sendData(h.Src, r, data, done)
}

// takePut answers a PUT_REQ with the memory for the payload of a PUT, or for the REPLY to a GET.
func (n *Node) takePut(l *link, op *lnd.Op) {
	h, now := op.LNet, time.Now()
	var memory []byte
	var done func(int, error)
	if h.Type == wire.Reply {
		memory, done = n.replying(&h)
	} else if t := n.target(&h); t != nil {
		memory = t.Put(&h)
		done = func(size int, err error) { n.taken(t, &h, size, err) }
	}
	memory = memory[:min(len(memory), h.Size())]
	if len(memory) == 0 {
		l.conn.RefusePut(now, op, 0)
		if done != nil && (memory != nil || h.Type == wire.Reply) {
			done(0, nil)
		}
		return
	}
	m, err := n.pool.Map(memory)
	if err != nil {
		l.conn.RefusePut(now, op, statusNoMemory)
		done(0, err)
		return
	}
	op.User = &transfer{mapping: m, done: done}
	l.conn.AcceptPut(now, op, m.Descriptor(n.cfg.FragmentSize))
}

// statusNoMemory is ENOMEM of Linux.
const statusNoMemory = -12

// serveGet writes the data of a GET into the peer's sink.
func (n *Node) serveGet(l *link, op *lnd.Op) {
	h := op.LNet
	var data []byte
	t := n.target(&h)
	if t != nil {
		data = t.Get(&h)
	}
	data = data[:min(len(data), h.Size(), op.Sink.Size())]
	if len(data) == 0 {
		l.conn.RefuseGet(time.Now(), op)
		return
	}
	m, err := n.pool.Map(data)
	if err != nil {
		l.conn.RefuseGet(time.Now(), op)
		t.done(&h, 0, err)
		return
	}
	op.User = &transfer{mapping: m, done: func(size int, err error) { t.done(&h, size, err) }}
	l.conn.ServeGet(time.Now(), op, len(data))
}

package node

import (
	"errors"
	"fmt"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Target is memory that peers put into or get from. Its functions run with the node locked and
// must not call it, except Done, which runs on a goroutine of its own.
type Target struct {
	Portal            uint32
	MatchBits, Ignore uint64   // bits of Ignore need not match
	From              wire.NID // the only peer that may use it; 0: any
	Once              bool     // it is detached when it is used

	// Put returns the memory for the payload of a PUT; less cuts the payload, nil drops it.
	Put func(h *wire.LNetHeader) []byte
	// Get returns the data of a GET, of which as much is sent as the peer has room for; nil: none.
	Get func(h *wire.LNetHeader) []byte
	// Done, if set, tells that n bytes were moved.
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

// Attach offers a target to peers. Of several that match, the first attached is used.
func (n *Node) Attach(t *Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.targets = append(n.targets, t)
}

// Detach takes a target back.
func (n *Node) Detach(t *Target) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.detach(t)
}

// detach takes a target back. The caller holds mu.
func (n *Node) detach(t *Target) {
	for i := range n.targets {
		if n.targets[i] == t {
			n.targets = append(n.targets[:i:i], n.targets[i+1:]...)
			return
		}
	}
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

// transfer is what this package keeps with an operation.
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

// sendData sends a PUT or a REPLY, small ones at once and large ones by WRITE.
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

// pinging is the target of pings, and of the pushes of peers, which are taken and dropped.
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

// maxPush is the most that a peer may push: what it knows about itself, with as many interfaces as an answer to a ping can have.
const maxPush = 1 << 16

// arrived acts on a message of a peer.
func (n *Node) arrived(l *link, a *lnd.Arrival) {
	h := &a.LNet
	if h.Dst != n.NID() || h.Src != l.peer.NID { // what answers it must not go to a node that has asked for nothing
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

// taken ends a PUT of a peer and acknowledges it if the peer wants that.
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

// maxResponses is how many ACKs and REPLYs wait for a peer that takes none. Further ones are
// dropped: its operations time out.
const maxResponses = 4096

// ErrTooMany ends the REPLYs to a peer that asks for more than it takes.
var ErrTooMany = errors.New("node: the peer takes no responses")

// responding counts a response until done is called by what it returns. It reports false if there
// are too many.
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

// takePut tells a peer where to write the payload of a PUT, or of the REPLY to a GET.
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

// serveGet writes the data of a GET where the peer wants it.
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

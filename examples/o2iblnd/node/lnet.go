package node

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Target is memory that peers put into or get from. Its functions run with the node locked and
// must not call it, except Done, which runs on a goroutine of its own.
type Target struct {
	Portal            uint32
	MatchBits, Ignore uint64 // bits of Ignore need not match

	// Put returns the memory for the payload of a PUT; less cuts the payload, nil drops it.
	Put func(h *wire.LNetHeader) []byte
	// Get returns the data of a GET, of which as much is sent as the peer has room for; nil: none.
	Get func(h *wire.LNetHeader) []byte
	// Done, if set, tells that n bytes were moved.
	Done func(h *wire.LNetHeader, n int, err error)
}

func (t *Target) matches(h *wire.LNetHeader) bool {
	return t.Portal == h.Portal && (t.MatchBits^h.MatchBits)&^t.Ignore == 0 &&
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

// pending is a GET that waits for its REPLY or a PUT that waits for its ACK.
type pending struct {
	sink     []byte
	result   chan result
	deadline time.Time // of the response
}

type result struct {
	n   int
	err error
}

// responseTimeout is how long a GET waits for its REPLY and a PUT for its ACK. A response is lost
// with the connection that it was sent on.
const responseTimeout = 60 * time.Second

// ErrNoResponse ends a GET or a PUT to which the peer has sent no REPLY or no ACK in time.
var ErrNoResponse = fmt.Errorf("node: the peer did not respond: %w", syscall.ETIMEDOUT)

// expire ends the operations whose response is overdue. The caller holds mu.
func (n *Node) expire(now time.Time) {
	for md, p := range n.pending {
		if !now.Before(p.deadline) {
			n.resolve(md, 0, ErrNoResponse)
		}
	}
}

// resolve ends the waiting, once.
func (n *Node) resolve(md uint64, size int, err error) {
	if p := n.pending[md]; p != nil {
		delete(n.pending, md)
		p.result <- result{size, err}
	}
}

// await registers a waiting operation. The channel gets one result.
func (n *Node) await(sink []byte) (wire.WireMD, *pending) {
	n.nextMD++
	p := &pending{sink: sink, result: make(chan result, 1), deadline: time.Now().Add(responseTimeout)}
	n.pending[n.nextMD] = p
	return wire.WireMD{Interface: uint64(n.NID()), Object: n.nextMD}, p
}

// waitFor waits for the result of a pending operation.
func (n *Node) waitFor(ctx context.Context, md wire.WireMD, p *pending) (int, error) {
	select {
	case r := <-p.result:
		return r.n, r.err
	case <-ctx.Done():
		n.mu.Lock()
		delete(n.pending, md.Object)
		n.mu.Unlock()
		return 0, ctx.Err()
	}
}

func (n *Node) header(t wire.LNetType, dst wire.NID) wire.LNetHeader {
	return wire.LNetHeader{Dst: dst, Src: n.NID(), DstPID: wire.KernelPID, SrcPID: wire.KernelPID, Type: t, MD: wire.NoMD}
}

// Put sends data to a target of a peer and waits until the peer has taken it: with ack until
// it has acknowledged how many bytes it took. The data must not change meanwhile, even if ctx ends
// first, until the connection is over or the transfer done.
func (n *Node) Put(ctx context.Context, dst wire.NID, portal uint32, match uint64, data []byte, ack bool) (int, error) {
	if len(data) > wire.MaxPayload {
		return 0, fmt.Errorf("node: put of %d bytes, at most %d: %w", len(data), wire.MaxPayload, syscall.EINVAL)
	}
	n.mu.Lock()
	md, p := n.await(nil)
	h := n.header(wire.Put, dst)
	h.Portal, h.MatchBits = portal, match
	if ack {
		h.MD = md
	}
	n.sendData(dst, h, data, func(size int, err error) {
		if err != nil || !ack {
			n.resolve(md.Object, size, err)
		}
	})
	n.mu.Unlock()
	return n.waitFor(ctx, md, p)
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

// Get fetches data from a target of a peer into sink and returns how much there was. Size the sink
// exactly: the kernel leaves out the end of a transfer that is shorter than its sink. If ctx ends first,
// the peer can write into the sink until the connection is over or the transfer done.
func (n *Node) Get(ctx context.Context, dst wire.NID, portal uint32, match uint64, sink []byte) (int, error) {
	if len(sink) > wire.MaxPayload {
		return 0, fmt.Errorf("node: get of %d bytes, at most %d: %w", len(sink), wire.MaxPayload, syscall.EINVAL)
	}
	n.mu.Lock()
	md, p := n.await(sink)
	h := n.header(wire.Get, dst)
	h.Portal, h.MatchBits, h.MD, h.SinkLen = portal, match, md, uint32(len(sink))
	op := &lnd.Op{Kind: lnd.SendImmediate, LNet: h}
	x := &transfer{done: func(_ int, err error) {
		if err != nil {
			n.resolve(md.Object, 0, err)
		}
	}}
	if len(sink) > wire.MaxImmediate {
		m, err := n.pool.Map(sink)
		if err != nil {
			n.resolve(md.Object, 0, err)
			n.mu.Unlock()
			return n.waitFor(ctx, md, p)
		}
		op.Kind, op.Sink, x.mapping = lnd.SendGet, m.Descriptor(n.cfg.FragmentSize), m
		x.done = func(size int, err error) { n.resolve(md.Object, size, err) }
	}
	op.User = x
	n.submit(dst, op)
	n.mu.Unlock()
	return n.waitFor(ctx, md, p)
}

// Ping asks a peer who it is.
func (n *Node) Ping(ctx context.Context, dst wire.NID) (*wire.PingInfo, error) {
	sink := make([]byte, pingSink)
	size, err := n.Get(ctx, dst, wire.PingPortal, wire.PingMatchBits, sink)
	if err != nil {
		return nil, err
	}
	return wire.DecodePing(sink[:size])
}

// pingSink is the room that lnetctl offers to the answer.
const pingSink = 3960

// pingInfo is the answer to a ping. It leaves out discovery, so that peers push nothing.
func (n *Node) pingInfo() []byte {
	p := wire.PingInfo{Features: wire.FeatNIStatus | wire.FeatRoutingOff, PID: wire.KernelPID,
		Interfaces: []wire.Interface{{NID: wire.LoopbackNID, Status: 1}, {NID: n.NID(), Status: wire.StatusUp}}}
	return p.Append(nil)
}

// pinging is the target of pings, and of the pushes of peers, which are taken and dropped.
func (n *Node) pinging(h *wire.LNetHeader) *Target {
	if h.Portal != wire.PingPortal || h.MatchBits != wire.PingMatchBits {
		return nil
	}
	return &Target{
		Get: func(*wire.LNetHeader) []byte { return n.pingInfo() },
		Put: func(h *wire.LNetHeader) []byte { return make([]byte, h.PayloadLen) },
	}
}

// arrived acts on a message of a peer.
func (n *Node) arrived(l *link, a *lnd.Arrival) {
	h := &a.LNet
	if h.Dst != n.NID() {
		l.conn.Close(&lnd.Violation{Message: wire.Immediate, Detail: fmt.Sprintf("LNet message for %v; this node does not route", h.Dst)})
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
		n.resolve(h.MD.Object, int(h.MLength), nil)
	case wire.Reply:
		if p := n.pending[h.MD.Object]; p != nil {
			n.resolve(h.MD.Object, copy(p.sink, payload), nil)
		}
	case wire.Put:
		if t := n.target(h); t != nil {
			if b := t.Put(h); b != nil {
				n.taken(t, h, copy(b, payload), nil)
			}
		}
	case wire.Get:
		if t := n.target(h); t != nil {
			if b := t.Get(h); b != nil {
				n.reply(t, h, b[:min(len(b), int(h.SinkLen))])
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
	n.submit(h.Src, &lnd.Op{Kind: lnd.SendImmediate, LNet: ack})
}

// reply answers a GET that came without a descriptor.
func (n *Node) reply(t *Target, h *wire.LNetHeader, data []byte) {
	r := n.header(wire.Reply, h.Src)
	r.MD = h.MD
	n.sendData(h.Src, r, data, func(size int, err error) { t.done(h, size, err) })
}

// takePut tells a peer where to write the payload of a PUT, or of the REPLY to a GET.
func (n *Node) takePut(l *link, op *lnd.Op) {
	h, now := op.LNet, time.Now()
	var memory []byte
	done := func(int, error) {}
	if h.Type == wire.Reply {
		if p := n.pending[h.MD.Object]; p != nil {
			memory = p.sink
			done = func(size int, err error) { n.resolve(h.MD.Object, size, err) }
		}
	} else if t := n.target(&h); t != nil {
		memory = t.Put(&h)
		done = func(size int, err error) { n.taken(t, &h, size, err) }
	}
	memory = memory[:min(len(memory), int(h.PayloadLen))]
	if len(memory) == 0 {
		l.conn.RefusePut(now, op, 0)
		return
	}
	m, err := n.pool.Map(memory)
	if err != nil {
		l.conn.RefusePut(now, op, statusNoMemory)
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
	data = data[:min(len(data), int(h.SinkLen), op.Sink.Size())]
	if len(data) == 0 {
		l.conn.RefuseGet(time.Now(), op)
		return
	}
	m, err := n.pool.Map(data)
	if err != nil {
		l.conn.RefuseGet(time.Now(), op)
		return
	}
	op.User = &transfer{mapping: m, done: func(size int, err error) { t.done(&h, size, err) }}
	l.conn.ServeGet(time.Now(), op, len(data))
}

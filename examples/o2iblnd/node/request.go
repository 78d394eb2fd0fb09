package node

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// expectation is the LNet message of the peer that ends a GET or PUT of this node.
type expectation uint8

const (
	expectsNothing expectation = iota // the end of the transfer ends the operation
	expectsAck
	expectsReply
)

// pending is a GET or PUT of this node that is not over.
type pending struct {
	peer     wire.NID // only this peer may respond
	expects  expectation
	most     int    // largest number of bytes that an ACK may report
	sink     []byte // memory for the REPLY
	sent     bool   // the memory of the PUT, or the message of the GET, is no longer in use
	response *result
	result   chan result
	deadline time.Time // for the response
}

type result struct {
	n   int
	err error
}

// responseTimeout is how long a GET waits for its REPLY and a PUT for its ACK. If the connection fails, the response
// can be lost.
const responseTimeout = 60 * time.Second

// ErrNoResponse ends a GET or a PUT to which the peer has sent no REPLY or no ACK in time.
var ErrNoResponse = fmt.Errorf("node: the peer did not respond: %w", syscall.ETIMEDOUT)

// expire ends the operations whose response is overdue. The caller holds mu.
func (n *Node) expire(now time.Time) {
	for md, p := range n.pending {
		if p.sent && !now.Before(p.deadline) {
			n.resolve(md, 0, ErrNoResponse)
		}
	}
}

// resolve ends a pending operation, unless it has ended already.
func (n *Node) resolve(md uint64, size int, err error) {
	if p := n.pending[md]; p != nil {
		delete(n.pending, md)
		p.result <- result{size, err}
	}
}

// moved is called when the connection has finished an operation. A response that came earlier ends the operation now,
// because the memory was in use until now.
func (n *Node) moved(md uint64, size int, err error) {
	p := n.pending[md]
	if p == nil {
		return
	}
	p.sent, p.deadline = true, time.Now().Add(responseTimeout)
	switch {
	case err != nil || p.expects == expectsNothing:
		n.resolve(md, size, err)
	case p.response != nil:
		n.resolve(md, p.response.n, p.response.err)
	}
}

// expected returns the operation to which a response of a peer belongs. It returns nil if there is none, if the response
// comes from another peer or has the wrong type, and for a second response.
func (n *Node) expected(h *wire.LNetHeader, e expectation) *pending {
	p := n.pending[h.MD.Object]
	if p == nil || h.MD.Interface != uint64(n.NID()) || p.peer != h.Src || p.expects != e || p.response != nil {
		return nil
	}
	return p
}

// respond ends an operation with the response of the peer. If the operation is not sent yet, it stores the response.
func (n *Node) respond(h *wire.LNetHeader, p *pending, size int) {
	p.response = &result{n: size}
	if p.sent {
		n.resolve(h.MD.Object, size, nil)
	}
}

// acked handles an ACK. It ignores an ACK for more bytes than the PUT has.
func (n *Node) acked(h *wire.LNetHeader) {
	if p := n.expected(h, expectsAck); p != nil && uint64(h.MLength) <= uint64(p.most) {
		n.respond(h, p, int(h.MLength))
	}
}

// replied handles a REPLY in an IMMEDIATE.
func (n *Node) replied(h *wire.LNetHeader, payload []byte) {
	if p := n.expected(h, expectsReply); p != nil {
		n.respond(h, p, copy(p.sink, payload))
	}
}

// replying returns the memory for a REPLY that the peer is going to write, and the function to call at the end. It removes the
// operation from the pending ones, so that no other REPLY uses the memory meanwhile.
func (n *Node) replying(h *wire.LNetHeader) (sink []byte, done func(int, error)) {
	p := n.expected(h, expectsReply)
	if p == nil {
		return nil, nil
	}
	delete(n.pending, h.MD.Object)
	return p.sink, func(size int, err error) { p.result <- result{size, err} }
}

// await registers a pending operation. Its channel gets one result.
func (n *Node) await(dst wire.NID) (wire.WireMD, *pending) {
	n.nextMD++
	p := &pending{peer: dst, result: make(chan result, 1)}
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

// Put sends data to a target of a peer and waits for the end of the transfer, with ack also for the ACK. It returns the number
// of bytes that were sent or acknowledged. The data must not change until the transfer or the connection is over, even
// if ctx ends first.
func (n *Node) Put(ctx context.Context, dst wire.NID, portal uint32, match uint64, data []byte, ack bool) (int, error) {
	if len(data) > wire.MaxPayload {
		return 0, fmt.Errorf("node: put of %d bytes, at most %d: %w", len(data), wire.MaxPayload, syscall.EINVAL)
	}
	n.mu.Lock()
	md, p := n.await(dst)
	h := n.header(wire.Put, dst)
	h.Portal, h.MatchBits = portal, match
	if ack {
		h.MD, p.expects, p.most = md, expectsAck, len(data)
	}
	n.sendData(dst, h, data, func(size int, err error) { n.moved(md.Object, size, err) })
	n.mu.Unlock()
	return n.waitFor(ctx, md, p)
}

// Get fetches data from a target of a peer into sink and returns the number of bytes. The sink must have exactly the size
// of the data: if it is larger, a kernel node does not transfer the end of the data. If ctx ends first, the peer can still
// write into the sink until the transfer or the connection is over.
func (n *Node) Get(ctx context.Context, dst wire.NID, portal uint32, match uint64, sink []byte) (int, error) {
	if len(sink) > wire.MaxPayload {
		return 0, fmt.Errorf("node: get of %d bytes, at most %d: %w", len(sink), wire.MaxPayload, syscall.EINVAL)
	}
	n.mu.Lock()
	md, p := n.await(dst)
	p.expects, p.sink = expectsReply, sink
	h := n.header(wire.Get, dst)
	h.Portal, h.MatchBits, h.MD, h.SinkLen = portal, match, md, uint32(len(sink))
	op := &lnd.Op{Kind: lnd.SendImmediate, LNet: h}
	x := &transfer{done: func(size int, err error) { n.moved(md.Object, size, err) }}
	if len(sink) > wire.MaxImmediate {
		m, err := n.pool.Map(sink)
		if err != nil {
			n.resolve(md.Object, 0, err)
			n.mu.Unlock()
			return n.waitFor(ctx, md, p)
		}
		p.expects = expectsNothing
		op.Kind, op.Sink, x.mapping = lnd.SendGet, m.Descriptor(n.cfg.FragmentSize), m
	}
	op.User = x
	n.submit(dst, op)
	n.mu.Unlock()
	return n.waitFor(ctx, md, p)
}

// Ping asks a peer for its features and interfaces.
func (n *Node) Ping(ctx context.Context, dst wire.NID) (*wire.PingInfo, error) {
	sink := make([]byte, pingSink)
	size, err := n.Get(ctx, dst, wire.PingPortal, wire.PingMatchBits, sink)
	if err != nil {
		return nil, err
	}
	return wire.DecodePing(sink[:size])
}

// pingSink is the size of the memory for the answer, the same as in lnetctl.
const pingSink = 3960

// pingInfo returns the answer to a ping. It does not announce discovery, so that peers push nothing.
func (n *Node) pingInfo() []byte {
	p := wire.PingInfo{Features: wire.FeatNIStatus | wire.FeatRoutingOff, PID: wire.KernelPID,
		Interfaces: []wire.Interface{{NID: wire.LoopbackNID, Status: 1}, {NID: n.NID(), Status: wire.StatusUp}}}
	return p.Append(nil)
}

package selftest

import (
	"context"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce/examples/o2iblnd/node"
	"github.com/goroce/roce/examples/o2iblnd/wire"
)

// Client sends requests to other nodes.
type Client struct {
	node *node.Node
	bits atomic.Uint64 // the match bits that were used last
}

// NewClient returns a client on a node. seed makes its match bits differ from those of earlier clients.
func NewClient(n *node.Node, seed uint64) *Client {
	c := &Client{node: n}
	c.bits.Store(seed << 32)
	return c
}

// call sends a request and waits for the reply. It writes the match bits for the reply into the request.
func (c *Client) call(ctx context.Context, to wire.NID, portal uint32, service uint64, m *Message) (*Message, error) {
	bits, buf := c.bits.Add(1), make([]byte, MessageLen)
	arrived := make(chan error, 1)
	t := &node.Target{Portal: DataPortal, MatchBits: bits, From: to, Once: true,
		Put:  func(*wire.LNetHeader) []byte { return buf },
		Done: func(_ *wire.LNetHeader, _ int, err error) { arrived <- err }}
	c.node.Attach(t)
	defer c.node.Detach(t)
	m.put64(0, bits)
	if _, err := c.node.Put(ctx, to, portal, service, m.Encode(), false); err != nil {
		return nil, err
	}
	select {
	case err := <-arrived:
		if err != nil {
			return nil, err
		}
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	r, err := Decode(buf)
	switch {
	case err != nil:
		return nil, err
	case r.Type != m.Type+1:
		return nil, fmt.Errorf("selftest: %v answered request %d with message %d", to, m.Type, r.Type)
	case r.status() != 0:
		return nil, fmt.Errorf("selftest: %v answered request %d: %w", to, m.Type, syscall.Errno(r.status()))
	}
	return r, nil
}

// BRW reads or writes size bytes once, and checks the data of a read.
func (c *Client) BRW(ctx context.Context, to wire.NID, d Direction, size int, check Check) error {
	data := make([]byte, size)
	t := &node.Target{Portal: DataPortal, MatchBits: c.bits.Add(1), From: to, Once: true}
	moved := make(chan error, 1)
	t.Done = func(_ *wire.LNetHeader, n int, err error) {
		if err == nil && n != size {
			err = fmt.Errorf("selftest: %d bytes were moved, want %d", n, size)
		}
		moved <- err
	}
	if d == Write {
		check.Fill(data)
		t.Get = func(*wire.LNetHeader) []byte { return data }
	} else {
		t.Put = func(*wire.LNetHeader) []byte { return data }
	}
	c.node.Attach(t)
	defer c.node.Detach(t)
	m := New(BRW, FeatureBulkLen)
	m.put64(8, t.MatchBits)
	m.put32(16, uint32(d))
	m.put32(20, uint32(size))
	m.put32(24, uint32(check))
	if _, err := c.call(ctx, to, RequestPortal, serviceBRW, m); err != nil {
		return err
	}
	select {
	case err := <-moved:
		if err != nil || d == Write {
			return err
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	return check.Verify(data)
}

// Ping sends one request of the ping test.
func (c *Client) Ping(ctx context.Context, to wire.NID, seq uint32) error {
	m := New(PingTest, FeatureBulkLen)
	m.put32(8, pingMagic)
	m.put32(12, seq)
	r, err := c.call(ctx, to, RequestPortal, servicePing, m)
	if err != nil {
		return err
	}
	if r.u32(4) != pingMagic || r.u32(8) != seq {
		return fmt.Errorf("selftest: %v answered ping %d with magic %#x, number %d", to, seq, r.u32(4), r.u32(8))
	}
	return nil
}

const pingMagic = 0xbabeface

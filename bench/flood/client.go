//go:build linux

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/stats"
	"github.com/goroce/roce/interop/child"
)

// Window has the client's measurements since the last call of Window.
type Window struct {
	Goodput float64 `json:"goodput"` // bits a second
	P50     float64 `json:"p50"`     // microseconds from post to completion
	P99     float64 `json:"p99"`
	Lost    uint64  `json:"lost"` // packets sent again
}

// client sends messages.
type client struct {
	dev  *roce.Device
	conn *roce.Conn
	mr   *roce.MR

	mu      sync.Mutex
	since   time.Time
	bytes   uint64
	took    []time.Duration
	retrans uint64
	err     error
}

func (c *client) close() {
	if c.dev != nil {
		c.dev.Close()
	}
}

// GUID returns the GUID of the client's device.
func (c *client) GUID(_ child.None, guid *uint64) error {
	*guid = c.dev.Query().GUID
	return nil
}

// Open opens the device, connects it and begins to send.
func (c *client) Open(driver string, _ *child.None) (err error) {
	if c.dev, err = openDevice(driver); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if c.conn, err = c.dev.Dial(ctx, rcService, roce.DialConfig{}); err != nil {
		return err
	}
	if c.mr, err = c.conn.QP().PD().RegMR(make([]byte, depth*messageSize), 0); err != nil {
		return err
	}
	c.since = time.Now()
	go func() {
		err := c.send()
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
	}()
	return nil
}

// send keeps messages in flight.
func (c *client) send() error {
	var posted [depth]time.Time
	post := func(n uint64) error {
		at := int(n % depth)
		stamp(c.mr.Bytes()[at*messageSize:][:messageSize], n)
		posted[at] = time.Now()
		return c.conn.QP().PostSend(&roce.SendWR{ID: n, Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{c.mr.SGE(at*messageSize, messageSize)}})
	}
	for n := uint64(1); n <= depth; n++ {
		if err := post(n); err != nil {
			return err
		}
	}
	for next := uint64(1); ; next++ {
		wc, err := c.conn.QP().SendCQ().Next(context.Background())
		switch {
		case err != nil:
			return err
		case wc.Status != roce.StatusSuccess:
			return fmt.Errorf("message %d: %v", wc.ID, wc.Status)
		case wc.ID != next:
			return fmt.Errorf("completion %d, want %d", wc.ID, next)
		}
		c.mu.Lock()
		c.bytes += messageSize
		c.took = append(c.took, time.Since(posted[next%depth]))
		c.mu.Unlock()
		if err := post(next + depth); err != nil {
			return err
		}
	}
}

// Window ends a window of measurements and begins the next one.
func (c *client) Window(_ child.None, w *Window) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return c.err
	}
	now := time.Now()
	w.Goodput = 8 * float64(c.bytes) / now.Sub(c.since).Seconds()
	slices.Sort(c.took)
	us := func(q float64) float64 { return float64(stats.Quantile(c.took, q).Nanoseconds()) / 1e3 }
	w.P50, w.P99 = us(0.5), us(0.99)
	retrans := c.dev.Counters().RetransPkts
	w.Lost = retrans - c.retrans
	c.since, c.bytes, c.took, c.retrans = now, 0, c.took[:0], retrans
	return nil
}

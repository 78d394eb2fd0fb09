package fault_test

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/mono"
)

// counting is an engine that counts transmissions.
type counting struct {
	t   *testing.T
	e   *fault.Engine
	now mono.Time
}

func newCounting(t *testing.T) *counting { return &counting{t: t, e: network(t)} }

// want sends a packet to a queue pair and checks which transmission of its PSN it is.
func (c *counting) want(qpn bth.QPN, psn, iter int) {
	c.t.Helper()
	f := write(psn, "abcd")
	f.BTH.DestQPN = qpn
	if v := c.e.Handle(c.now, fault.Tx, made(c.t, false, f), 1); v.Iter != iter {
		c.t.Fatalf("to queue pair %v, PSN %d: transmission %d, want %d", qpn, psn, v.Iter, iter)
	}
}

// Each queue pair has its own counts, however many queue pairs there are.
func TestManyQueuePairs(t *testing.T) {
	c := newCounting(t)
	const pairs = 20000
	for iter := 1; iter <= 2; iter++ {
		for qpn := range bth.QPN(pairs) {
			c.want(0x100+qpn, 5, iter)
		}
	}
	if f := c.e.Forgotten(); f != (fault.Forgotten{}) {
		t.Errorf("%+v", f)
	}
}

// The count of a PSN is kept until 1<<14 other PSNs have been sent, in any order.
func TestPSNsRemembered(t *testing.T) {
	const remembered = 1 << 14
	for name, step := range map[string]int{"in order": 1, "in turns": 257, "backwards": remembered - 1} {
		t.Run(name, func(t *testing.T) {
			c := newCounting(t)
			for iter := 1; iter <= 3; iter++ {
				for i := range remembered {
					c.want(7, i*step%remembered, iter)
				}
			}
			c.want(7, remembered, 1) // takes the place of the first
			c.want(7, 0, 1)
			c.want(7, 1, 4)
		})
	}
}

// The counts of idle queue pairs are removed to make room. Removed counts of queue pairs in use are
// reported in Forgotten.
func TestCountsForgotten(t *testing.T) {
	const (
		most = 1 << 10 // queue pairs with the largest table for which there is room
		half = 1 << 13 // two PSNs that far apart have room in the largest table only
	)
	c := newCounting(t)
	fill := func(qpn bth.QPN) {
		c.want(qpn, 0, 1)
		c.want(qpn, half, 1)
	}
	for qpn := range bth.QPN(most) {
		fill(0x100 + qpn)
	}
	c.now = c.now.Add(2 * time.Minute)
	c.want(0x100, half, 2) // in use again
	fill(0x10000)          // takes the place of the second
	if f := c.e.Forgotten(); f != (fault.Forgotten{}) {
		t.Errorf("an idle queue pair had to give way: %+v", f)
	}
	c.want(0x100, half, 3)
	for qpn := range bth.QPN(most) {
		fill(0x20000 + qpn)
	}
	if f := c.e.Forgotten(); f != (fault.Forgotten{Iterations: 2}) {
		t.Errorf("two queue pairs in use had to give way: %+v", f)
	}
	c.want(0x100, half, 1)
}

//go:build linux

package ours

import (
	"context"
	"errors"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/conformance/verbs"
)

func (n *Node) CapFlags() (uint64, error) { return uint64(n.dev.Query().Caps), nil }

func (n *Node) NextEvent(d time.Duration) (verbs.Event, error) {
	ctx, stop := wait(d)
	defer stop()
	e, err := n.dev.NextEvent(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return verbs.Event{}, again("get_event")
	}
	if err != nil {
		return verbs.Event{}, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	v := verbs.Event{Type: int(e.Type)}
	switch {
	case e.QP != nil:
		v.Object = n.handle[e.QP]
	case e.CQ != nil:
		v.Object = n.handle[e.CQ]
	case e.SRQ != nil:
		v.Object = n.handle[e.SRQ]
	}
	return v, nil
}

// again returns the EAGAIN of a call whose time limit has passed.
func again(call string) error {
	return &verbs.Error{Side: "roce", Call: call, Errno: syscall.EAGAIN}
}

// Counter returns one of Device.Counters.
func (n *Node) Counter(name string) (uint64, error) {
	c := n.dev.Counters()
	for _, f := range c.Counters.Fields() {
		if f.Name == name {
			return *f.V, nil
		}
	}
	return 0, &verbs.Error{Side: "roce", Call: "counter", Errno: syscall.ENOENT}
}

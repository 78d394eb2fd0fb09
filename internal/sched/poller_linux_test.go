package sched

import (
	"sync/atomic"
	"testing"
)

// TestLetRunClosed: if the program has closed the descriptor, LetRun lets the goroutines run that can.
func TestLetRunClosed(t *testing.T) {
	oneThread(t)
	p := newPoller()
	p.wait = func(uintptr) bool { return p.ready(1 << 30) } // no such descriptor
	before := thePoller
	defer func() { thePoller = before }()
	thePoller = func() *poller { return p }
	var ran atomic.Bool
	go ran.Store(true)
	if LetRun(); !ran.Load() {
		t.Error("another goroutine did not run")
	}
}

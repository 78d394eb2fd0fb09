// Package gate keeps file descriptors and mapped memory alive while goroutines use them. If
// one closed a descriptor that another is about to pass to the kernel, the kernel might take
// it for a file that was opened since.
package gate

import "sync/atomic"

// Gate counts the calls in progress. Make it with [New].
type Gate struct {
	n     atomic.Int64 // users inside; closing adds shut
	empty chan struct{}
}

const shut = 1 << 32

// New returns an open gate.
func New() Gate { return Gate{empty: make(chan struct{}, 1)} }

// Enter reports whether the gate is open, and if so holds it until Leave.
func (g *Gate) Enter() bool {
	if g.n.Add(1) < shut {
		return true
	}
	g.Leave()
	return false
}

// Leave lets the closer go on when the last one is out.
func (g *Gate) Leave() {
	if g.n.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default: // there is a token already, of a call that found the gate closed
		}
	}
}

// Close shuts the gate with the closer inside, once: it reports whether it was
// open. The closer then makes those inside come out, and calls Drain.
func (g *Gate) Close() bool {
	for {
		n := g.n.Load()
		if n >= shut {
			return false
		}
		if g.n.CompareAndSwap(n, n+shut+1) {
			return true
		}
	}
}

// Drain ends the call of the closer and returns when no call is in progress any more.
func (g *Gate) Drain() {
	g.Leave()
	<-g.empty
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool { return g.n.Load() >= shut }

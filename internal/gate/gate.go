// Package gate keeps file descriptors and mapped memory alive while goroutines use them. If one goroutine closed a
// descriptor that another is about to pass to the kernel, the number might belong to a new file by then.
package gate

import "sync/atomic"

// Gate counts the calls in progress. Make it with [New].
type Gate struct {
	n     atomic.Int64 // number of users; Close adds shut
	empty chan struct{}
}

const shut = 1 << 32

// New returns an open gate.
func New() Gate { return Gate{empty: make(chan struct{}, 1)} }

// Enter adds a user until Leave. It returns false if the gate is closed.
func (g *Gate) Enter() bool {
	if g.n.Add(1) < shut {
		return true
	}
	g.Leave()
	return false
}

// Leave removes a user. The last one lets Drain return.
func (g *Gate) Leave() {
	if g.n.Add(-1) == shut {
		select {
		case g.empty <- struct{}{}:
		default: // an Enter that found the gate closed has left a token
		}
	}
}

// Close shuts the gate and makes the closer a user. It returns false if the gate was closed already. The closer then
// makes the other users leave, and calls Drain.
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

// Drain removes the closer and returns when there are no users.
func (g *Gate) Drain() {
	g.Leave()
	<-g.empty
}

// Closed reports whether Close was called.
func (g *Gate) Closed() bool { return g.n.Load() >= shut }

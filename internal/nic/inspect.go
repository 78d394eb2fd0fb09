package nic

import "github.com/goroce/roce/bth/frame"

// What is in this file is for tests that look behind the public objects.

// LimitQPs lowers how many queue pairs the NIC can have.
func (n *NIC) LimitQPs(most int) {
	n.Lock()
	defer n.Unlock()
	n.demux.qps.SetMax(most)
}

// WakePorts ends the sleep of the goroutines that wait at a port.
func (n *NIC) WakePorts() {
	for _, s := range n.shards {
		s.port.Wake()
	}
}

// MatchedFrames returns how many frames of the last batches were of a known flow, on a NIC
// whose drivers deliver whole frames.
func (n *NIC) MatchedFrames() (matched int) {
	n.Lock()
	defer n.Unlock()
	for _, s := range n.shards {
		for i := range s.frames {
			if s.frames[i].Env != nil {
				matched++
			}
		}
	}
	return matched
}

// ForgetFlows makes the NIC parse the next frames anew, whatever it has seen before.
func (n *NIC) ForgetFlows() {
	n.Lock()
	defer n.Unlock()
	for _, s := range n.shards {
		s.flows = frame.Flows{}
	}
}

// SetRemoved says that the network interface was removed, or that it was not.
func (n *NIC) SetRemoved(removed bool) { n.removed.Store(removed) }

// CallsWaiting returns how many calls of a shard wait.
func (s *Shard) CallsWaiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls.waiting)
}

// WaitsForData reports whether the queue pair waits for the first data of a connection.
func (q *QP) WaitsForData() bool { return q.awaitsData() }

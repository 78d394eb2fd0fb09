package nic

import "github.com/goroce/roce/bth/frame"

// The functions in this file are for tests that check the internals of public
// objects.

// LimitQPs lowers the number of queue pairs that the NIC can have.
func (n *NIC) LimitQPs(most int) {
	n.Lock()
	defer n.Unlock()
	n.demux.qps.SetMax(most)
}

// WakePorts ends the sleep of goroutines at ports.
func (n *NIC) WakePorts() {
	for _, s := range n.shards {
		s.port.Wake()
	}
}

// MatchedFrames returns the number of frames in the last batches that belonged to a known
// flow, on a NIC whose drivers deliver whole frames.
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

// ForgetFlows makes the NIC forget all flows and parse the next frames.
func (n *NIC) ForgetFlows() {
	n.Lock()
	defer n.Unlock()
	for _, s := range n.shards {
		s.flows = frame.Flows{}
	}
}

// SetRemoved sets whether the network interface was removed.
func (n *NIC) SetRemoved(removed bool) { n.removed.Store(removed) }

// CallsWaiting returns the number of waiting calls of a shard.
func (s *Shard) CallsWaiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.calls.waiting)
}

// WaitsForData reports whether the queue pair waits for the first data of a connection.
func (q *QP) WaitsForData() bool { return q.awaitsData() }

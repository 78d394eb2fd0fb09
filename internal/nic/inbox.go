package nic

import (
	"sync"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// inboxLimit is the number of packets that may wait for a shard.
const inboxLimit = 1024

// inbox holds packets for queue pairs of a shard that arrived at another shard or at another
// process. They arrive at another shard if the network card does not steer packets by QPN.
type inbox struct {
	mu    sync.Mutex
	queue []forwarded // guarded by mu
	spare [][]byte    // guarded by mu
	lost  uint64      // packets from other processes for which there was no room; guarded by mu

	room chan struct{} // has a token when a full queue was emptied

	other []forwarded // guarded by the shard: the second buffer
}

// forwarded is a copy of a frame from another shard or process.
type forwarded struct {
	link.Frame
	layout   frame.Layout
	from     origin
	envelope frame.Envelope // if the frame has an envelope
}

// keep makes f a copy of fr with its bytes in b.
func (f *forwarded) keep(fr *link.Frame, b []byte, l frame.Layout) {
	f.Frame, f.layout = *fr, l
	f.Data = append(b[:0], fr.Data...)
	if fr.Env != nil {
		f.envelope = *fr.Env
	}
}

// frame returns the frame. It is valid as long as f does not move.
func (f *forwarded) frame() *link.Frame {
	if f.Env != nil {
		f.Env = &f.envelope
	}
	return &f.Frame
}

// forward puts a frame into the inbox of s, the shard of its queue pair, and reports whether
// there was room. The caller holds the lock of the receiving shard, not that of s.
func (s *Shard) forward(f *link.Frame, l frame.Layout, from origin) bool {
	in := &s.inbox
	in.mu.Lock()
	n := len(in.queue)
	if n < inboxLimit {
		var b []byte
		if k := len(in.spare); k > 0 {
			b, in.spare = in.spare[k-1], in.spare[:k-1]
		}
		if cap(b) < len(f.Data) {
			b = make([]byte, 0, max(len(f.Data), s.loop.size))
		}
		in.queue = append(in.queue, forwarded{})
		in.queue[n].keep(f, b, l)
		in.queue[n].from = from
	}
	in.mu.Unlock()
	if n == 0 { // otherwise s was woken already
		s.port.Wake()
	}
	return n < inboxLimit
}

// forwardShared is forward for a packet from another process. The caller has locked no shard. If
// the other process itself has sent the packet, forwardShared waits for room, and later packets
// wait at that process. If the packet came from the network, forwardShared does not wait: it
// counts the packet as lost.
func (s *Shard) forwardShared(f *link.Frame, from origin) {
	for !s.forward(f, frame.LayoutEthernet, from) {
		if from != fromProcess {
			s.inbox.mu.Lock()
			s.inbox.lost++
			s.inbox.mu.Unlock()
			return
		}
		select {
		case <-s.inbox.room:
		case <-s.nic.done:
			return
		}
	}
}

// hasInbox reports whether other shards or processes may forward packets to this one.
func (s *Shard) hasInbox() bool { return len(s.nic.shards) > 1 || s.nic.shared != nil }

// drainInbox handles the packets that other shards forwarded.
func (s *Shard) drainInbox(now mono.Time) int {
	if !s.hasInbox() {
		return 0
	}
	in := &s.inbox
	in.mu.Lock()
	batch := in.queue
	in.queue, in.other = in.other[:0], batch
	s.drops.Overrun += in.lost
	in.lost = 0
	in.mu.Unlock()
	if len(batch) == 0 {
		return 0
	}
	if len(batch) == inboxLimit {
		select {
		case s.inbox.room <- struct{}{}:
		default:
		}
	}
	for i := range batch {
		s.receive(now, batch[i].frame(), batch[i].layout, batch[i].from)
	}
	in.mu.Lock()
	for i := range batch {
		in.spare = append(in.spare, batch[i].Data)
	}
	in.mu.Unlock()
	return len(batch)
}

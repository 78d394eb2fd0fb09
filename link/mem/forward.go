package mem

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// take gets a buffer from the cache. It fills the cache from the pool in
// batches.
func (p *Port) take() *buf {
	if len(p.cache) == 0 {
		p.cache = p.hub.pool.take(p.cache, link.Batch)
	}
	last := len(p.cache) - 1
	f := p.cache[last]
	p.cache[last] = nil
	p.cache = p.cache[:last]
	return f
}

// recycle keeps some buffers in the cache and gives the rest to the pool.
func (p *Port) recycle(bufs []*buf) {
	n := min(len(bufs), max(0, link.Batch-len(p.cache)))
	p.cache = append(p.cache, bufs[:n]...)
	if n < len(bufs) {
		p.hub.pool.give(bufs[n:])
	}
}

// makeRoom delivers as much of the pending list as it can, and reports
// whether the list then has room.
func (p *Port) makeRoom() bool {
	if p.count.Down() {
		p.count.TxDrops.Add(uint64(len(p.pending)))
		p.recycle(p.pending)
		p.pending = p.pending[:0]
		return true
	}
	p.deliverAll()
	if len(p.pending) < cap(p.pending) {
		return true
	}
	p.count.TxRetries.Add(1)
	return false
}

// deliverAll is deliver. If frames stay pending, it records that the port
// waits for room, so that a receiver that drains its queue wakes the port.
func (p *Port) deliverAll() {
	p.deliver()
	if len(p.pending) == 0 {
		return
	}
	if p.starved.CompareAndSwap(false, true) {
		p.hub.starved.Add(1)
	}
	// The receiver may have drained its queue before it could see that this port waits for
	// room, and then it would not wake this port: try once more.
	p.deliver()
	if len(p.pending) == 0 && p.starved.CompareAndSwap(true, false) {
		p.hub.starved.Add(-1)
	}
}

// deliver delivers the pending frames to their receivers, in order. It queues
// runs of frames to one receiver under one lock. With backpressure it stops at
// the first frame without room, and the rest stays pending.
func (p *Port) deliver() {
	t := p.hub.table.Load()
	var packets int
	var bytes uint64
	done := 0
	for done < len(p.pending) {
		var to *Port
		end := done
		for ; end < len(p.pending); end++ {
			next := p.receiver(t, p.pending[end])
			if end > done && next != to || next == nil {
				break
			}
			to = next
		}
		if to == nil { // multicast, or an address that no station has
			f := p.pending[done]
			if p.flood(t, f) {
				packets++
				bytes += uint64(f.n)
			} else {
				p.count.TxDrops.Add(1)
			}
			p.recycle(p.pending[done : done+1])
			done++
			continue
		}
		run := p.pending[done:end]
		size := total(run) // now, because queued frames belong to the receiver
		n, gone := to.enqueue(run)
		size -= total(run[n:])
		if n < len(run) && p.hub.cfg.Backpressure && !gone {
			packets += n
			bytes += size
			done += n
			break
		}
		// Frames that were dropped at a full queue count as sent; frames
		// without a receiver do not.
		packets += n
		bytes += size
		if rest := run[n:]; gone {
			p.count.TxDrops.Add(uint64(len(rest)))
		} else if len(rest) > 0 {
			to.count.RxDrops.Add(uint64(len(rest)))
			packets += len(rest)
			bytes += total(rest)
		}
		p.recycle(run[n:])
		done = end
	}
	rest := copy(p.pending, p.pending[done:])
	clear(p.pending[rest:])
	p.pending = p.pending[:rest]
	p.count.Sent(packets, bytes)
}

// total returns the sum of the sizes of frames.
func total(bufs []*buf) (bytes uint64) {
	for _, f := range bufs {
		bytes += uint64(f.n)
	}
	return bytes
}

// receiver returns the port that a unicast frame goes to. It returns nil if the frame is not
// unicast or no port has its address. A switch does not send a frame back to the port it came
// from.
func (p *Port) receiver(t *table, f *buf) *Port {
	dst := frame.MAC(f.b[:6])
	if dst[0]&1 != 0 || dst == p.station.mac {
		return nil
	}
	if r := &p.route; r.table != t || r.mac != dst {
		r.table, r.mac, r.to = t, dst, t.byMAC[dst]
	}
	if p.route.to == nil {
		return nil
	}
	return p.route.to.port(f.data())
}

// route is the destination of frames to a MAC address.
type route struct {
	table *table
	mac   frame.MAC
	to    *station // nil: no station has the address
}

// flood copies a multicast frame to every other station.
func (p *Port) flood(t *table, f *buf) bool {
	if f.b[0]&1 == 0 {
		return false
	}
	for _, s := range t.stations {
		if s == p.station {
			continue
		}
		to := s.port(f.data())
		c := p.take()
		c.n = copy(c.b, f.data())
		p.copies = append(p.copies[:0], c)
		if n, gone := to.enqueue(p.copies); n == 0 {
			if !gone {
				to.count.RxDrops.Add(1)
			}
			p.recycle(p.copies)
		}
	}
	return true
}

// enqueue queues as many frames as there is room for. gone means that the port
// is closed or its link is down, so that waiting for room is useless.
func (p *Port) enqueue(run []*buf) (n int, gone bool) {
	if p.closed.Load() || p.count.Down() {
		return 0, true
	}
	p.mu.Lock()
	if p.closed.Load() { // Close emptied the queue
		p.mu.Unlock()
		return 0, true
	}
	wasEmpty := p.queue.Len() == 0
	n = min(len(run), p.hub.cfg.Queue-p.queue.Len())
	for _, f := range run[:n] {
		*p.queue.Push() = f
	}
	p.queued.Store(int32(p.queue.Len()))
	p.mu.Unlock()
	if wasEmpty && n > 0 {
		p.signal.Notify()
	}
	return n, false
}

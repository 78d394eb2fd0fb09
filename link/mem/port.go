package mem

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/link"
)

// Port is one port of a [Hub], or one queue of a card on it. It implements
// link.Port.
type Port struct {
	hub     *Hub
	station *station
	info    link.Info
	count   link.Counters

	// The transmit side and held belong to the owner.
	cur     *buf   // lent by Begin; kept for the next Begin if abandoned
	lent    []byte // the frame in cur or in scratch, nil between
	scratch []byte // room for frames beyond the MTU, which are not sent
	over    bool   // the frame lent is in scratch
	id      uint16 // Identification of the next IPv4 packet
	cache   []*buf // free buffers
	pending []*buf // committed, not delivered
	route   route  // of the last frame, usually also that of the next
	copies  []*buf // buffers for the copies of one multicast frame
	held    []*buf // lent to the receiver until the next Recv

	closed  atomic.Bool
	starved atomic.Bool  // frames wait for room; the receiver of a drained queue wakes the port
	queued  atomic.Int32 // number of frames in queue, readable without the lock
	event   atomic.Bool  // the link went down and Recv has not reported it yet
	removed atomic.Bool

	signal notify.Chan // a change for Wait
	timer  *time.Timer // of Wait

	mu    sync.Mutex
	queue fifo.Queue[*buf] // guarded by mu
	woken bool             // guarded by mu
}

func newPort(h *Hub, s *station, name string) *Port {
	return &Port{
		hub: h, station: s,
		info: link.Info{
			Driver: "mem", Interface: name, MAC: s.mac, MTU: h.cfg.MTU,
			Layout: frame.LayoutEthernet, Mode: "in process",
		},
		pending: make([]*buf, 0, link.Batch),
		signal:  notify.New(),
	}
}

// Info implements link.Port.
func (p *Port) Info() link.Info { return p.info }

// Stats implements link.Port.
func (p *Port) Stats() link.Stats { return p.count.Stats() }

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.count.OnLink(f) }

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	p.lent = nil
	if n < 0 || p.closed.Load() {
		return nil, 0, false
	}
	if len(p.pending) == cap(p.pending) && !p.makeRoom() {
		return nil, 0, false
	}
	size := path.HeaderLen(frame.LayoutEthernet) + n
	room := p.scratch
	p.over = path.HeaderLen(frame.LayoutIP)+n > p.info.MTU
	if p.over {
		if len(room) < size {
			room = make([]byte, size)
			p.scratch = room
		}
	} else {
		if p.cur == nil {
			p.cur = p.take()
		}
		room = p.cur.b
	}
	p.lent = room[:size:size]
	body, crc = path.Put(p.lent, frame.LayoutEthernet, n, p.id)
	return body, crc, true
}

// Lent implements link.Port.
func (p *Port) Lent() []byte { return p.lent }

// Commit implements frame.Sink.
func (p *Port) Commit() {
	if p.lent == nil {
		return
	}
	p.id++
	if p.over {
		p.count.TxOversize.Add(1)
	} else {
		p.cur.n = len(p.lent)
		p.pending = append(p.pending, p.cur)
		p.cur = nil
	}
	p.lent = nil
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	if p.closed.Load() {
		return link.ErrClosed
	}
	if len(p.pending) == 0 {
		return nil
	}
	if p.count.Down() {
		p.count.TxDrops.Add(uint64(len(p.pending)))
		p.recycle(p.pending)
		p.pending = p.pending[:0]
		return p.trouble("send")
	}
	p.deliverAll()
	return nil
}

// Recv implements link.Port.
func (p *Port) Recv(fr []link.Frame) (int, error) {
	if len(p.held) > 0 {
		p.hub.pool.give(p.held)
		clear(p.held)
		p.held = p.held[:0]
	}
	if p.closed.Load() {
		return 0, link.ErrClosed
	}
	var n int
	if p.queued.Load() > 0 {
		n = p.dequeue(fr)
		if p.hub.cfg.Backpressure {
			p.hub.feed()
		}
	}
	if p.event.Load() && p.event.CompareAndSwap(true, false) {
		return n, p.trouble("receive")
	}
	return n, nil
}

// dequeue moves frames from the queue to held, and their views to fr.
func (p *Port) dequeue(fr []link.Frame) int {
	p.mu.Lock()
	n := min(len(fr), p.queue.Len())
	for range n {
		f, _ := p.queue.Pop()
		p.held = append(p.held, f)
	}
	p.queued.Store(int32(p.queue.Len()))
	p.mu.Unlock()

	var bytes uint64
	for i, f := range p.held {
		fr[i] = link.Frame{Data: f.data()}
		bytes += uint64(f.n)
	}
	p.count.Received(n, bytes)
	return n
}

// Wait implements link.Port.
func (p *Port) Wait(d time.Duration) error {
	var expired <-chan time.Time
	defer func() {
		if expired != nil {
			p.timer.Stop()
		}
	}()
	for {
		p.mu.Lock()
		ready := p.queue.Len() > 0 || p.woken || p.event.Load()
		p.woken = false
		p.mu.Unlock()
		switch {
		case p.closed.Load():
			return link.ErrClosed
		case ready || d == 0:
			return nil
		}
		if d > 0 && expired == nil {
			if p.timer == nil {
				p.timer = time.NewTimer(d)
			} else {
				p.timer.Reset(d)
			}
			expired = p.timer.C
		}
		select {
		case <-p.signal:
		case <-expired:
			return nil
		}
	}
}

// Wake implements link.Port.
func (p *Port) Wake() {
	p.mu.Lock()
	p.woken = true
	p.mu.Unlock()
	p.signal.Notify()
}

// Close implements link.Port.
func (p *Port) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return link.ErrClosed
	}
	if p.starved.CompareAndSwap(true, false) {
		p.hub.starved.Add(-1)
	}
	p.mu.Lock()
	p.queue = fifo.Queue[*buf]{}
	p.queued.Store(0)
	p.mu.Unlock()
	p.signal.Notify()
	p.hub.unplug(p.station)
	p.hub.feed() // senders that wait for room in this queue continue
	return nil
}

// SetLink takes the link down (false) and up again, unless the card was removed. While it is down,
// frames to and from the port are dropped; Flush returns link.ErrDown every time, Recv once.
func (p *Port) SetLink(up bool) {
	if up && p.removed.Load() {
		return
	}
	p.count.SetDown(!up)
	if !up {
		p.event.Store(true)
		p.signal.Notify()
	}
}

// Remove removes the card from the machine for ever. Flush then returns
// link.ErrNoDevice every time, Recv once. The owner must still call Close.
func (p *Port) Remove() {
	p.removed.Store(true)
	p.SetLink(false)
}

// trouble returns the error for a link that is down.
func (p *Port) trouble(op string) error {
	kind := link.ErrDown
	if p.removed.Load() {
		kind = link.ErrNoDevice
	}
	return link.Fail("mem", op, p.info.Interface, kind, nil, "")
}

// Package fault is an unreliable network: a link.Port around a link.Port that
// loses, duplicates, reorders, delays, corrupts and congestion-marks packets,
// at random with a seed or by exact rules ("drop the first transmission of PSN
// 5"), in both directions.
//
// An [Engine] is the same network without a Port: the caller passes in frames and
// times, and gets frames back.
//
// Held packets never get stuck: a packet that waits to be overtaken is released
// when its time is up, Wait returns when a packet is due, and both Recv and
// Flush release the packets that are due.
package fault

import (
	"fmt"
	"sync"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Counters counts the faults of one direction.
type Counters struct {
	Packets    uint64 `json:"packets"` // all packets
	Dropped    uint64 `json:"dropped"`
	Duplicated uint64 `json:"duplicated"`
	Reordered  uint64 `json:"reordered"`
	Delayed    uint64 `json:"delayed"`
	Corrupted  uint64 `json:"corrupted"`
	Rewritten  uint64 `json:"rewritten"`
	Marked     uint64 `json:"marked"`
	Rules      uint64 `json:"by_rules"` // of all these, done by a rule
	Overflow   uint64 `json:"no_room"`  // not held back because Config.Hold were held already
	Lost       uint64 `json:"lost"`     // still held back when the Port was closed
	Held       int    `json:"held"`     // held back at the moment
}

// Port is a faulty link.Port. Any goroutine may at any time call the methods that link.Port does
// not have.
type Port struct {
	inner link.Port
	info  link.Info
	now   func() mono.Time

	mu sync.Mutex // guards everything below
	engine

	lent   bool // the packet of the last Begin is not committed yet
	path   *frame.Path
	crc    bth.CRC        // ICRC register after the headers of path
	out    link.Frame     // the packet that is committed
	env    frame.Envelope // its headers, if the kernel writes them
	n      int
	frames []link.Frame // received from the inner Port
	given  []*held      // lent to the receiver until the next Recv
	sleep  mono.Time    // when the Wait in progress times out; 0: there is none
	stuck  bool         // packets to be sent are due, but the inner Port has no room
}

// Wrap puts a faulty network between inner and its user. The Port owns inner
// from now on: Close closes both.
func Wrap(inner link.Port, c Config) (*Port, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	note := "faults: " + c.String()
	p := &Port{inner: inner, info: inner.Info(), now: c.Now}
	if p.now == nil {
		start := time.Now()
		p.now = func() mono.Time { return mono.Time(time.Since(start)) }
	}
	p.engine.init(c, p.info.Layout, p.now())
	p.info.Notes = append(append([]string(nil), p.info.Notes...), note)
	return p, nil
}

// SetRates replaces the random faults of both directions. Rates{Loss: 1} cuts
// the wire.
func (p *Port) SetRates(tx, rx Rates) error {
	c := Config{Tx: tx, Rx: rx}
	if err := c.Validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.tx.setRates(tx)
	p.rx.setRates(rx)
	return nil
}

// AddRule adds an exact fault after the existing ones.
func (p *Port) AddRule(r Rule) error {
	if err := r.Check(); err != nil {
		return fmt.Errorf("fault: rule %v: %w", &r, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addRule(r)
	return nil
}

// Counters returns the counters of each direction.
func (p *Port) Counters() (tx, rx Counters) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tx.snapshot(), p.rx.snapshot()
}

// Inner returns the Port inside.
func (p *Port) Inner() link.Port { return p.inner }

// Info implements link.Port: it returns the Info of the inner Port, with a
// note.
func (p *Port) Info() link.Info { return p.info }

// Stats implements link.Port: it returns the Stats of the inner Port. See
// Counters.
func (p *Port) Stats() link.Stats { return p.inner.Stats() }

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.inner.OnLink(f) }

// Wake implements link.Port.
func (p *Port) Wake() { p.inner.Wake() }

// Close implements link.Port. Held packets are lost.
func (p *Port) Close() error {
	err := p.inner.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range []*side{&p.tx, &p.rx} {
		s.count.Lost += uint64(len(s.hold.reordered) + len(s.hold.timed))
		s.hold.reordered, s.hold.timed = nil, nil
	}
	return err
}

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	body, crc, ok = p.inner.Begin(path, n)
	p.path, p.crc, p.n, p.lent = path, crc, n, ok
	return body, crc, ok
}

// Lent implements link.Port.
func (p *Port) Lent() []byte {
	if !p.lent {
		return nil
	}
	return p.inner.Lent()
}

// Commit implements frame.Sink. It chooses the faults of the packet.
func (p *Port) Commit() {
	if !p.lent {
		return
	}
	p.lent = false
	p.mu.Lock()
	defer p.mu.Unlock()

	now := p.now()
	p.out = link.Frame{Data: p.inner.Lent()}
	if p.info.Layout == frame.LayoutUDP {
		p.env = p.path.Envelope()
		p.out.Env = &p.env
	}
	p.at = locate(p.layout, &p.out)
	p.at.crc, p.at.seeded = p.crc, true
	v := p.decide(&p.tx, now, &p.out)
	for _, h := range v.copied {
		h.path, h.n = p.path, p.n
	}
	if v.Pass {
		p.inner.Commit()
		p.tx.hold.passed++
	} // else the next Begin of the inner Port abandons it
	p.releaseTx(now)
	p.rearm()
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	p.mu.Lock()
	p.releaseTx(p.now())
	p.mu.Unlock()
	return p.inner.Flush()
}

// releaseTx sends the held packets whose time has come, and reports whether
// there were any. Called with mu held.
func (p *Port) releaseTx(now mono.Time) bool {
	sent := false
	p.stuck = false
	for {
		h := p.tx.hold.next(now)
		if h == nil {
			return sent
		}
		body, crc, ok := p.inner.Begin(h.path, h.n)
		if p.stuck = !ok; p.stuck {
			p.tx.hold.back(h) // no room now: later
			return sent
		}
		if p.info.Layout == frame.LayoutUDP {
			// The kernel writes the IP header, perhaps with another Identification
			// than the packet was built with: compute the ICRC again.
			copy(body, h.data)
			if at := len(body) - bth.ICRCLen; !h.raw && at >= bth.BTHLen {
				crc = crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:at])
				bth.PutICRC(body[at:], crc)
			}
		} else {
			copy(p.inner.Lent(), h.data) // the old envelope too, for its ICRC
		}
		p.inner.Commit()
		p.tx.hold.passed++
		p.tx.hold.recycle(h)
		sent = true
	}
}

// Recv implements link.Port.
func (p *Port) Recv(fr []link.Frame) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()

	for _, h := range p.given {
		p.rx.hold.recycle(h)
	}
	p.given = p.given[:0]
	now := p.now()
	if p.releaseTx(now) {
		p.inner.Flush() // an error shows again at the caller's own Flush or Recv
	}

	n := p.releaseRx(fr, 0, len(fr), now)
	if len(p.frames) < len(fr) {
		p.frames = make([]link.Frame, len(fr))
	}
	if n == len(fr) {
		return n, nil
	}
	in, err := p.inner.Recv(p.frames[:len(fr)-n])
	for i := range p.frames[:in] {
		f := &p.frames[i]
		p.at = locate(p.layout, f)
		if v := p.decide(&p.rx, now, f); v.Pass {
			fr[n] = *f
			n++
			p.rx.hold.passed++
		}
		// Leave room for the rest of the received frames: unlike held packets they cannot wait.
		n = p.releaseRx(fr, n, len(fr)-(in-i-1), now)
	}
	clear(p.frames[:in])
	p.rearm()
	return n, err
}

// releaseRx puts held packets whose time has come into fr[n:limit] and returns
// the new n. Called with mu held.
func (p *Port) releaseRx(fr []link.Frame, n, limit int, now mono.Time) int {
	for n < limit {
		h := p.rx.hold.next(now)
		if h == nil {
			break
		}
		p.rx.hold.passed++
		p.given = append(p.given, h)
		fr[n] = h.frame
		n++
	}
	return n
}

// Wait implements link.Port. It returns when a held packet is due too.
func (p *Port) Wait(d time.Duration) error {
	p.mu.Lock()
	now := p.now()
	if due := p.due(); due <= now {
		d = 0
	} else if due != mono.Never && (d < 0 || due.Sub(now) < d) {
		d = due.Sub(now)
	}
	p.sleep = mono.Never
	if d >= 0 {
		p.sleep = now.Add(d)
	}
	p.mu.Unlock()

	err := p.inner.Wait(d)

	p.mu.Lock()
	p.sleep = 0
	p.mu.Unlock()
	return err
}

// due returns when the next held packet is due. Called with mu held.
func (p *Port) due() mono.Time {
	if p.stuck { // the inner Port's Wait knows when there is room
		return p.rx.hold.due()
	}
	return min(p.tx.hold.due(), p.rx.hold.due())
}

// rearm shortens a Wait in progress that would sleep past the next due packet.
// Called with mu held.
func (p *Port) rearm() {
	if p.sleep != 0 && p.due() < p.sleep {
		p.sleep = 0
		p.inner.Wake()
	}
}

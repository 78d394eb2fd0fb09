// Package fault is an unreliable network: a link.Port around a link.Port that
// loses, duplicates, reorders, delays, corrupts and congestion-marks packets,
// at random with a seed or by exact rules ("drop the first transmission of PSN
// 5"), in both directions.
//
// Held packets are never stuck: one that waits to be overtaken goes on when its
// time is up, Wait returns when one is due, and both Recv and Flush let go what
// is due.
package fault

import (
	"encoding/binary"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/mono"
)

// Counters says what was done to the packets of one direction.
type Counters struct {
	Packets    uint64 // that came by
	Dropped    uint64
	Duplicated uint64
	Reordered  uint64
	Delayed    uint64
	Corrupted  uint64
	Marked     uint64
	Rules      uint64 // of all these, done by a rule
	Overflow   uint64 // not held back because Config.Hold were held already
	Lost       uint64 // still held back when the Port was closed
	Held       int    // held back at the moment
}

// Port is a faulty link.Port. Besides the methods of that interface, all its
// own may be called by anyone at any time.
type Port struct {
	inner link.Port
	info  link.Info
	now   func() mono.Time

	mu     sync.Mutex // guards everything below
	cfg    Config
	tx, rx side
	rules  []*armed
	iters  *iters // nil until a rule needs it

	lent   bool // by the last Begin, and not committed
	path   *frame.Path
	out    link.Frame     // what was lent
	env    frame.Envelope // and its headers, if the kernel writes them
	n      int
	frames []link.Frame // what the inner Recv brought
	given  []*held      // lent to the receiver until the next Recv
	sleep  mono.Time    // when the Wait in progress ends by itself
	stuck  bool         // packets to be sent are due, but the inner Port has no room
	packet bth.Packet
}

// side is the state of one direction.
type side struct {
	dir   Direction
	rates Rates
	rng   *rand.Rand
	hold  holder
	count Counters
}

// Wrap puts a faulty network between inner and its user. The Port owns inner
// from now on: Close closes both.
func Wrap(inner link.Port, c Config) (*Port, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	note := "faults: " + c.String()
	if c.ReorderBy == 0 {
		c.ReorderBy = 3
	}
	if c.ReorderTime == 0 {
		c.ReorderTime = time.Millisecond
	}
	if c.DelayTime == 0 {
		c.DelayTime = time.Millisecond
	}
	if c.Hold == 0 {
		c.Hold = 1024
	}
	p := &Port{inner: inner, info: inner.Info(), now: c.Now, cfg: c}
	if p.now == nil {
		start := time.Now()
		p.now = func() mono.Time { return mono.Time(time.Since(start)) }
	}
	side := func(dir Direction, r Rates) side {
		// Each direction draws from its own stream, so that the traffic of one
		// does not change the faults of the other.
		return side{dir: dir, rates: r, rng: rand.New(rand.NewPCG(c.Seed, uint64(dir))), hold: holder{limit: c.Hold}}
	}
	p.tx, p.rx = side(Tx, c.Tx), side(Rx, c.Rx)
	for _, r := range c.Rules {
		p.addRule(r)
	}
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
	p.tx.rates, p.rx.rates = tx, rx
	return nil
}

// AddRule adds an exact fault after the existing ones.
func (p *Port) AddRule(r Rule) error {
	if err := r.validate(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.addRule(r)
	return nil
}

func (p *Port) addRule(r Rule) {
	p.rules = append(p.rules, &armed{Rule: r})
	if r.Iter != 0 && p.iters == nil {
		p.iters = new(iters)
	}
}

// Counters says what was done so far in each direction.
func (p *Port) Counters() (tx, rx Counters) {
	p.mu.Lock()
	defer p.mu.Unlock()
	snapshot := func(s *side) Counters {
		c := s.count
		c.Held = len(s.hold.reordered) + len(s.hold.timed)
		return c
	}
	return snapshot(&p.tx), snapshot(&p.rx)
}

// Inner returns the Port inside.
func (p *Port) Inner() link.Port { return p.inner }

// Info implements link.Port: that of the inner Port, with a note.
func (p *Port) Info() link.Info { return p.info }

// Stats implements link.Port: that of the inner Port. See Counters.
func (p *Port) Stats() link.Stats { return p.inner.Stats() }

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.inner.OnLink(f) }

// Wake implements link.Port.
func (p *Port) Wake() { p.inner.Wake() }

// Close implements link.Port. What is held back is lost.
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
	p.path, p.n, p.lent = path, n, ok
	return body, crc, ok
}

// Lent implements link.Port.
func (p *Port) Lent() []byte {
	if !p.lent {
		return nil
	}
	return p.inner.Lent()
}

// Commit implements frame.Sink. The fate of the packet is decided here.
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
	v := p.decide(&p.tx, now, &p.out)
	if v.copied != nil {
		v.copied.path, v.copied.n = p.path, p.n
	}
	if v.pass {
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
			// The kernel will write the IP header, perhaps with another
			// Identification than the packet was made for: its ICRC must fit.
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
		if v := p.decide(&p.rx, now, f); v.pass {
			fr[n] = *f
			n++
			p.rx.hold.passed++
		}
		// Leave room for the frames that are still to come: they cannot wait.
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

// due is when the next held packet is. Called with mu held.
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

// verdict is what decide made of a packet.
type verdict struct {
	pass   bool  // it goes on now
	copied *held // the copy that goes later, if any
}

// decide draws the fate of a packet, changes it in place if it is to be
// changed, and holds back a copy if it is to come later or twice. Called with
// mu held.
func (p *Port) decide(s *side, now mono.Time, f *link.Frame) verdict {
	s.count.Packets++
	at := locate(p.info.Layout, f)
	if action, ok := p.match(s.dir, &at); ok {
		if action != Pass {
			s.count.Rules++
		}
		return p.apply(s, now, f, &at, only(action))
	}
	r := &s.rates
	if *r == (Rates{}) {
		return verdict{pass: true}
	}
	hit := func(rate float64) bool { return rate > 0 && s.rng.Float64() < rate }
	return p.apply(s, now, f, &at, fate{
		drop: hit(r.Loss), corrupt: hit(r.Corrupt), mark: hit(r.ECN),
		dup: hit(r.Dup), reorder: hit(r.Reorder), delay: hit(r.Delay),
	})
}

// match asks the rules.
func (p *Port) match(dir Direction, at *place) (Action, bool) {
	if len(p.rules) == 0 || p.packet.Parse(at.body) != nil {
		return 0, false
	}
	iter := 0
	if p.iters != nil {
		iter = p.iters.count(dir, &p.packet)
	}
	for _, r := range p.rules {
		if r.fires(dir, at, &p.packet, iter) {
			return r.Action, true
		}
	}
	return 0, false
}

// fate is the set of faults a packet suffers.
type fate struct{ drop, corrupt, mark, dup, reorder, delay bool }

// only is the fate a rule's action means.
func only(a Action) fate {
	return fate{
		drop: a == Drop, corrupt: a == Corrupt, mark: a == ECN,
		dup: a == Dup, reorder: a == Reorder, delay: a == Delay,
	}
}

// apply does to a packet what its fate says. Called with mu held.
func (p *Port) apply(s *side, now mono.Time, fr *link.Frame, at *place, f fate) verdict {
	if f.drop {
		s.count.Dropped++
		return verdict{}
	}
	if f.corrupt {
		body := at.body
		if len(body) == 0 {
			body = fr.Data // not RoCE: any bit will do
		}
		if len(body) > 0 {
			bit := s.rng.IntN(8 * len(body))
			body[bit/8] ^= 1 << (bit % 8)
			s.count.Corrupted++
		}
	}
	mark := f.mark && at.markable(s.dir)
	if mark {
		s.count.Marked++
		markCE(at.ip)
	}
	v := verdict{pass: true}
	hold := func(due mono.Time, after uint64) *held {
		h := s.hold.put(fr, due, after)
		if h == nil {
			s.count.Overflow++
		} else {
			h.raw = f.corrupt
			if mark && h.frame.Env != nil {
				h.env.TrafficClass |= 3
			}
		}
		return h
	}
	switch {
	case f.delay:
		due := now.Add(p.cfg.DelayTime)
		if j := p.cfg.DelayJitter; j > 0 {
			due = due.Add(time.Duration(s.rng.Int64N(int64(j) + 1)))
		}
		if v.copied = hold(due, noCount); v.copied != nil {
			v.pass = false
			s.count.Delayed++
		}
	case f.reorder:
		if v.copied = hold(now.Add(p.cfg.ReorderTime), s.hold.passed+uint64(p.cfg.ReorderBy)); v.copied != nil {
			v.pass = false
			s.count.Reordered++
		}
	case f.dup:
		if v.copied = hold(now, noCount); v.copied != nil {
			s.count.Duplicated++
		}
	case mark && at.env != nil:
		// Its neighbours share the headers: a copy of its own comes instead, at
		// once.
		v.copied = hold(now, noCount)
		v.pass = v.copied == nil
	}
	return v
}

// place is where things are in a frame, nil where there is none: an IP header
// or what is known of it, and BTH..ICRC.
type place struct {
	ip, body []byte
	env      *frame.Envelope
}

// markable reports whether there is something to mark. The kernel writes the
// headers of what is sent with an envelope.
func (p *place) markable(dir Direction) bool { return p.ip != nil || p.env != nil && dir == Rx }

// locate finds the places.
func locate(layout frame.Layout, f *link.Frame) (p place) {
	if f.Env != nil || layout == frame.LayoutUDP {
		return place{body: f.Data, env: f.Env}
	}
	p.ip, p.body = dissect(layout, f.Data)
	return p
}

// dissect finds the IP header and BTH..ICRC in a frame. It checks no more than
// it needs to stay inside the frame.
func dissect(layout frame.Layout, data []byte) (ip, body []byte) {
	if layout == frame.LayoutEthernet {
		if len(data) < 14 {
			return nil, nil
		}
		at := 14
		if t := binary.BigEndian.Uint16(data[12:]); t == 0x8100 || t == 0x88A8 {
			at = 18
		}
		if len(data) < at {
			return nil, nil
		}
		data = data[at:]
	}
	if len(data) < 20 {
		return nil, nil
	}
	header := 40
	next := data[6]
	if data[0]>>4 == 4 {
		header, next = int(data[0]&0xF)*4, data[9]
	}
	if header < 20 || len(data) < header+8 || next != 17 {
		return nil, nil
	}
	ip = data[:header]
	udp := data[header:]
	length := int(binary.BigEndian.Uint16(udp[4:]))
	if length < 8 || length > len(udp) || binary.BigEndian.Uint16(udp[2:]) != bth.UDPPort {
		return ip, nil
	}
	return ip, udp[8:length]
}

// markCE sets the ECN field of an IP header to Congestion Experienced, and
// mends the IPv4 checksum (RFC 1624).
func markCE(ip []byte) {
	switch {
	case len(ip) >= 20 && ip[0]>>4 == 4:
		old := binary.BigEndian.Uint16(ip)
		ip[1] |= 3
		sum := uint32(^binary.BigEndian.Uint16(ip[10:])) + uint32(^old) + uint32(binary.BigEndian.Uint16(ip))
		sum = sum&0xFFFF + sum>>16
		sum = sum&0xFFFF + sum>>16
		binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	case len(ip) >= 40 && ip[0]>>4 == 6:
		ip[1] |= 3 << 4
	}
}

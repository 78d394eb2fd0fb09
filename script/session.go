package script

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
)

// Options say how a script is played.
type Options struct {
	Peer    Peer
	Port    uint16        // port of the peer's service, or with "accept" of the script's own service; 0: the port in the script, or the program's default
	TCP     netip.Addr    // address of the TCP connection for "connect oob" and "accept oob"; invalid: the address of the peer, or for "accept oob" of the script
	Target  Target        // for "connect verbs"
	Timeout time.Duration // how long the session waits for an expected packet; 0: 10 s
	Way     Way
	Free    bool // accept any outcome; Result.Outcome then has equal parts once
	Silence bool // move the queue pairs of the target to ERR in the end, because other scripts use the device, too

	// Listening is called when the peer can connect ("accept").
	Listening func(netip.AddrPort)
}

// Heard is a packet from the peer.
type Heard struct {
	frame.Packet
	MAD  cm.Message // the message in a packet to queue pair 1; nil: it is another packet
	ICRC bool       // its ICRC is right

	at time.Time
}

// Session plays a script statement by statement.
type Session struct {
	ctx   context.Context
	wire  *Wire
	opts  Options
	begun time.Time

	own    bth.QPN // the script's queue pair
	qpn    bth.QPN // the peer's queue pair
	first  bth.PSN // the PSN of the script's first request
	next   bth.PSN // the PSN of the script's next request
	theirs bth.PSN // the PSN of the peer's first request
	latest bth.PSN // the last PSN of the peer's latest request
	msn    bth.MSN
	mtu    int
	qkey   bth.QKey
	ctl    *controlled
	conn   connection
	step   *Step

	outcome     string // of the latest outcome statement
	peerProgram string // the program that the peer runs

	numbers   map[string]uint64
	packets   map[string]*Heard
	sentAt    time.Time // when the last packet was sent
	requested int       // how many requests of the peer have come
	flooded   bool      // the peer has sent more than maxHeard packets that were not expected

	data    []*Heard // packets to the queue pair that no statement has expected yet
	mads    []*Heard // messages of the connection manager that no statement has expected yet
	events  []Event
	closers []func() error
}

// NewSession begins a session on a wire. When ctx is done, the session stops waiting and fails.
func NewSession(ctx context.Context, w *Wire, o Options) *Session {
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Listening == nil {
		o.Listening = func(netip.AddrPort) {}
	}
	return &Session{ctx: ctx, wire: w, opts: o, begun: time.Now(), numbers: map[string]uint64{}, packets: map[string]*Heard{}, qkey: targetQKey, mtu: pathMTU, msn: 1}
}

// Do executes statements of a script. Errors are of type *[Error]; their line is counted in text.
func (s *Session) Do(text string) error {
	lines, err := lex("statement", text)
	if err != nil {
		return err
	}
	p := &parser{lines: lines, s: &Script{}, tr: s.conn.tr, connected: s.conn.made, vars: newVars()}
	for n := range s.numbers {
		p.vars.number(n)
	}
	for n := range s.packets {
		p.vars.packet(n, nil)
	}
	steps, err := p.block(nil)
	if err != nil {
		return err
	}
	return s.play(steps)
}

// Send sends a packet: "SEND_ONLY psn=+1 ackreq len=100".
func (s *Session) Send(packet string) error { return s.Do("send " + packet) }

// Expect waits for a packet like "NAK_SEQUENCE psn=+0" and returns it.
func (s *Session) Expect(packet string) (*Heard, error) {
	if err := s.Do("expect " + packet + " as latest"); err != nil {
		return nil, err
	}
	return s.packets["latest"], nil
}

// Var returns a number that the script has captured or set, like "mem.rkey" or "r.psn".
func (s *Session) Var(name string) (uint64, error) {
	if v, ok := s.numbers[name]; ok {
		return v, nil
	}
	switch name {
	case "peer.qpn":
		return uint64(s.qpn), nil
	case "peer.psn":
		return uint64(s.theirs), nil
	case "peer.next":
		return uint64(s.latest.Add(1)), nil
	case "own.qpn":
		return uint64(s.own), nil
	case "own.psn":
		return uint64(s.first), nil
	case "own.next":
		return uint64(s.next), nil
	}
	base, of, _ := strings.Cut(name, ".")
	h, ok := s.packets[base]
	switch {
	case !ok && strings.HasPrefix(name, "mem."):
		return 0, fmt.Errorf("the peer has not told of memory: give it by set %s=…", name)
	case !ok:
		return 0, fmt.Errorf("$%s has no value", name)
	case of == "":
		return 0, fmt.Errorf("$%s is a packet: want one of its fields, like $%s.psn", name, name)
	}
	v, err := h.field(of)
	if err != nil {
		return 0, fmt.Errorf("$%s: %w", name, err)
	}
	return v, nil
}

// field reads a field of a packet.
func (h *Heard) field(name string) (uint64, error) {
	if h.MAD != nil {
		if v, ok := getMAD(h.MAD, name); ok {
			return v, nil
		}
		return 0, fmt.Errorf("%v has no field %q", h.MAD.Attribute(), name)
	}
	if v, ok := payloadField(&h.Packet, name); ok {
		return v, nil
	}
	if f := fieldOf(name); f != nil && f.get != nil && f.has(&h.Packet) {
		return f.get(&h.Packet), nil
	}
	return 0, fmt.Errorf("%s of %d bytes has no field %q", h.Info.Name, h.PayloadLen(), name)
}

func (s *Session) eval(e *expr) (uint64, error) { return e.eval(s.Var) }

// until receives packets until done returns true, but at most for d. It is not an error if d passes.
func (s *Session) until(d time.Duration, done func() bool) error {
	for deadline := time.Now().Add(d); ; {
		left := time.Until(deadline)
		if done() || left <= 0 {
			return nil
		}
		if err := context.Cause(s.ctx); err != nil {
			return err
		}
		if err := s.wire.receive(min(left, 100*time.Millisecond), s.heard); err != nil {
			return err
		}
		if s.flooded {
			return fmt.Errorf("the peer has sent %d packets that no line of the script has expected: forget drops them", maxHeard)
		}
	}
}

// maxHeard bounds the packets of the peer that are kept until a statement expects them. The script fails if the peer sends more: a
// packet that is not kept could be one that a later statement forbids.
const maxHeard = 100_000

// heard handles a packet that has arrived: it keeps it for the statements that expect packets, and records it for the ladder.
func (s *Session) heard(p *frame.Packet, icrc bool) {
	switch q := p.DestQPN(); {
	case s.ctl != nil && q == s.ctl.canaryOwn:
		s.ctl.alive = true
	case len(s.data)+len(s.mads) >= maxHeard:
		s.flooded = true
	case q == bth.QPNGSI:
		h := s.keep(p, icrc)
		m, err := cm.DecodeMAD(h.Payload())
		if err != nil {
			s.log(h, "no message of the connection manager: "+err.Error())
			return
		}
		h.MAD = m
		if !s.ofPeer(h) { // a client on another host is not the one that the script waits for
			s.log(h, h.stranger())
			return
		}
		s.mads = append(s.mads, h)
		s.log(h, "")
	case s.own != 0 && q == s.own:
		h := s.keep(p, icrc)
		if p.Info.Flags&bth.Request != 0 {
			s.requested++
			s.latest = p.PSN()
			if p.Op == bth.RCReadRequest && s.mtu > 0 {
				s.latest = s.latest.Add(max(int(p.DMALen())+s.mtu-1, s.mtu)/s.mtu - 1)
			}
		} else if s.ctl != nil {
			answer := s.describe(p)
			switch {
			case !icrc:
				answer += " (its ICRC is wrong)"
			case !s.ofPeer(h):
				answer += " (" + h.stranger() + ")"
			}
			s.ctl.answers = append(s.ctl.answers, answer)
		}
		s.data = append(s.data, h)
		s.log(h, "")
	}
}

// ofPeer reports whether a packet comes from the address of the peer.
func (s *Session) ofPeer(h *Heard) bool { return h.Src == s.wire.Peer }

// stranger returns the source of a packet that did not come from the peer, as a text for errors.
func (h *Heard) stranger() string { return fmt.Sprintf("it comes from %v", h.Src.Addr().Unmap()) }

// keep copies a packet out of the driver's memory.
func (s *Session) keep(p *frame.Packet, icrc bool) *Heard {
	h := &Heard{ICRC: icrc, at: time.Now()}
	data := append([]byte(nil), p.Data...)
	h.Packet = frame.Packet{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit}
	h.Packet.Packet.Parse(data) // has succeeded before
	return h
}

// Close ends a connection of the connection manager with a DREQ, and releases all resources. It returns the first error.
func (s *Session) Close() (err error) {
	for i := len(s.closers) - 1; i >= 0; i-- {
		if cerr := s.closers[i](); err == nil {
			err = cerr
		}
	}
	s.closers = nil
	return err
}

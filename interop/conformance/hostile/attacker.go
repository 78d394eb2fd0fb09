package hostile

import (
	"errors"
	"fmt"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Attacker sends frames through a port and sees the answers.
type Attacker struct {
	Port   link.Port
	Own    bth.GID
	Target bth.GID
	MAC    frame.MAC // of the target
	// Quiet is how long nothing must come before the target is believed to have
	// said all it has to say.
	Quiet time.Duration

	// Way is how packets are sent. The zero Way: one by one, from the peer's address.
	Way Way

	frames []link.Frame
	qpns   bth.QPN // the last one made up
	sent   int     // packets that a target must have counted
}

// Close releases the port.
func (a *Attacker) Close() error { return a.Port.Close() }

// packet is a packet to be sent. Zero fields are what a well-behaved peer sends.
type packet struct {
	op   bth.Opcode
	psn  int // relative to the next one that is expected
	ack  bool
	ext  []byte // extended headers
	data int    // bytes of payload, a pattern
	text []byte // payload instead

	pad      int // number in the header and of bytes, if fakePad
	fakePad  bool
	pkey     bth.PKey
	tver     byte
	reserved bool // all reserved bits set
	mig      bool
	qpn      *bth.QPN
	src, dst *bth.GID
	badICRC  bool
	badSum   bool // a UDP checksum that is wrong
	cut      int  // only so many bytes from the BTH on, and an ICRC
	sport    uint16
	ttl      uint8
	tos      uint8
}

// body builds BTH to payload.
func (p *packet) body(qpn bth.QPN, psn bth.PSN) []byte {
	payload := p.text
	if payload == nil {
		payload = pattern(p.data)
	}
	pad := bth.Pad(len(payload))
	if p.fakePad {
		pad = p.pad
	}
	if p.qpn != nil {
		qpn = *p.qpn
	}
	key := p.pkey
	if key == 0 {
		key = bth.DefaultPKey
	}
	var flags bth.BTHFlags
	if p.ack {
		flags |= bth.AckReq
	}
	if p.mig {
		flags |= bth.MigReq
	}
	b := make([]byte, bth.BTHLen, bth.BTHLen+len(p.ext)+len(payload)+pad)
	bth.PutBTH(b, p.op, flags, pad, key, qpn, psn.Add(p.psn))
	b[1] |= p.tver
	if p.reserved {
		b[4], b[8] = 0x3F, b[8]|0x7F
	}
	b = append(b, p.ext...)
	b = append(b, payload...)
	return append(b, make([]byte, pad)...)
}

// send sends a packet to a queue pair.
func (a *Attacker) send(p packet, qpn bth.QPN, psn bth.PSN) {
	a.queue(p, a.Way.Origin, qpn, psn)
	must(a.Port.Flush())
}

// queue queues a packet to a queue pair, for the next Flush. What goes to one queue pair
// from one address leaves as one super-packet, where the port makes them. That has a
// right UDP checksum always: a packet with a wrong one leaves alone.
func (a *Attacker) queue(p packet, from Origin, qpn bth.QPN, psn bth.PSN) {
	if p.badSum {
		must(a.Port.Flush())
		defer func() { must(a.Port.Flush()) }()
	}
	body := p.body(qpn, psn)
	if p.cut > 0 {
		body = body[:min(p.cut, len(body))]
	}
	path := must1(frame.NewPath(a.path(&p, from)))
	n := len(body) + bth.ICRCLen
	room, crc, ok := a.Port.Begin(path, n)
	for !ok {
		must(a.Port.Flush())
		must(a.Port.Wait(time.Second))
		room, crc, ok = a.Port.Begin(path, n)
	}
	copy(room, body)
	at := len(body)
	sum := crc
	if at >= bth.BTHLen {
		sum = crc.UpdateBTH(room[:bth.BTHLen]).Update(room[bth.BTHLen:at])
	} else {
		sum = crc.Update(room[:at])
	}
	bth.PutICRC(room[at:], sum)
	if p.badICRC {
		room[at] ^= 0x80
	}
	if p.badSum {
		f := a.Port.Lent()
		udp := len(f) - n - 8
		f[udp+6], f[udp+7] = 0x12, 0x34
	}
	a.Port.Commit()
	if !p.badSum && p.dst == nil && from != Peer { // what the target's kernel may drop is not counted
		a.sent++
	}
}

// path is the way of a packet.
func (a *Attacker) path(p *packet, from Origin) frame.PathConfig {
	c := frame.PathConfig{Src: a.Own, Dst: a.Target, SrcMAC: a.Port.Info().MAC, DstMAC: a.MAC, SrcPort: 0xC123, HopLimit: 64, TrafficClass: p.tos}
	switch from {
	case Stranger:
		c.Src, c.SrcMAC = *stranger(a.Own), strangerMAC
	case Routed:
		c.Src, c.HopLimit = routed, 63
	}
	if p.src != nil {
		c.Src = *p.src
	}
	if p.dst != nil {
		c.Dst = *p.dst
	}
	if p.sport != 0 {
		c.SrcPort = p.sport
	}
	if p.ttl != 0 {
		c.HopLimit = p.ttl
	}
	return c
}

// receive hands every packet that has arrived to f, waiting up to d for the first.
func (a *Attacker) receive(d time.Duration, f func(p *frame.Packet)) {
	if a.frames == nil {
		a.frames = make([]link.Frame, 64)
	}
	for deadline := time.Now().Add(d); ; {
		n, err := a.Port.Recv(a.frames)
		if err != nil && !errors.Is(err, link.ErrDown) {
			must(fmt.Errorf("receiving: %w", err))
		}
		for _, fr := range a.frames[:n] {
			var p frame.Packet
			if fr.Parse(&p, a.Port.Info().Layout) == nil && p.CheckICRC() {
				f(&p)
			}
		}
		left := time.Until(deadline)
		if n > 0 || left <= 0 {
			return
		}
		must(a.Port.Wait(left))
	}
}

// pattern is the payload of n bytes.
func pattern(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(0xA0 + i)
	}
	return b
}

// Extended headers.
func reth(va uint64, key bth.RKey, n uint32) []byte {
	return header(bth.RETHLen, func(b []byte) { bth.PutRETH(b, va, key, n) })
}

func atomicETH(va uint64, key bth.RKey, swapAdd, compare uint64) []byte {
	return header(bth.AtomicETHLen, func(b []byte) { bth.PutAtomicETH(b, va, key, swapAdd, compare) })
}

func aeth(s bth.Syndrome, msn bth.MSN) []byte {
	return header(bth.AETHLen, func(b []byte) { bth.PutAETH(b, s, msn) })
}

func atomicAck(v uint64) []byte {
	return header(bth.AtomicAckETHLen, func(b []byte) { bth.PutAtomicAckETH(b, v) })
}

func deth(key bth.QKey, src bth.QPN) []byte {
	return header(bth.DETHLen, func(b []byte) { bth.PutDETH(b, key, src) })
}

func imm(v uint32) []byte { return header(bth.ImmLen, func(b []byte) { bth.PutImm(b, v) }) }

func ieth(key bth.RKey) []byte { return header(bth.IETHLen, func(b []byte) { bth.PutIETH(b, key) }) }

func header(n int, put func([]byte)) []byte {
	b := make([]byte, n)
	put(b)
	return b
}

func feth(t bth.FlushType, s bth.FlushSelectivity) []byte {
	return header(bth.FETHLen, func(b []byte) { bth.PutFETH(b, t, s) })
}

//go:build linux

// Package blast measures the upper bound of each link with packets without a protocol. A blast sends packets as fast as
// it can, and a sink receives them. Both ends do only what every RoCE stack must do: they copy the payload and compute
// the CRC. There are no acknowledgements; the measurement counts the packets that arrive. A ping-pong sends one small
// packet there and back.
package blast

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bth"
)

// overhead is the size of a packet's BTH and ICRC.
const overhead = bth.BTHLen + bth.ICRCLen

// area is the size of the memory that payloads use in turn, at either end, as a large message does.
const area = 1 << 20

// source builds packets from memory.
type source struct {
	memory []byte
	size   int
	at     int
	seq    uint32
}

func newSource(size int) *source {
	s := &source{memory: make([]byte, area), size: size}
	for i := range s.memory {
		s.memory[i] = byte(i * 7)
	}
	return s
}

// put builds a packet that fills b: a header with a number, the payload and the CRC.
func (s *source) put(b []byte) {
	if s.at+s.size > len(s.memory) {
		s.at = 0
	}
	s.seq++
	clear(b[:bth.BTHLen])
	binary.BigEndian.PutUint32(b[8:], s.seq)
	c := bth.CRCSeed.UpdateBTH(b).Copy(b[bth.BTHLen:], s.memory[s.at:s.at+s.size])
	bth.PutICRC(b[bth.BTHLen+s.size:], c)
	s.at += s.size
}

// sink checks packets, copies their payload to memory and measures.
type sink struct {
	memory     []byte
	size       int
	at         int
	packets    uint64
	bad        uint64
	spec       harness.Spec
	began      time.Time
	start, end time.Time
	first      uint64
	measure    harness.Measure
}

func newSink(s harness.Spec) *sink { return &sink{memory: make([]byte, area), size: s.Size, spec: s} }

// packet checks a packet and copies its payload.
func (s *sink) packet(b []byte) { s.pieces(b, nil) }

// pieces is packet for a packet in two pieces: the first has the header, the last the CRC.
func (s *sink) pieces(b, rest []byte) {
	last := b
	if len(rest) > 0 {
		last = rest
	}
	if len(b)+len(rest) != s.size+overhead || len(last) < bth.ICRCLen || len(b) < bth.BTHLen {
		s.bad++
		return
	}
	if s.at+s.size > len(s.memory) {
		s.at = 0
	}
	sum := binary.LittleEndian.Uint32(last[len(last)-bth.ICRCLen:])
	c := bth.CRCSeed.UpdateBTH(b)
	b = b[bth.BTHLen:]
	if len(rest) == 0 {
		b = b[:len(b)-bth.ICRCLen]
	} else {
		rest = rest[:len(rest)-bth.ICRCLen]
	}
	c = c.Copy(s.memory[s.at:], b).Copy(s.memory[s.at+len(b):], rest)
	if c.Sum() != sum {
		s.bad++
		return
	}
	s.at += s.size
	s.packets++
}

var errBad = errors.New("wrong packets arrive")

// batch ends a batch of packets. It returns over if the measurement is complete.
func (s *sink) batch() (over bool, err error) {
	if s.bad > 0 {
		return false, errBad
	}
	now := time.Now()
	switch {
	case s.packets == 0:
	case s.start.IsZero():
		s.start = now.Add(s.spec.Warmup)
	case s.began.IsZero():
		if now.After(s.start) {
			s.began, s.first, s.end = now, s.packets, now.Add(s.spec.Duration)
		}
	case now.After(s.end):
		n := s.packets - s.first
		s.measure = harness.Measure{Seconds: now.Sub(s.began).Seconds(), Messages: n, Packets: n, Bytes: n * uint64(s.size)}
		return true, nil
	}
	return false, nil
}

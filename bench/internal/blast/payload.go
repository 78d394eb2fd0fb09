//go:build linux

// Package blast is the ceiling: programs without a protocol, on the same links. A
// blaster sends packets as fast as it can and a sink takes what arrives; both do what
// every RoCE stack must do at least, which is to copy the payload and to compute the
// CRC. Nothing is acknowledged; what counts is what arrives. A ping-pong sends one
// small packet there and back.
package blast

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/goroce/roce/bench/internal/trial"
	"github.com/goroce/roce/bth"
)

// overhead is what a packet has besides its payload: BTH and ICRC.
const overhead = bth.BTHLen + bth.ICRCLen

// area is the memory that payloads go round in, at either end, like a large message.
const area = 1 << 20

// source is the memory payloads come from.
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

// put builds a packet in b, which has its size: a header with a number, the payload,
// the CRC.
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

// sink is the memory payloads go to, and the measurement.
type sink struct {
	memory     []byte
	size       int
	at         int
	packets    uint64
	bad        uint64
	spec       trial.Spec
	began      time.Time
	start, end time.Time
	first      uint64
	measure    trial.Measure
}

func newSink(s trial.Spec) *sink { return &sink{memory: make([]byte, area), size: s.Size, spec: s} }

// take checks a packet and takes its payload.
func (s *sink) take(b []byte) { s.takePieces(b, nil) }

// takePieces is take of a packet in two pieces. The first has the header, and the last
// the whole CRC.
func (s *sink) takePieces(b, rest []byte) {
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

// errBad is a packet that is not as it was sent.
var errBad = errors.New("wrong packets arrive")

// batch ends a batch of packets: it reports whether everything is measured.
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
		s.measure = trial.Measure{Seconds: now.Sub(s.began).Seconds(), Messages: n, Packets: n, Bytes: n * uint64(s.size)}
		return true, nil
	}
	return false, nil
}

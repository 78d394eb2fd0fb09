package perftest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"regexp"
	"strconv"

	"github.com/goroce/roce/bth"
)

// Version is the version told to the peer, that of Debian 12's perftest.
const Version = "6.06"

const (
	versionLen   = 16   // struct perftest_parameters.version
	minVersion   = 5.70 // perftest turns older ones away; so old ones know this exchange, too
	cycleBuffer  = 4096
	cacheLine    = 64
	maxCycle     = 1 << 24 // of the peer's; perftest takes any, but memory goes with it
	maxCacheLine = 4096
	done         = "done\x00"
)

// session is the exchange of one end with its peer.
type session struct {
	io.ReadWriter
	server bool
	flags  flags // what the peer's are compared with; empty: nothing is told of them
	binary bool  // addresses are not text, and no end says goodbye: not over TCP
}

// terms are what the two ends have agreed upon.
type terms struct {
	cycle int // bytes of the buffer that small messages go round in
	line  int // what they are apart in it, if smaller
	mtu   bth.MTU
}

// swap tells the peer mine and hears theirs; the client talks first.
func (s *session) swap(what string, mine, theirs []byte) error {
	steps := [2]func() error{
		func() error { return s.tell(what, mine) },
		func() error { return s.hear(what, theirs) },
	}
	first := 0
	if s.server {
		first = 1
	}
	for i := range steps {
		if err := steps[i^first](); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) tell(what string, b []byte) error {
	if _, err := s.Write(b); err != nil {
		return fmt.Errorf("perftest: tell the peer %s: %w", what, err)
	}
	return nil
}

func (s *session) hear(what string, b []byte) error {
	if _, err := io.ReadFull(s, b); err != nil {
		return fmt.Errorf("perftest: hear the peer's %s: %w", what, err)
	}
	return nil
}

// negotiate is what comes before the queue pairs. mtu is the own path MTU.
func (s *session) negotiate(mtu bth.MTU) (t terms, err error) {
	var mine, theirs [versionLen]byte
	s.flags.append(append(append(mine[:0], Version...), 0))
	if err := s.swap("version", mine[:], theirs[:]); err != nil {
		return t, err
	}
	if err := checkVersion(theirs[:]); err != nil {
		return t, err
	}
	if err := s.flags.agree(parseFlags(theirs[versionLen-flagsLen:])); err != nil {
		return t, err
	}
	if t.cycle, err = s.larger("cycle buffer", cycleBuffer, maxCycle); err != nil {
		return t, err
	}
	if t.line, err = s.larger("cache line", cacheLine, maxCacheLine); err != nil {
		return t, err
	}
	var m [2]byte
	if err := s.swap("MTU", []byte{'0' + byte(mtu), 0}, m[:]); err != nil {
		return t, err
	}
	t.mtu = bth.MTU(m[0] - '0')
	if !t.mtu.Valid() || m[1] != 0 {
		return t, fmt.Errorf("perftest: the peer's MTU is %q: want 1 (256) to 5 (4096)", m)
	}
	t.mtu = min(t.mtu, mtu)
	return t, nil
}

var versionSyntax = regexp.MustCompile(`^\d{1,4}\.\d{1,4}`)

// checkVersion judges the peer's version the way perftest does: as a decimal
// fraction.
func checkVersion(b []byte) error {
	b, _, _ = bytes.Cut(b, []byte{0})
	v, err := strconv.ParseFloat(string(versionSyntax.Find(b)), 64)
	switch {
	case err != nil:
		return fmt.Errorf("perftest: the peer's version is %q: want a number like %s; is it perftest?", b, Version)
	case v < minVersion:
		return fmt.Errorf("perftest: the peer is version %s: want %.2f or later", b, minVersion)
	}
	return nil
}

// larger agrees upon a number: the larger counts.
func (s *session) larger(what string, own, limit int) (int, error) {
	var mine, theirs [4]byte
	binary.BigEndian.PutUint32(mine[:], uint32(own))
	if err := s.swap(what, mine[:], theirs[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(theirs[:])
	if n > uint32(limit) {
		return 0, fmt.Errorf("perftest: the peer's %s is %d bytes: at most %d make sense", what, n, limit)
	}
	return max(own, int(n)), nil
}

// handshake swaps addresses.
func (s *session) handshake(d Dest) (Dest, error) {
	if s.binary {
		var theirs [BinaryLen]byte
		if err := s.swap("address", d.AppendBinary(nil), theirs[:]); err != nil {
			return Dest{}, err
		}
		return ParseBinary(theirs[:])
	}
	var theirs [DestLen]byte
	if err := s.swap("address", d.Append(nil), theirs[:]); err != nil {
		return Dest{}, err
	}
	return ParseDest(theirs[:])
}

// report swaps what the ends have measured, a number at a time.
func (s *session) report(r Report) (theirs Report, err error) {
	var words [5]uint64
	for i, v := range [5]uint64{uint64(r.Size), uint64(r.Iters), math.Float64bits(r.Peak), math.Float64bits(r.Average), math.Float64bits(r.MsgRate)} {
		var b [8]byte
		if err := s.swap("report", binary.BigEndian.AppendUint64(nil, v), b[:]); err != nil {
			return theirs, err
		}
		words[i] = binary.BigEndian.Uint64(b[:])
	}
	return Report{Size: int(words[0]), Iters: int(words[1]), Peak: math.Float64frombits(words[2]),
		Average: math.Float64frombits(words[3]), MsgRate: math.Float64frombits(words[4])}, nil
}

// finish ends the session. The peer may be gone by the time its own "done" is read;
// it is read so that closing does not reset the connection under the peer's write.
func (s *session) finish(d Dest) error {
	if _, err := s.handshake(d); err != nil || s.binary {
		return err
	}
	if err := s.tell("the end", []byte(done)); err != nil {
		return err
	}
	var b [len(done)]byte
	io.ReadFull(s, b[:])
	return nil
}

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
	"github.com/goroce/roce/internal/tools/oob"
)

// Version is the version that is sent to the peer, that of Debian 12's perftest.
const Version = "6.06"

const (
	versionLen   = 16   // struct perftest_parameters.version
	minVersion   = 5.70 // the oldest that perftest accepts
	cycleBuffer  = 4096
	cacheLine    = 64
	maxCycle     = 1 << 24 // largest buffer that the peer may ask for, because it is allocated here; perftest has no limit
	maxCacheLine = 4096
	done         = "done\x00"
)

// session is the exchange of one end with its peer.
type session struct {
	io.ReadWriter
	server bool
	flags  flags // they are compared with those of the peer; empty: this end sends no flags
	binary bool  // the session is not over TCP: addresses are binary, and the ends do not write "done"
}

// terms are the result of the negotiation.
type terms struct {
	cycle int // bytes of the buffer through which messages cycle
	line  int // least distance of two messages in the buffer
	mtu   bth.MTU
}

// swap sends mine to the peer and receives theirs. The client sends first.
func (s *session) swap(what string, mine, theirs []byte) error {
	return oob.InOrder(!s.server, func() error { return s.send(what, mine) }, func() error {
		if _, err := io.ReadFull(s, theirs); err != nil {
			return fmt.Errorf("perftest: receive the peer's %s: %w", what, oob.HungUp(err))
		}
		return nil
	})
}

func (s *session) send(what string, b []byte) error {
	if _, err := s.Write(b); err != nil {
		return fmt.Errorf("perftest: send the %s to the peer: %w", what, err)
	}
	return nil
}

// negotiate does the steps before the queue pairs are created. mtu is the path MTU of this end.
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

// checkVersion compares the peer's version as perftest does: as a decimal fraction.
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

// larger swaps a number and returns the larger one.
func (s *session) larger(what string, own, limit int) (int, error) {
	var mine, theirs [4]byte
	binary.BigEndian.PutUint32(mine[:], uint32(own))
	if err := s.swap(what, mine[:], theirs[:]); err != nil {
		return 0, err
	}
	n := binary.BigEndian.Uint32(theirs[:])
	if n > uint32(limit) {
		return 0, fmt.Errorf("perftest: the peer's %s is %d bytes: want at most %d", what, n, limit)
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

// report swaps the measurements of both ends, number by number, and returns the peer's.
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

// finish ends the session. It reads the peer's "done", so that Close does not reset the
// connection before the peer has written it. It ignores errors of this read, because the peer may have closed the connection already.
func (s *session) finish(d Dest) error {
	if _, err := s.handshake(d); err != nil || s.binary {
		return err
	}
	if err := s.send("end", []byte(done)); err != nil {
		return err
	}
	var b [len(done)]byte
	io.ReadFull(s, b[:])
	return nil
}

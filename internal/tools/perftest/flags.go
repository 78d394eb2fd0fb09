package perftest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/roce/qp"
)

// flags are those parameters that must be the same at both ends. An end tells them
// behind its version, where perftest has zeros and reads nothing.
type flags struct {
	test    string // empty: the peer tells no flags, as perftest
	service qp.Type
	size    int // 0: all sizes
	iters   int // 0: a duration
	qps     int
	both    bool
}

// flagsLen is the room behind the version and its NUL.
const (
	flagsLen   = versionLen - len(Version) - 1
	flagsMagic = 'R'
)

// flags are those of this end.
func (c *Config) flags() flags {
	if c.silent {
		return flags{}
	}
	f := flags{test: c.Test.Name, service: c.Service, size: c.Size, iters: c.Iters, qps: c.QPs, both: c.Both}
	if c.All {
		f.size = 0
	}
	if c.Duration > 0 {
		f.iters = 0
	}
	return f
}

var flagServices = []qp.Type{qp.RC, qp.UC, qp.UD}

// testIndex is the number of a test on the wire, -1 if there is none of the name.
func testIndex(name string) int {
	return slices.IndexFunc(Tests, func(t Test) bool { return t.Name == name })
}

// append appends the flags: a letter, the size in 24 bits, the messages in 32, the queue
// pairs in 16, and test, service and direction in 8.
func (f flags) append(b []byte) []byte {
	test := testIndex(f.test)
	if test < 0 {
		return append(b, make([]byte, flagsLen)...)
	}
	b = binary.BigEndian.AppendUint32(b, flagsMagic<<24|uint32(f.size))
	b = binary.BigEndian.AppendUint32(b, uint32(f.iters))
	b = binary.BigEndian.AppendUint16(b, uint16(f.qps))
	last := byte(test<<3 | slices.Index(flagServices, f.service)<<1)
	if f.both {
		last |= 1
	}
	return append(b, last)
}

// parseFlags reads the flags of the peer. They are empty if it tells none.
func parseFlags(b []byte) (f flags) {
	if len(b) != flagsLen || b[0] != flagsMagic {
		return f
	}
	test, service := int(b[10]>>3), int(b[10]>>1&3)
	if test >= len(Tests) || service >= len(flagServices) {
		return f
	}
	return flags{test: Tests[test].Name, service: flagServices[service], both: b[10]&1 != 0,
		size: int(binary.BigEndian.Uint32(b) & (1<<24 - 1)), iters: int(binary.BigEndian.Uint32(b[4:])), qps: int(binary.BigEndian.Uint16(b[8:]))}
}

// agree compares the flags of both ends. The error says which flags to change.
func (f flags) agree(peer flags) error {
	if f.test == "" || peer.test == "" {
		return nil
	}
	if f.test != peer.test {
		return fmt.Errorf("perftest: the peer runs %s, this end %s: run the same at both ends", peer.test, f.test)
	}
	var mine, theirs []string
	compare := func(same bool, own, other string) {
		if !same {
			mine, theirs = append(mine, own), append(theirs, other)
		}
	}
	size := func(n int) string {
		if n == 0 {
			return "-a"
		}
		return fmt.Sprintf("-s %d", n)
	}
	iters := func(n int) string {
		if n == 0 {
			return "-D"
		}
		return fmt.Sprintf("-n %d", n)
	}
	both := func(b bool) string {
		if b {
			return "-b"
		}
		return "no -b"
	}
	compare(f.service == peer.service, "-c "+f.service.String(), "-c "+peer.service.String())
	compare(f.size == peer.size, size(f.size), size(peer.size))
	compare(f.qps == peer.qps, fmt.Sprintf("-q %d", f.qps), fmt.Sprintf("-q %d", peer.qps))
	compare(f.both == peer.both, both(f.both), both(peer.both))
	compare(f.iters == peer.iters || !f.counted() && !peer.counted(), iters(f.iters), iters(peer.iters))
	if len(mine) == 0 {
		return nil
	}
	return fmt.Errorf("perftest: the peer has %s, this end has %s: give both ends the same flags", strings.Join(theirs, " "), strings.Join(mine, " "))
}

// counted tells whether an end counts messages of the other: then both must know how
// many come. Otherwise only the client needs the number.
func (f flags) counted() bool {
	i := testIndex(f.test)
	return f.both || i >= 0 && (Tests[i].TwoSided() || Tests[i].Latency && !Tests[i].Reads())
}

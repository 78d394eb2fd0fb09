package perftest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/goroce/roce/qp"
)

// flags are the parameters that must be the same at both ends. An end sends them after its version,
// where perftest sends zeros and ignores the peer's.
type flags struct {
	test    string // empty: the end sends no flags, as perftest
	service qp.Type
	size    int // 0: all sizes
	iters   int // 0: a duration
	qps     int
	both    bool
}

// flagsLen is the room after the version and its NUL.
const (
	flagsLen   = versionLen - len(Version) - 1
	flagsMagic = 'R'
)

// flags returns the flags of this end.
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

// testIndex returns the number of a test on the wire, -1 if there is no such test.
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

// parseFlags reads the flags of the peer. They are empty if it sends none.
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
	if !f.counted() && !peer.counted() {
		peer.iters = f.iters // only the client needs the number
	}
	var mine, theirs []string
	other := peer.options()
	for i, o := range f.options() {
		if o != other[i] {
			mine, theirs = append(mine, o), append(theirs, other[i])
		}
	}
	if len(mine) == 0 {
		return nil
	}
	return fmt.Errorf("perftest: the peer has %s, this end has %s: give both ends the same flags", strings.Join(theirs, " "), strings.Join(mine, " "))
}

// options returns the flags as on a command line.
func (f flags) options() [5]string {
	o := [5]string{"-c " + f.service.String(), fmt.Sprintf("-s %d", f.size), fmt.Sprintf("-q %d", f.qps), "no -b", fmt.Sprintf("-n %d", f.iters)}
	if f.size == 0 {
		o[1] = "-a"
	}
	if f.both {
		o[3] = "-b"
	}
	if f.iters == 0 {
		o[4] = "-D"
	}
	return o
}

// counted reports whether an end counts the messages of the other, so that both must know their
// number.
func (f flags) counted() bool {
	i := testIndex(f.test)
	return f.both || i >= 0 && (Tests[i].TwoSided || Tests[i].Latency && !Tests[i].Reads)
}

package share

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

// greedy is a Medium that leaves the process no descriptors, but those it has.
type greedy struct {
	desk
	limit unix.Rlimit // as it was
}

func (g *greedy) Open() (files []int, notes []string, err error) {
	files, notes, err = g.desk.Open()
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: g.limit.Max})
	}
	return files, notes, err
}

// A process that is out of descriptors does not share, and says so: to open the address for itself
// would refuse all others for as long as it lives.
func TestShortOfDescriptors(t *testing.T) {
	g := new(greedy)
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &g.limit); err != nil {
		t.Fatal(err)
	}
	p, err := Join(Config{Key: key(t), Slots: 1, Medium: g})
	unix.Setrlimit(unix.RLIMIT_NOFILE, &g.limit)
	if p != nil {
		p.Close()
	}
	if !errors.Is(err, syscall.EMFILE) || errors.Is(err, link.ErrUnsupported) {
		t.Errorf("%v, want EMFILE and not that the system cannot share", err)
	}
}

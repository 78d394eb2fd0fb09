package share

import (
	"errors"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

// greedy is a Medium whose Open sets the limit of descriptors to 0: the process can open no more.
type greedy struct {
	fakeMedium
	limit unix.Rlimit // before Open
}

func (g *greedy) Open() (files []int, notes []string, err error) {
	files, notes, err = g.fakeMedium.Open()
	if err == nil {
		err = unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 0, Max: g.limit.Max})
	}
	return files, notes, err
}

// Join of a process that is out of descriptors fails with EMFILE, not with ErrUnsupported: after
// ErrUnsupported the driver would open the address for this process alone, and so refuse the
// others while the process lives.
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

package alarm

import (
	"errors"
	"io"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/scarce"
)

// remaining returns the time after which the alarm's timer expires; 0: it has expired.
func remaining(t *testing.T, a *kernelAlarm) (left time.Duration) {
	t.Helper()
	a.conn.Control(func(fd uintptr) {
		var at unix.ItimerSpec
		if err := unix.TimerfdGettime(int(fd), &at); err != nil {
			t.Error(err)
		}
		left = time.Duration(at.Value.Nano())
	})
	return left
}

func TestPostponeKernel(t *testing.T) {
	a, ok := New(long).(*kernelAlarm)
	if !ok {
		t.Fatal("no timer of the kernel")
	}
	defer a.Close()
	a.conn.Control(setter(time.Minute))
	a.Postpone()
	if left := remaining(t, a); left <= time.Minute {
		t.Errorf("the timer expires after %v, want %v", left, long)
	}
	a.Ring()
	a.Postpone()
	a.Sleep()
	if left := remaining(t, a); left != 0 {
		t.Errorf("the timer expires after %v, although it has rung", left)
	}
}

// Without a free descriptor the alarm is on a timer of the runtime, and nothing stays open.
func TestNoDescriptor(t *testing.T) {
	scarce.Descriptors(t, func() (io.Closer, error) {
		a := New(time.Millisecond)
		if a.Sleep() {
			t.Error("nobody has rung")
		}
		if _, ok := a.(*runtimeAlarm); ok {
			return nil, errors.New("on a timer of the runtime")
		}
		return closer{a}, nil
	})
}

type closer struct{ Alarm }

func (c closer) Close() error {
	c.Alarm.Close()
	return nil
}

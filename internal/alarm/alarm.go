// Package alarm makes a goroutine sleep until a time that other goroutines keep postponing.
//
// A timer of the Go runtime is not made for this: a thread of the runtime sleeps until the timer's old time, finds that
// the timer was postponed, and sleeps again. Each time it takes the processor from a thread that is pinned to it. A timer of
// the kernel wakes nobody as long as it is postponed in time.
package alarm

import (
	"time"

	"github.com/goroce/roce/internal/notify"
)

// Alarm wakes one goroutine.
type Alarm interface {
	// Sleep returns when the alarm's time has passed since the call and since the last call of Postpone, or when
	// a goroutine calls Ring, or has called it since the last sleep: rung. One goroutine at a time may sleep.
	Sleep() (rung bool)
	// Postpone makes the alarm wait for its whole time again. A call of Ring is not postponed.
	Postpone()
	// Ring ends the sleep.
	Ring()
	// Close releases the alarm. No goroutine may sleep; Postpone and Ring then do nothing.
	Close()
}

// New returns an alarm on a timer of the kernel. If the kernel or this system has none, the alarm is that of [NewRuntime].
func New(d time.Duration) Alarm {
	if a := newKernel(d); a != nil {
		return a
	}
	return NewRuntime(d)
}

// NewRuntime returns an alarm on a timer of the Go runtime, whose time a test may control.
func NewRuntime(d time.Duration) Alarm {
	a := &runtimeAlarm{d: d, timer: time.NewTimer(d), rung: notify.New()}
	a.timer.Stop()
	return a
}

type runtimeAlarm struct {
	d     time.Duration
	timer *time.Timer
	rung  notify.Chan
}

func (a *runtimeAlarm) Sleep() (rung bool) {
	a.timer.Reset(a.d)
	defer a.timer.Stop()
	select {
	case <-a.timer.C:
		return false
	case <-a.rung:
		return true
	}
}

func (a *runtimeAlarm) Postpone() { a.timer.Reset(a.d) }
func (a *runtimeAlarm) Ring()     { a.rung.Notify() }
func (a *runtimeAlarm) Close()    { a.timer.Stop() }

// Package mono has the time of the protocol packages: a number that their caller passes as an argument. They never
// read a clock, so a simulation can stop the time, let it jump, or replay it.
package mono

import (
	"math"
	"time"
)

// Time is an instant in nanoseconds since an arbitrary start. It never goes
// back between two calls on the same object.
type Time int64

// Never is later than every instant: the deadline of an idle timer.
const Never Time = math.MaxInt64

// Add returns t+d, or [Never] when that lies beyond the end of time.
func (t Time) Add(d time.Duration) Time {
	if d > 0 && t > Never-Time(d) {
		return Never
	}
	return t + Time(d)
}

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// Before reports whether t is earlier than u.
func (t Time) Before(u Time) bool { return t < u }

// String returns the duration from the start to t, or "never".
func (t Time) String() string {
	if t == Never {
		return "never"
	}
	return time.Duration(t).String()
}

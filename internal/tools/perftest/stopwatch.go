package perftest

import "time"

// stopwatch measures the time of a test. If the test has a duration, the margins at its beginning and its end do not
// count.
type stopwatch struct {
	base             time.Time // times count from here
	started          time.Time // zero: not yet
	duration, margin time.Duration
}

// start starts the duration, if there is one.
func (w *stopwatch) start() {
	if w.duration > 0 {
		w.started = time.Now()
	}
}

func (w *stopwatch) since() time.Duration { return time.Since(w.base) }

// sample returns the length of the measured part.
func (w *stopwatch) sample() time.Duration { return w.duration - 2*w.margin }

// end returns the end of the duration; zero: there is none, or it has not started.
func (w *stopwatch) end() time.Time {
	if w.started.IsZero() {
		return time.Time{}
	}
	return w.started.Add(w.duration)
}

// sampling reports whether the measured part of the duration is under way.
func (w *stopwatch) sampling() bool {
	t := time.Since(w.started)
	return !w.started.IsZero() && t >= w.margin && t < w.duration-w.margin
}

// over reports whether the duration has ended. Without a duration it returns false.
func (w *stopwatch) over() bool { return !w.started.IsZero() && time.Since(w.started) >= w.duration }

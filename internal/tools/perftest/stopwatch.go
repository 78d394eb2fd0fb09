package perftest

import "time"

// stopwatch measures the time of a test. If the test has a duration, the margins at its beginning and its end do not
// count.
type stopwatch struct {
	base             time.Time // times count from here
	started          time.Time // zero: not yet
	duration, margin time.Duration
}

type phase uint8

const (
	warming  phase = iota // not started, or in the first margin
	sampling              // measured
	cooling               // in the last margin
	over
)

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

// phase returns the current part of the duration.
func (w *stopwatch) phase() phase {
	if w.started.IsZero() {
		return warming
	}
	switch t := time.Since(w.started); {
	case t < w.margin:
		return warming
	case t < w.duration-w.margin:
		return sampling
	case t < w.duration:
		return cooling
	}
	return over
}

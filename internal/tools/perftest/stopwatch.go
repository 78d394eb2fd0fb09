package perftest

import "time"

// stopwatch says what counts of a test that has a duration: not the margins at its
// beginning and its end. Without one it only tells how late it is.
type stopwatch struct {
	base             time.Time // what times are counted from
	started          time.Time // zero: not yet
	duration, margin time.Duration
}

type phase uint8

const (
	warming  phase = iota // not started, or in the first margin
	sampling              // what happens counts
	cooling               // in the last margin
	over
)

// start starts the duration, if there is one.
func (w *stopwatch) start() {
	if w.duration > 0 {
		w.started = time.Now()
	}
}

// since is how long after base it is.
func (w *stopwatch) since() time.Duration { return time.Since(w.base) }

// sample is for how long things count.
func (w *stopwatch) sample() time.Duration { return w.duration - 2*w.margin }

// end is when the duration is over; zero: never, or not known yet.
func (w *stopwatch) end() time.Time {
	if w.started.IsZero() {
		return time.Time{}
	}
	return w.started.Add(w.duration)
}

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

// Package recent keeps things in the order of their last use, so that a full table can forget the least recently used
// thing.
package recent

import (
	"time"

	"github.com/goroce/roce/mono"
)

// Entry is the place of a thing in a List. The thing embeds it.
type Entry[T any] struct {
	used         mono.Time
	thing        T
	older, newer *Entry[T]
}

// Used returns the time of the last use, which may be up to List.Slack too early.
func (e *Entry[T]) Used() mono.Time { return e.used }

// List has things in the order of their last use. The zero value is empty and ready to use.
type List[T any] struct {
	// Slack is the permitted error of the order: Touch does nothing if the last use is less than Slack ago. So most
	// uses cost only a comparison.
	Slack time.Duration

	ends Entry[T] // newer is the oldest entry, older the newest one; nil: the list has never had any
}

// Add adds a thing with its entry e as the newest one.
func (l *List[T]) Add(now mono.Time, e *Entry[T], thing T) {
	if l.ends.newer == nil {
		l.ends.older, l.ends.newer = &l.ends, &l.ends
	}
	last := l.ends.older
	*e = Entry[T]{now, thing, last, &l.ends}
	last.newer, l.ends.older = e, e
}

// Touch notes that a thing of the list is used now.
func (l *List[T]) Touch(now mono.Time, e *Entry[T]) {
	if now.Sub(e.used) >= l.Slack {
		l.Renew(now, e)
	}
}

// Renew is Touch without Slack: the thing is the newest one afterwards.
func (l *List[T]) Renew(now mono.Time, e *Entry[T]) {
	l.Remove(e)
	l.Add(now, e, e.thing)
}

// Remove removes a thing of the list.
func (l *List[T]) Remove(e *Entry[T]) { e.older.newer, e.newer.older = e.newer, e.older }

// Oldest returns the least recently used thing and the time of its last use. ok is false if the list is empty.
func (l *List[T]) Oldest() (thing T, used mono.Time, ok bool) {
	e := l.ends.newer
	if e == nil || e == &l.ends {
		return thing, 0, false
	}
	return e.thing, e.used, true
}

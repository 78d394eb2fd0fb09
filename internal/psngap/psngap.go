// Package psngap keeps the missing ranges of a sequence of PSNs: those that were skipped and not filled since.
package psngap

import (
	"slices"
	"sort"

	"github.com/goroce/roce/bth"
)

// Range is a range of PSNs, both ends included.
type Range struct{ From, To bth.PSN }

// Covers reports whether psn is in the range.
func (r Range) Covers(psn bth.PSN) bool { return !psn.Less(r.From) && !r.To.Less(psn) }

// Len returns how many PSNs the range has.
func (r Range) Len() int { return int(r.To.Sub(r.From)) + 1 }

// List is a list of ranges that do not touch, in ascending order. All PSNs in it are less than 2^23 apart.
// The zero List is empty and has no room: Limit is to be set before the first range is added.
type List struct {
	// Limit bounds the ranges that are kept, and so the memory that a hostile sequence can take.
	Limit int

	ranges []Range
}

// Len returns how many ranges there are.
func (l *List) Len() int { return len(l.ranges) }

// First returns the first range. The list is not empty.
func (l *List) First() Range { return l.ranges[0] }

// All calls f with each range, in order.
func (l *List) All(f func(Range)) {
	for _, r := range l.ranges {
		f(r)
	}
}

// Skip adds a range behind all others. If there is no room the first range is forgotten: its PSNs count as
// neither missing nor late then.
func (l *List) Skip(from, to bth.PSN) {
	if len(l.ranges) >= l.Limit {
		l.ranges = slices.Delete(l.ranges, 0, len(l.ranges)-l.Limit+1)
	}
	if n := len(l.ranges); n > 0 && l.ranges[n-1].To.Add(1) == from {
		l.ranges[n-1].To = to
		return
	}
	l.ranges = append(l.ranges, Range{from, to})
}

// Fill removes psn. It returns true if psn was missing. If that divides a range and there is no room for
// another one, the first range is forgotten.
func (l *List) Fill(psn bth.PSN) bool {
	i := l.search(psn)
	if i == len(l.ranges) || psn.Less(l.ranges[i].From) {
		return false
	}
	switch r := &l.ranges[i]; {
	case r.From == psn && r.To == psn:
		l.ranges = slices.Delete(l.ranges, i, i+1)
	case r.From == psn:
		r.From = psn.Add(1)
	case r.To == psn:
		r.To = psn.Add(-1)
	default:
		behind := Range{psn.Add(1), r.To}
		r.To = psn.Add(-1)
		l.ranges = slices.Insert(l.ranges, i+1, behind)
		if len(l.ranges) > l.Limit {
			l.ranges = slices.Delete(l.ranges, 0, 1)
		}
	}
	return true
}

// Covers reports whether psn is missing.
func (l *List) Covers(psn bth.PSN) bool {
	i := l.search(psn)
	return i < len(l.ranges) && !psn.Less(l.ranges[i].From)
}

// Missing counts the PSNs that are missing.
func (l *List) Missing() (n int) {
	for _, r := range l.ranges {
		n += r.Len()
	}
	return n
}

// Add adds a range anywhere, and joins it with those that it overlaps or touches. It returns false, and adds
// nothing, if there is no room.
func (l *List) Add(from, to bth.PSN) bool {
	i := l.search(from.Add(-1)) // the first that ends at or behind the PSN before
	j := i
	for ; j < len(l.ranges) && !to.Add(1).Less(l.ranges[j].From); j++ {
		if l.ranges[j].From.Less(from) {
			from = l.ranges[j].From
		}
		if to.Less(l.ranges[j].To) {
			to = l.ranges[j].To
		}
	}
	if i == j && len(l.ranges) >= l.Limit {
		return false
	}
	l.ranges = slices.Replace(l.ranges, i, j, Range{from, to})
	return true
}

// Drop removes the first range.
func (l *List) Drop() { l.ranges = slices.Delete(l.ranges, 0, 1) }

// Clear removes all ranges.
func (l *List) Clear() { l.ranges = l.ranges[:0] }

// search returns the index of the first range that does not end before psn.
func (l *List) search(psn bth.PSN) int {
	return sort.Search(len(l.ranges), func(i int) bool { return !l.ranges[i].To.Less(psn) })
}

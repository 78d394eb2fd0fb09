// Package ids hands out random 24-bit numbers to objects and finds the object of a number.
// Queue pair numbers, numbers of shared receive queues and the upper bits of memory keys
// are such numbers: a peer addresses local objects by them, and must not be able to guess
// one.
package ids

import "github.com/goroce/roce/mono"

// Bits is the size of a number.
const Bits = 24

// Space is how many numbers there are.
const Space = 1 << Bits

// Config says how a [Table] hands out numbers.
type Config struct {
	// Rand is the source of the numbers. The numbers are unpredictable only if Rand is.
	Rand func() uint64

	// Max is how many objects there may be at once.
	Max int

	// Rest is how many freed numbers rest at most. The table does not hand out a resting
	// number.
	Rest int

	// Reserved reports the numbers that the table never hands out. Nil: there are
	// none.
	Reserved func(n uint32) bool
}

// Table maps numbers to objects. It draws each number at random from all free numbers: an
// outsider who knows some numbers learns about the next one only that it differs. A freed
// number rests before the table can draw it again.
//
// The upper bits of a number are its place in the table, and no two numbers share a place.
// A lookup therefore looks at one place, whether the number exists or not, and its duration
// tells nothing about other numbers. The table is at most half full. It grows with the
// objects and never shrinks: it has at most 64 bytes for each number of the largest set of
// objects and resting numbers so far.
//
// A Table has no lock. Several goroutines may call Find at once; during any other method no
// other goroutine may use the table.
type Table[T any] struct {
	places []place[T]
	shift  uint // from a number to its place
	used   int  // numbers that objects have
	rest   []resting
	config Config
}

// place holds one of the numbers that share some upper bits.
type place[T any] struct {
	n      uint32
	taken  bool // n belongs to object, or rests
	object *T   // nil: none
}

// resting is a number that was freed.
type resting struct {
	n     uint32
	until mono.Time
}

// firstBits is the binary logarithm of the size of a new table.
const firstBits = 6

// maxDraws is how many random numbers Draw tries before it searches for the first free number
// after a random one. In a table that is at most half full at least half of the tries
// succeed, so Draw needs the search only if Rand is not random or a residue class is
// nearly used up.
const maxDraws = 64

// maxSparse is the largest ratio of places to taken numbers up to which Draw grows the table. If
// the search finds no number in an emptier table, the part has no free number, and a larger table
// would not help.
const maxSparse = 128

// NewTable returns an empty table.
func NewTable[T any](c Config) *Table[T] {
	return &Table[T]{places: make([]place[T], 1<<firstBits), shift: Bits - firstBits, config: c}
}

// Len returns how many objects there are.
func (t *Table[T]) Len() int { return t.used }

// Full reports whether there are as many objects as there may be.
func (t *Table[T]) Full() bool { return t.used >= t.config.Max }

// SetMax changes how many objects there may be at once. Existing objects stay even if
// there are more.
func (t *Table[T]) SetMax(n int) { t.config.Max = n }

// Resting returns how many numbers rest.
func (t *Table[T]) Resting() int { return len(t.rest) }

// Find returns the object with a number, or nil.
func (t *Table[T]) Find(n uint32) *T {
	if i := n >> t.shift; i < uint32(len(t.places)) {
		if p := &t.places[i]; p.n == n {
			return p.object
		}
	}
	return nil
}

// All calls f with every object, until f returns false.
func (t *Table[T]) All(f func(*T) bool) {
	for i := range t.places {
		if o := t.places[i].object; o != nil && !f(o) {
			return
		}
	}
}

// Draw gives an object a random free number of a part. ok is false if none is free or the table
// is full.
func (t *Table[T]) Draw(now mono.Time, o *T, p Part) (n uint32, ok bool) {
	if t.Full() {
		return 0, false
	}
	t.wake(now)
	for 2*(t.used+len(t.rest)+1) > len(t.places) && t.grow() {
	}
	for range maxDraws {
		if n, ok = p.number(uint32(t.config.Rand())); ok && t.put(n, o) {
			return n, true
		}
	}
	for {
		if n, ok = t.search(uint32(t.config.Rand()), o, p); ok {
			return n, true
		}
		if len(t.places) > maxSparse*(t.used+len(t.rest)+1) || !t.grow() {
			return 0, false
		}
	}
}

// put gives an object the number n if n and its place are free.
func (t *Table[T]) put(n uint32, o *T) bool {
	p := &t.places[n>>t.shift]
	if p.taken || t.config.Reserved != nil && t.config.Reserved(n) {
		return false
	}
	*p = place[T]{n, true, o}
	t.used++
	return true
}

// search gives an object the first free number of a part after a random one.
func (t *Table[T]) search(random uint32, o *T, p Part) (uint32, bool) {
	if p.Shuffle == nil {
		return t.scan(random%Space, o, p.Residue, p.class())
	}
	for i := range uint32(p.Size()) {
		if n, ok := p.number(random + i*p.class()); ok && t.put(n, o) {
			return n, true
		}
	}
	return 0, false
}

// scan looks at each place from that of n on, and gives an object the first number of the residue
// class that is free.
func (t *Table[T]) scan(n uint32, o *T, residue, class uint32) (uint32, bool) {
	first := n >> t.shift
	for i := range uint32(len(t.places)) {
		at := (first + i) % uint32(len(t.places))
		if t.places[at].taken {
			continue
		}
		start := at << t.shift
		for n := start + (residue+class-start%class)%class; n < Space && n>>t.shift == at; n += class {
			if t.put(n, o) {
				return n, true
			}
		}
	}
	return 0, false
}

// Free takes the number from its object. The number rests until the given time, which may
// be [mono.Never], or until more than Config.Rest numbers have been freed after it.
func (t *Table[T]) Free(n uint32, until mono.Time) {
	p := &t.places[n>>t.shift]
	if p.n != n || p.object == nil {
		panic("ids: a number was freed that no object has")
	}
	p.object = nil
	t.used--
	t.rest = append(t.rest, resting{n, until})
	if len(t.rest) > t.config.Rest {
		t.wakeFirst(len(t.rest) - t.config.Rest)
	}
}

// wake ends the rest of the numbers whose time is over.
func (t *Table[T]) wake(now mono.Time) {
	k := 0
	for k < len(t.rest) && t.rest[k].until <= now {
		k++
	}
	t.wakeFirst(k)
}

// wakeFirst ends the rest of the numbers that were freed first.
func (t *Table[T]) wakeFirst(k int) {
	for _, r := range t.rest[:k] {
		t.places[r.n>>t.shift] = place[T]{}
	}
	t.rest = t.rest[k:]
	if len(t.rest) == 0 {
		t.rest = nil
	}
}

// grow doubles the table, unless every number has a place of its own. Two numbers with different
// places still have different places afterwards, because a place is then given by one bit more.
func (t *Table[T]) grow() bool {
	if t.shift == 0 {
		return false
	}
	old := t.places
	t.places, t.shift = make([]place[T], 2*len(old)), t.shift-1
	for _, p := range old {
		if p.taken {
			t.places[p.n>>t.shift] = p
		}
	}
	return true
}

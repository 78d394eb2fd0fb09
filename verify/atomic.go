package verify

import (
	"github.com/goroce/roce/bth"
)

// word identifies eight bytes of a responder's memory by the R_Key and the address of an atomic.
type word struct {
	at  bth.GID
	key bth.RKey
	va  uint64
}

// words follows the values of the words that atomics operate on.
type words struct {
	m      map[word]*wordState
	writes map[memory]int
}

// memory identifies the memory that an R_Key of a responder gives access to.
type memory struct {
	at  bth.GID
	key bth.RKey
}

// wordState is a word after the latest atomic on it.
type wordState struct {
	value uint64
	by    *request // the atomic that left the value

	writes int // WRITEs with its key that had been sent by then
}

// maxWords bounds the words, and the keys of WRITEs, that are remembered.
const maxWords = 1 << 14

// atomicResponse judges the answer to an atomic.
func (h *half) atomicResponse(p *packet, r *request) {
	f := &p.Frame
	switch {
	case r == nil:
		h.v.limit(LimitBeginning, h.flow.String(), p)
		return
	case r.flags&bth.Atomic == 0:
		h.v.find(responseKind, []Frame{r.frame}, "%s is answered by %s.", r.op.Info().Name, f.Info.Name)
		return
	}
	v := f.AtomicValue()
	switch {
	case r.valued && v != r.value:
		h.v.find(atomicReplay, []Frame{r.frame}, "The repeated atomic is answered with %#x, the first time with %#x.", v, r.value)
	case !r.valued:
		r.valued, r.value = true, v
		h.unanswered(p, r.psn)
		if r.va%8 != 0 && r.flags&bth.Masked == 0 {
			h.v.find(atomicAlign, []Frame{r.frame}, "The atomic at address %#x is executed.", r.va)
		}
		h.v.words.executed(h, r, p.out)
		h.timed(AtomicLatency, p.Time.Sub(r.resent))
	}
	r.answered = true
	h.advance(p, f.PSN())
}

// result returns the value of a word after the atomic, if it was v before. ok is false for masked atomics, whose results are not computed.
func (r *request) result(v uint64) (left uint64, ok bool) {
	switch r.op {
	case bth.RCFetchAdd, bth.XRCFetchAdd:
		return v + r.operand, true
	case bth.RCCompareSwap, bth.XRCCompareSwap:
		if v == r.compare {
			return r.operand, true
		}
		return v, true
	}
	return 0, false
}

// executed compares the value that an atomic returned with the value that the previous atomic left. out says that the response was
// captured at the responder. Elsewhere a difference proves less: other requesters may have operated on the word, and responses may
// have overtaken each other.
func (w *words) executed(h *half, r *request, out bool) {
	k := word{h.flow.key.dst, r.key, r.va}
	s := w.m[k]
	if s != nil && s.value != r.value {
		twice, ok := s.by.result(s.value)
		frames := []Frame{s.by.frame}
		switch {
		case ok && twice == r.value && s.by.times > 1 && !(out && s.writes == w.writes[memory{k.at, k.key}]):
			h.v.cannotTell(atomicTwice) // something else may have operated on the word meanwhile
		case ok && twice == r.value && s.by.times > 1:
			h.v.suspect(atomicTwice, nil, frames, "The atomic returns %#x; the one before it was sent %d times, left %#x, and would leave that if it was executed twice.", r.value, s.by.times, s.value)
		default:
			h.v.suspect(atomicValue, nil, frames, "The atomic returns %#x; the one before it left %#x.", r.value, s.value)
		}
	}
	left, ok := r.result(r.value)
	if !ok {
		delete(w.m, k)
		return
	}
	if s == nil {
		if len(w.m) >= maxWords {
			return
		}
		s = &wordState{}
		w.m[k] = s
	}
	*s = wordState{value: left, by: r, writes: w.writes[memory{k.at, k.key}]}
}

// write notes that a WRITE may change the words that a key opens.
func (w *words) write(at bth.GID, key bth.RKey) {
	m := memory{at, key}
	if _, ok := w.writes[m]; ok || len(w.writes) < maxWords {
		w.writes[m]++
	}
}

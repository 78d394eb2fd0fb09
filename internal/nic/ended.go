package nic

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// A queue pair that has ended may repeat its last acknowledgement for a while: [qp.QP.Owes]. An acknowledgement does not
// name its sender. If the program meanwhile connects another queue pair with the same peer, with the same PSNs, the peer
// would take the repetition for an acknowledgement of what it sends in the new connection. So the old queue pair then
// sends nothing more.

// remote is a queue pair of a peer.
type remote struct {
	addr bth.GID
	num  bth.QPN
}

// ended are the queue pairs of a NIC that have ended and are not silent yet, by their peer. Its lock is taken
// with the lock of a shard held.
type ended struct {
	mu sync.Mutex
	by map[remote][]*lastWord
}

// lastWord is the last acknowledgement of a queue pair.
type lastWord struct {
	to   remote
	over atomic.Bool // the peer has another queue pair
}

// add records a queue pair that has ended.
func (e *ended) add(to remote) *lastWord {
	w := &lastWord{to: to}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.by == nil {
		e.by = map[remote][]*lastWord{}
	}
	e.by[to] = append(e.by[to], w)
	return w
}

// remove forgets a queue pair that is silent.
func (e *ended) remove(w *lastWord) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := slices.DeleteFunc(e.by[w.to], func(x *lastWord) bool { return x == w }); len(l) > 0 {
		e.by[w.to] = l
	} else {
		delete(e.by, w.to)
	}
}

// connected notes that a queue pair of the NIC was connected with a peer.
func (e *ended) connected(to remote) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, w := range e.by[to] {
		w.over.Store(true)
	}
}

// emit lets a queue pair build packets. One that has ended builds none if its peer has another one.
func (s *Shard) emit(now mono.Time, q *QP) (more bool) {
	if !q.engine.Owes() {
		return q.engine.Emit(now, q.sink)
	}
	if q.last != nil && q.last.over.Load() {
		q.engine.ForgetLast()
	}
	more = q.engine.Emit(now, q.sink)
	q.noteEnd()
	return more
}

// noteEnd records whether the queue pair has ended and is not silent yet. The caller has locked the shard.
func (q *QP) noteEnd() {
	e := &q.shard.nic.ended
	switch owes := q.engine.Owes(); {
	case owes && q.last == nil:
		path, num := q.engine.LastPeer()
		q.last = e.add(remote{path.Config().Dst, num})
	case !owes && q.last != nil:
		e.remove(q.last)
		q.last = nil
	}
}

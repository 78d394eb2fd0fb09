package nic

import "sync/atomic"

// A front end, such as the libraries for C, may collect the work requests of a program that polls, and post them together: its calls
// of this package are expensive. It collects only while the background goroutine pauses, since the polls of the program then
// come soon, and it posts before each of them. The background goroutine ends the pause when the program polls no more, and calls
// Config.Collect, by which the front end posts what it still has.

// collecting is the word that tells a front end whether it may collect: 1, or 0. A front end first adds a work request to those it
// has, then reads the word again, and posts them if it is 0. So either the front end or Config.Collect sees the
// work request. The word has a cache line of its own, without pointers: memory of C may refer to it.
type collecting struct {
	word atomic.Uint32
	_    [60]byte
}

// Collecting returns the word of the queue pair's shard, nil if no front end collects.
func (q *QP) Collecting() *atomic.Uint32 {
	if q.shard.collecting == nil {
		return nil
	}
	return &q.shard.collecting.word
}

// letCollect allows the front end to collect, or ends this. No lock is held.
func (s *Shard) letCollect(on bool) {
	switch c := s.collecting; {
	case c == nil:
	case on:
		c.word.Store(1)
	default:
		c.word.Store(0)
		s.nic.collect()
	}
}

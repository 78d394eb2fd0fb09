package verbs

import (
	"runtime"
	"sync"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// HandOver makes the library for C post the work requests that it has collected for the queue pairs of a shard, or with nil for all
// (hand_over of struct roce_host). Nil: it collects none.
var HandOver func(*roce.Collecting)

// PostCollected calls HandOver for all shards, before the program disconnects or the process exits.
func PostCollected() {
	if HandOver != nil {
		HandOver(nil)
	}
}

// pinned are the structures that the library has pointers to. They stay for ever, since the library does not say when it has read
// one for the last time: a cache line for each shard each time that the program opens a device.
var pinned = struct {
	sync.Mutex
	runtime.Pinner
	all map[*roce.Collecting]bool
}{all: make(map[*roce.Collecting]bool)}

// Collecting returns the structure of a completion queue's shard for the library, nil if it may not collect, and
// the time on its clock.
func Collecting(cq abi.Handle) (in *roce.Collecting, now time.Duration) {
	q, err := find[*completionQueue](cq)
	if err != nil {
		return nil, 0
	}
	if in, now = q.cq.Collecting(); in == nil {
		return nil, 0
	}
	pinned.Lock()
	defer pinned.Unlock()
	if !pinned.all[in] {
		pinned.all[in] = true
		pinned.Pin(in)
	}
	return in, now
}

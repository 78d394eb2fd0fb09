package verbs

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// HandOver makes the library for C post the work requests that it has collected (hand_over of struct roce_host). Nil: it
// collects none.
var HandOver func()

// exitPatience is how long the exit of the process waits for collected work requests: exit may have interrupted a thread that
// posts, so that the library waits for ever.
const exitPatience = 100 * time.Millisecond

// postCollected calls HandOver when the process exits.
func postCollected() {
	if HandOver == nil {
		return
	}
	done := make(chan struct{})
	go func() {
		HandOver()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(exitPatience):
	}
}

// pinned are the words of [roce.QP.Collecting] that the library has pointers to. They stay for ever: the
// library may read the word of a closed device. A device has one for each shard.
var pinned struct {
	sync.Mutex
	runtime.Pinner
	words map[*atomic.Uint32]bool
}

// pin keeps a word where it is.
func pin(word *atomic.Uint32) *atomic.Uint32 {
	if word == nil {
		return nil
	}
	pinned.Lock()
	defer pinned.Unlock()
	if !pinned.words[word] {
		if pinned.words == nil {
			pinned.words = make(map[*atomic.Uint32]bool)
		}
		pinned.words[word] = true
		pinned.Pin(word)
	}
	return word
}

package rsock

import (
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// TestSignal: a descriptor is readable from set to clear, and for good after close.
func TestSignal(t *testing.T) {
	in, _ := descriptors(t)
	s := &signal{fd: in}
	for _, c := range []struct {
		what string
		do   func()
		want bool
	}{
		{"clear", s.clear, false}, {"set", s.set, true}, {"set again", s.set, true}, {"clear", s.clear, false}, {"clear again", s.clear, false},
		{"close", s.close, true}, {"clear after close", s.clear, true}, {"set after close", s.set, true},
	} {
		if c.do(); readable(in) != c.want {
			t.Fatalf("%s: readable is %v", c.what, !c.want)
		}
	}
}

// TestSignalAttempt: a call does not miss data that come between its two tries, and the descriptor signals
// other threads that there may be more.
func TestSignalAttempt(t *testing.T) {
	in, _ := descriptors(t)
	s := &signal{fd: in}
	results := []error{syscall.EAGAIN, nil}
	n, err := s.attempt(func() (int, error) {
		err := results[0]
		results = results[1:]
		return 5, err
	})
	if n != 5 || err != nil || !readable(in) {
		t.Errorf("%d, %v, readable %v of what came between the tries", n, err, readable(in))
	}
	tries := 0
	_, err = s.attempt(func() (int, error) { tries++; return 0, syscall.EAGAIN })
	if err != syscall.EAGAIN || tries != 2 || readable(in) {
		t.Errorf("%v after %d tries, readable %v of what does not come", err, tries, readable(in))
	}
}

// TestSignalWakes: a producer wakes a consumer that waits for the descriptor.
func TestSignalWakes(t *testing.T) {
	in, _ := descriptors(t)
	s := &signal{fd: in}
	var made atomic.Int64
	var producer sync.WaitGroup
	const all = 20000
	producer.Go(func() {
		for range all {
			made.Add(1)
			s.set()
		}
	})
	consumer := &rs{t: t, in: in}
	for taken := int64(0); taken < all; {
		n, err := consumer.blocking(in, func() (int, error) {
			return s.attempt(func() (int, error) {
				if n := made.Load(); n > taken {
					return int(n), nil
				}
				return 0, syscall.EAGAIN
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		taken = int64(n)
	}
	producer.Wait()
}

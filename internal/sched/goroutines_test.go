package sched

import (
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func oneThread(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
	if !OneThread() {
		t.Error("GOMAXPROCS is 1, but more than one goroutine may run")
	}
}

// TestLetRun: a call of LetRun lets a goroutine run whose descriptor is readable, also if another goroutine calls Gosched in a loop.
func TestLetRun(t *testing.T) {
	oneThread(t)
	for _, others := range []int{0, 1, 3} {
		var stop atomic.Bool
		var spins atomic.Int64 // calls of Gosched
		var wg sync.WaitGroup
		for range others {
			wg.Go(func() {
				for !stop.Load() {
					Gosched()
					spins.Add(1)
				}
			})
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var reads atomic.Int32
		wg.Go(func() {
			for b := make([]byte, 1); ; reads.Add(1) {
				if _, err := r.Read(b); err != nil {
					return
				}
			}
		})
		const rounds = 100
		var calls [rounds]int
		for i := range int32(rounds) {
			for range 3 {
				runtime.Gosched() // the reader waits
			}
			if _, err := w.Write([]byte{0}); err != nil {
				t.Fatal(err)
			}
			for reads.Load() == i {
				LetRun()
				calls[i]++
			}
		}
		slices.Sort(calls[:])
		if median := calls[rounds/2]; median > 2 {
			t.Errorf("beside %d other goroutines: a reader runs after %d calls, want one or two", others, median)
		}
		if n := spins.Load(); n > 1000*rounds {
			t.Errorf("beside %d other goroutines: they called Gosched %d times in %d rounds, so a call of LetRun waits for long", others, n, rounds)
		}
		stop.Store(true)
		w.Close()
		wg.Wait()
		r.Close()
	}
}

// TestLetRunTogether: goroutines that call LetRun and Gosched at the same time all continue.
func TestLetRunTogether(t *testing.T) {
	for _, threads := range []int{1, 4} {
		before := runtime.GOMAXPROCS(threads)
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for j := range 500 {
					if (i+j)%3 == 0 {
						LetRun()
					} else {
						Gosched()
					}
				}
			})
		}
		wg.Wait()
		runtime.GOMAXPROCS(before)
	}
}

// TestLetRunOften: a goroutine that calls Gosched continues after each LetRun of another one, however soon the next one comes.
func TestLetRunOften(t *testing.T) {
	oneThread(t)
	var stop atomic.Bool
	var spins atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			Gosched()
			spins.Add(1)
		}
	})
	for spins.Load() == 0 {
		LetRun()
	}
	const rounds = 200
	before := spins.Load()
	for range rounds {
		for end := time.Now().Add(100 * time.Microsecond); time.Now().Before(end); { // computes
		}
		LetRun()
	}
	if n := spins.Load() - before; n < rounds*3/4 {
		t.Errorf("it has continued %d times in %d rounds", n, rounds)
	}
	stop.Store(true)
	wg.Wait()
}

func TestLetRunAllocates(t *testing.T) {
	if n := testing.AllocsPerRun(100, LetRun); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

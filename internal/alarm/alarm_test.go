package alarm

import (
	"testing"
	"testing/synctest"
	"time"
)

const long = time.Hour

// kinds are the alarms of this system.
func kinds(d time.Duration) map[string]Alarm {
	return map[string]Alarm{"runtime": NewRuntime(d), "kernel": New(d)}
}

// sleeping starts a sleep and returns a channel that is closed when it ends.
func sleeping(a Alarm) <-chan struct{} {
	done := make(chan struct{})
	go func() {
		a.Sleep()
		close(done)
	}()
	return done
}

func TestSleepEnds(t *testing.T) {
	for name, a := range kinds(time.Millisecond) {
		t.Run(name, func(t *testing.T) {
			defer a.Close()
			for range 3 {
				began := time.Now()
				a.Sleep()
				if took := time.Since(began); took < time.Millisecond {
					t.Errorf("slept for %v, want at least the alarm's time", took)
				}
			}
		})
	}
}

func TestRing(t *testing.T) {
	for name, a := range kinds(long) {
		t.Run(name, func(t *testing.T) {
			defer a.Close()
			for range 100 {
				done := sleeping(a)
				a.Ring() // before the sleep begins, or during it
				a.Postpone()
				<-done
			}
			a.Ring()
			a.Sleep()
		})
	}
}

// A call of Ring ends one sleep, not those after it.
func TestRingOnce(t *testing.T) {
	for name, a := range kinds(time.Millisecond) {
		t.Run(name, func(t *testing.T) {
			defer a.Close()
			a.Ring()
			if !a.Sleep() {
				t.Error("Ring before the sleep has not ended it")
			}
			if a.Sleep() {
				t.Error("one Ring has ended two sleeps")
			}
		})
	}
}

// A goroutine that postpones all the time must not outdo one that rings.
func TestRingWhilePostponed(t *testing.T) {
	for name, a := range kinds(long) {
		t.Run(name, func(t *testing.T) {
			defer a.Close()
			stop, stopped := make(chan struct{}), make(chan struct{})
			go func() {
				defer close(stopped)
				for {
					select {
					case <-stop:
						return
					default:
						a.Postpone()
					}
				}
			}()
			for range 1000 {
				done := sleeping(a)
				a.Ring()
				<-done
			}
			close(stop)
			<-stopped
		})
	}
}

func TestPostpone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := NewRuntime(time.Second)
		defer a.Close()
		began := time.Now()
		done := sleeping(a)
		for range 3 {
			time.Sleep(time.Second / 2)
			a.Postpone()
		}
		<-done
		if took := time.Since(began); took != 5*time.Second/2 {
			t.Errorf("slept for %v, want the alarm's time after it was postponed last", took)
		}
	})
}

func TestAfterClose(t *testing.T) {
	for name, a := range kinds(time.Millisecond) {
		t.Run(name, func(t *testing.T) {
			a.Close()
			a.Postpone()
			a.Ring()
		})
	}
}

// Postponing is on the path of a poll.
func TestAllocations(t *testing.T) {
	for name, a := range kinds(long) {
		t.Run(name, func(t *testing.T) {
			defer a.Close()
			if n := testing.AllocsPerRun(100, a.Postpone); n != 0 {
				t.Errorf("Postpone allocates %v times", n)
			}
		})
	}
}

func BenchmarkPostpone(b *testing.B) {
	for name, a := range kinds(long) {
		b.Run(name, func(b *testing.B) {
			defer a.Close()
			for b.Loop() {
				a.Postpone()
			}
		})
	}
}

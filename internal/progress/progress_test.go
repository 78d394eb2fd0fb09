package progress

import (
	"bytes"
	"context"
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// With steps of two lengths on a pipe, the estimate weighs the remaining steps by their length.
func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newMeter("bench", &out)
		m.Plan(2, time.Second)
		m.Plan(1, 10*time.Second)
		time.Sleep(2 * time.Second) // twice as slow as planned
		m.Step(time.Second, "pass  one  2.0s\n      a note\n")
		time.Sleep(2 * time.Second)
		end := m.Begin("two")
		m.Write([]byte("a line of its own\n"))
		end()
		m.Step(time.Second, "pass  two")
		time.Sleep(3599 * time.Second)
		m.Step(10*time.Second, "FAIL  three")
		m.Close(nil)
		want := `pass  one  2.0s  [1/3, 0:02, 0:22 left]
      a note
a line of its own
pass  two  [2/3, 0:04, 0:20 left]
FAIL  three  [3/3, 1:00:03, 0:00 left]
bench: 3 of 3 steps in 1:00:03
`
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// A pipe that does not get a line for each step still gets a line from time to time.
func TestCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newMeter("bench", &out)
		m.Plan(100, time.Second)
		for range 24 {
			time.Sleep(time.Second)
			m.Count(time.Second, "goodput")
		}
		want := "bench: 10/100, 0:10, 1:30 left, goodput\nbench: 20/100, 0:20, 1:20 left, goodput\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// A run that ends by time prints the remaining time, and how it was interrupted.
func TestLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newMeter("soak", &out)
		m.Lasts(2 * time.Minute)
		time.Sleep(90 * time.Second)
		m.Step(0, "pass  raw")
		time.Sleep(40 * time.Second) // the last round is finished
		m.Step(0, "pass  udp")
		m.Close(Interrupted{syscall.SIGTERM})
		want := "pass  raw  [1, 1:30, 0:30 left]\npass  udp  [2, 2:10, 0:00 left]\nsoak: 2 steps in 2:10: interrupted (terminated)\n"
		if got := out.String(); got != want {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	})
}

// screen returns what a terminal shows: the finished lines, and the line of running steps.
func screen(s string) (lines []string, last string) {
	all := strings.Split(s, "\n")
	for i, l := range all {
		if at := strings.LastIndex(l, "\r\x1b[K"); at >= 0 {
			l = l[at+len("\r\x1b[K"):]
		}
		if i < len(all)-1 {
			lines = append(lines, l)
		} else {
			last = l
		}
	}
	return lines, last
}

// On a terminal the line of running steps follows the clock and the steps, is never part of another line, never wraps,
// and is erased at the end.
func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		m := newMeter("fuzz", &out)
		m.live = true
		m.done.Go(m.redraw)
		m.Plan(4, time.Second)
		endA, endB := m.Begin("qp/FuzzResponder"), m.Begin("bth/FuzzParse")
		shows := func(want string) {
			t.Helper()
			synctest.Wait()
			m.mu.Lock()
			defer m.mu.Unlock()
			if _, got := screen(out.String()); got != want {
				t.Errorf("the line is %q, want %q", got, want)
			}
		}
		shows("0/4, 0:00  qp/FuzzResponder, bth/FuzzParse")
		time.Sleep(5 * time.Second)
		shows("0/4, 0:05  qp/FuzzResponder, bth/FuzzParse")
		endA()
		endA() // a second call does nothing
		m.Step(time.Second, "pass  qp/FuzzResponder")
		shows("1/4, 0:05, 0:15 left  bth/FuzzParse")
		m.Begin(strings.Repeat("x", 200))
		shows("1/4, 0:05, 0:15 left  bth/FuzzParse, " + strings.Repeat("x", 41) + "…")
		endB()
		m.Close(errors.New("broken"))
		lines, last := screen(out.String())
		want := "pass  qp/FuzzResponder  [1/4, 0:05, 0:15 left]|fuzz: 1 of 4 steps in 0:05: broken"
		if got := strings.Join(lines, "|"); got != want || last != "" {
			t.Errorf("the screen is %q and %q, want %q", got, last, want)
		}
	})
}

// The first signal ends the context. Copies of it from make or timeout do nothing; a later one ends the program.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		signals := make(chan os.Signal, 1)
		codes := make(chan int, 1)
		var out bytes.Buffer
		go watch(ctx, cancel, signals, "soak", &out, func(code int) { codes <- code })
		synctest.Wait()
		signals <- syscall.SIGINT
		synctest.Wait()
		var why Interrupted
		if !errors.As(context.Cause(ctx), &why) || why.Signal != syscall.SIGINT {
			t.Fatalf("the context ended because of %v", context.Cause(ctx))
		}
		time.Sleep(duplicate / 2)
		signals <- syscall.SIGTERM
		synctest.Wait()
		select {
		case code := <-codes:
			t.Fatalf("the copy of a signal has ended the program with %d", code)
		default:
		}
		time.Sleep(duplicate)
		signals <- syscall.SIGINT
		if code := <-codes; code == 0 {
			t.Error("an interrupted program has ended with 0")
		}
	})
}

// A real signal ends the context of Context, and its cancel function does so, too.
func TestContext(t *testing.T) {
	ctx, stop := Context(t.Context(), "test")
	p, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Signal(syscall.SIGTERM); err != nil {
		t.Skipf("the kernel has no signals: %v", err)
	}
	<-ctx.Done()
	if why := (Interrupted{}); !errors.As(context.Cause(ctx), &why) || why.Signal != syscall.SIGTERM {
		t.Errorf("the context ended because of %v", context.Cause(ctx))
	}
	stop()
	ctx, stop = Context(t.Context(), "test")
	stop()
	<-ctx.Done()
	if why := (Interrupted{}); errors.As(context.Cause(ctx), &why) {
		t.Errorf("a cancelled context says %v", why)
	}
}

//go:build linux

package proc

import (
	"context"
	"errors"
	"net"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

func start(t *testing.T, argv ...string) (context.Context, *Proc) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 10*time.Second)
	t.Cleanup(stop)
	p, err := Start(ctx, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return ctx, p
}

func TestExit(t *testing.T) {
	for _, tt := range []struct {
		script string
		want   string
		ok     bool
	}{
		{"echo out; echo err >&2", "exit 0", true},
		{"exit 3", "exit 3", false},
		{"kill -TERM $$", "terminated", false},
	} {
		ctx, p := start(t, "sh", "-c", tt.script)
		e, err := p.Wait(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if e.String() != tt.want || e.OK() != tt.ok {
			t.Errorf("%s: %v, OK %v; want %s, %v", tt.script, e, e.OK(), tt.want, tt.ok)
		}
		if (p.Failed(e) == nil) != tt.ok {
			t.Errorf("%s: Failed: %v", tt.script, p.Failed(e))
		}
	}
	if _, err := Start(t.Context(), "/nonexistent"); err == nil {
		t.Error("a program that does not exist started")
	}
}

func TestWaitFor(t *testing.T) {
	ctx, p := start(t, "sh", "-c", "echo ready; read x")
	if err := p.WaitFor(ctx, regexp.MustCompile("^ready\n")); err != nil {
		t.Fatal(err)
	}

	ctx, p = start(t, "sh", "-c", "echo no")
	err := p.WaitFor(ctx, regexp.MustCompile("ready"))
	if err == nil || !strings.Contains(err.Error(), "ended (exit 0)") {
		t.Errorf("the command ended without the text: %v", err)
	}

	_, p = start(t, "sleep", "100")
	brief, stop := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer stop()
	if err := p.WaitFor(brief, regexp.MustCompile("ready")); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("time was over: %v", err)
	}
}

// A signal reaches the children of the command, too, so that the pipe of the output closes.
func TestSignalReachesChildren(t *testing.T) {
	ctx, p := start(t, "sh", "-c", "sleep 100 & echo started; wait")
	if err := p.WaitFor(ctx, regexp.MustCompile("started")); err != nil {
		t.Fatal(err)
	}
	if !p.Running() {
		t.Fatal("not running")
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	e, err := p.Wait(ctx)
	if err != nil || e.Signal != "killed" {
		t.Errorf("%v, %v; want killed", e, err)
	}
	if err := p.Signal(syscall.SIGKILL); err != nil {
		t.Errorf("signalling a dead command: %v", err)
	}
}

func TestRun(t *testing.T) {
	out, err := Run(t.Context(), "sh", "-c", "echo good; echo bad >&2; exit 4")
	if out != "good\nbad\n" || err == nil || !strings.Contains(err.Error(), "exit 4: good\nbad") {
		t.Errorf("%q, %v", out, err)
	}
}

func TestQuote(t *testing.T) {
	if got, want := Quote([]string{"a", "b c", "it's", ""}), `a 'b c' 'it'\''s' ''`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// TestListens: Listens finds a listening socket of both IP versions, and does not find it
// after Close.
func TestListens(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			t.Skip(err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		for _, want := range []bool{true, false} {
			if got, err := Listens("self", port); got != want || err != nil {
				t.Errorf("%s: port %d: %v, %v, want %v", at, port, got, err, want)
			}
			l.Close()
		}
	}
}

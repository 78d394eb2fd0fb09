//go:build linux

// Package proc handles a running command, on this machine or in a guest: its
// output, waiting for a text in the output, signals, and the end of the command.
package proc

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"syscall"
)

// Exit is how a command ended.
type Exit struct {
	Code     int    // exit code; -1 if it did not exit by itself
	Signal   string // the signal that ended it, or empty
	TimedOut bool   // it was ended at its time limit
	Err      error  // why it could not be run, or nil
}

// OK reports whether the command ended by itself with exit code 0.
func (e Exit) OK() bool { return e.Code == 0 && e.Err == nil && !e.TimedOut }

// String describes the end: "exit 1", "killed", "timed out".
func (e Exit) String() string {
	switch {
	case e.Err != nil:
		return e.Err.Error()
	case e.TimedOut:
		return "timed out"
	case e.Signal != "":
		return e.Signal
	}
	return fmt.Sprintf("exit %d", e.Code)
}

// Proc is one command. All methods may be called from any goroutine.
type Proc struct {
	// Line is the command line, for reports.
	Line string

	signal func(syscall.Signal) error

	mu      sync.Mutex
	out     bytes.Buffer
	changed chan struct{} // closed and replaced when out or exit changes
	done    bool
	exit    Exit
}

// New returns a Proc for a command. The caller passes its output to Write and its end to Done;
// signal delivers a signal to the command.
func New(line string, signal func(syscall.Signal) error) *Proc {
	return &Proc{Line: line, signal: signal, changed: make(chan struct{})}
}

func (p *Proc) wake() {
	close(p.changed)
	p.changed = make(chan struct{})
}

// Write adds to the output.
func (p *Proc) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out.Write(b)
	p.wake()
	return len(b), nil
}

// Done records the end; only the first call counts.
func (p *Proc) Done(e Exit) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.done {
		p.done, p.exit = true, e
		p.wake()
	}
}

// Output returns what the command has written so far.
func (p *Proc) Output() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.String()
}

// Running reports whether the command has not ended.
func (p *Proc) Running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.done
}

// Signal sends sig to the command and its children.
func (p *Proc) Signal(sig syscall.Signal) error {
	if !p.Running() {
		return nil
	}
	return p.signal(sig)
}

// until calls over, with the lock, after each change of the output or the end, until over returns true. The error is the
// reason why ctx has ended.
func (p *Proc) until(ctx context.Context, over func() bool) error {
	for {
		p.mu.Lock()
		done, changed := over(), p.changed
		p.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Wait waits for the end.
func (p *Proc) Wait(ctx context.Context) (Exit, error) {
	if err := p.until(ctx, func() bool { return p.done }); err != nil {
		return Exit{}, fmt.Errorf("%s: still running: %w", p.Line, err)
	}
	return p.exit, nil // it does not change any more
}

// Finish waits for the end and returns the output; any end but exit code 0 is an error that quotes the output.
func (p *Proc) Finish(ctx context.Context) (string, error) {
	e, err := p.Wait(ctx)
	if err == nil {
		err = p.Failed(e)
	}
	return p.Output(), err
}

// Failed turns an unsuccessful end into an error that quotes the last output.
func (p *Proc) Failed(e Exit) error {
	if e.OK() {
		return nil
	}
	out := strings.TrimSpace(p.Output())
	if len(out) > 600 {
		out = "…" + out[len(out)-600:]
	}
	return fmt.Errorf("%s: %v: %s", p.Line, e, out)
}

// Copy writes the output to w as it comes, until the command ends.
func (p *Proc) Copy(ctx context.Context, w io.Writer) error {
	for at := 0; ; {
		p.mu.Lock()
		b := bytes.Clone(p.out.Bytes()[at:])
		done, changed := p.done, p.changed
		p.mu.Unlock()
		at += len(b)
		if _, err := w.Write(b); err != nil || done {
			return err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("%s: still running: %w", p.Line, context.Cause(ctx))
		}
	}
}

// WaitFor waits until the output matches re. It is an error if the command ends
// before.
func (p *Proc) WaitFor(ctx context.Context, re *regexp.Regexp) error {
	var found bool
	err := p.until(ctx, func() bool {
		found = re.Match(p.out.Bytes())
		return found || p.done
	})
	switch {
	case err != nil:
		return fmt.Errorf("%s: has not printed %q: %w", p.Line, re, err)
	case !found:
		return fmt.Errorf("%s: ended (%v) before printing %q", p.Line, p.exit, re)
	}
	return nil
}

// Quote joins argv for display.
func Quote(argv []string) string {
	var b strings.Builder
	for i, a := range argv {
		if i > 0 {
			b.WriteByte(' ')
		}
		if a == "" || strings.ContainsAny(a, " \t\n'\"$&|;<>()*?#") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		b.WriteString(a)
	}
	return b.String()
}

package progress

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Interrupted is the cause of the end of a context of [Context].
type Interrupted struct{ Signal os.Signal }

func (i Interrupted) Error() string { return fmt.Sprintf("interrupted (%v)", i.Signal) }

// duplicate is the time after the first signal in which others count as copies of it: make and timeout pass
// a signal on to a process that may have received it already.
const duplicate = time.Second

// Context returns a context that ends when the user interrupts the program by SIGINT, SIGTERM or SIGHUP.
// The program then removes what it has made and ends. A second signal ends the program at once.
func Context(parent context.Context, name string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // nohup ignores signals, and so do shells for a job in the background
			signal.Notify(signals, s)
		}
	}
	go watch(ctx, cancel, signals, name, os.Stderr, os.Exit)
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// watch ends the context after the first signal, and the program after a later one.
func watch(ctx context.Context, cancel context.CancelCauseFunc, signals <-chan os.Signal, name string, w io.Writer, exit func(int)) {
	var first time.Time
	select {
	case s := <-signals:
		first = time.Now()
		fmt.Fprintf(w, "\n%s: %v: ending the steps under way and removing what they have made\n", name, s)
		cancel(Interrupted{s})
	case <-ctx.Done():
		return
	}
	for s := range signals {
		if time.Since(first) < duplicate {
			continue
		}
		fmt.Fprintf(w, "%s: %v again: namespaces and temporary files may be left\n", name, s)
		exit(1)
		return
	}
}

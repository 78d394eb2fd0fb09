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

// Interrupted is why a context of [Context] has ended.
type Interrupted struct{ Signal os.Signal }

func (i Interrupted) Error() string { return fmt.Sprintf("interrupted (%v)", i.Signal) }

// echo is how long after the first signal others count as copies of it: make and timeout
// pass a signal on to a process that may have it already.
const echo = time.Second

// Context returns a context that ends when the user interrupts the program by SIGINT,
// SIGTERM or SIGHUP. The program then removes what it has made and ends. A user who does
// not wait for that sends another signal, which ends the program at once.
func Context(parent context.Context, name string) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	signals := make(chan os.Signal, 1)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP} {
		if !signal.Ignored(s) { // as nohup and shells that start a job in the background do
			signal.Notify(signals, s)
		}
	}
	go watch(ctx, cancel, signals, name, os.Stderr, os.Exit)
	return ctx, func() {
		signal.Stop(signals)
		cancel(nil)
	}
}

// watch ends the context at the first signal, and the program at a later one.
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
		if time.Since(first) < echo {
			continue
		}
		fmt.Fprintf(w, "%s: %v again: namespaces and temporary files may be left\n", name, s)
		exit(1)
		return
	}
}

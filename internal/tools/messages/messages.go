// Package messages is what librdmacm's examples have in common that send a number of
// messages over a number of connections: their options, and an end of such a connection,
// reliable ([RC]) or of datagrams ([UD]).
package messages

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"

	"github.com/goroce/roce/internal/tools/usage"
)

// Options are the flags of these programs.
type Options struct {
	Connections int       // -c
	Count       int       // -C: messages each way on each connection
	Size        int       // -S: bytes of a message
	Out         io.Writer // what the program prints; nil: nowhere
}

// Default returns what the programs do without flags.
func Default() Options { return Options{Connections: 1, Count: 10, Size: 100} }

// Validate returns an error that names the option which makes no sense.
func (o *Options) Validate() error {
	return cmp.Or(usage.AtLeast("-c", o.Connections, 1), usage.AtLeast("-C", o.Count, 0), usage.AtLeast("-S", o.Size, 0))
}

// Prepare validates the options. Like the programs it takes no messages, and empty ones, to
// mean that the ends only connect: Count is 0 then.
func (o *Options) Prepare() error {
	if o.Out == nil {
		o.Out = io.Discard
	}
	if err := o.Validate(); err != nil {
		return err
	}
	if o.Count == 0 || o.Size == 0 {
		o.Count, o.Size = 0, 1
	}
	return nil
}

// Each calls f for each end, one after the other. Its error names the connection and step.
func Each[E any](ends []E, step string, f func(E) error) error {
	for i, e := range ends {
		if err := f(e); err != nil {
			return fmt.Errorf("connection %d: %s: %w", i, step, err)
		}
	}
	return nil
}

// Repeat calls f in the background until f fails or the caller calls stop, which returns when
// f has returned.
func Repeat(ctx context.Context, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for f(ctx) == nil {
		}
	})
	return func() { cancel(); running.Wait() }
}

// Step is a part of a program.
type Step struct {
	Title string       // printed before; empty: nothing
	Do    func() error // nil: there is only a title
}

// Run does the steps one after the other, until one fails.
func Run(out io.Writer, steps ...Step) error {
	for _, s := range steps {
		if s.Title != "" {
			fmt.Fprintln(out, s.Title)
		}
		if s.Do == nil {
			continue
		}
		if err := s.Do(); err != nil {
			return err
		}
	}
	return nil
}

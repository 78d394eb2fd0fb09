package top

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"time"

	"github.com/gdamore/tcell/v2"
)

// Options say how samples are shown.
type Options struct {
	Interval time.Duration
	Count    int // number of samples; 0: no limit
	Column   int // the column to sort by
	Reverse  bool
}

// Stream calls print with each sample and its sorted rows, until the source or ctx ends, or o.Count samples were
// printed.
func Stream(ctx context.Context, src Source, o Options, print func(*Sample, []Row) error) error {
	var m Meter
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	for n := 0; ; n++ {
		s, err := src.Sample(ctx)
		if err != nil || ctx.Err() != nil {
			return ended(ctx, err)
		}
		rows := m.Rows(&s)
		Sort(rows, o.Column, o.Reverse)
		if err := print(&s, rows); err != nil {
			return err
		}
		if n+1 == o.Count {
			return nil
		}
		if _, file := src.(*Capture); file {
			continue
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// ended returns err, or nil if the capture or ctx has ended.
func ended(ctx context.Context, err error) error {
	if errors.Is(err, io.EOF) || ctx.Err() != nil {
		return nil
	}
	return err
}

// PrintJSON returns a function that prints each sample as an object on a line.
func PrintJSON(w io.Writer, source string) func(*Sample, []Row) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(s *Sample, rows []Row) error {
		return enc.Encode(JSON{s.Time.UTC().Format(time.RFC3339Nano), source, rows, s.Notes})
	}
}

// PrintText returns a function that prints each sample as a table.
func PrintText(w io.Writer) func(*Sample, []Row) error {
	return func(s *Sample, rows []Row) error { return WriteText(w, s, rows) }
}

// Show shows the samples on an initialised screen, until the user or ctx ends it.
func Show(ctx context.Context, screen tcell.Screen, src Source, o Options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan tcell.Event)
	go screen.ChannelEvents(events, ctx.Done())
	samples := make(chan result)
	go func() { // Sample may have to wait for a process that does not answer, and keys must work meanwhile
		tick := time.NewTicker(o.Interval)
		defer tick.Stop()
		for {
			s, err := src.Sample(ctx)
			select {
			case samples <- result{s, err}:
			case <-ctx.Done():
				return
			}
			if err != nil {
				return
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	v := view{title: src.Title(), column: o.Column, reverse: o.Reverse}
	page := v.draw(screen)
	for taken := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case r := <-samples:
			switch {
			case errors.Is(r.err, io.EOF):
				v.failed = errors.New("the capture ends here")
			case r.err != nil:
				return ended(ctx, r.err)
			default:
				v.update(&r.sample)
				taken++
			}
			if taken == o.Count && o.Count > 0 {
				return nil
			}
		case e := <-events:
			switch e := e.(type) {
			case *tcell.EventKey:
				if v.key(e, page) {
					return nil
				}
			case *tcell.EventResize:
				screen.Sync()
			case nil: // the screen is closed
				return nil
			}
		}
		page = v.draw(screen)
	}
}

// result has the results of Source.Sample.
type result struct {
	sample Sample
	err    error
}

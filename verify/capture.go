package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/goroce/roce/internal/tools/dissect"
)

// Files judges captures together: their packets are merged by time. A file named "-" is standard input. If a file is damaged,
// the error says where, and the report is about the packets before the damage.
func Files(ctx context.Context, names []string, cfg Config) (*Report, error) {
	var streams []stream
	for _, name := range names {
		streams = append(streams, func(f func(*dissect.Packet) error) error { return dissect.ReadFile(ctx, name, f) })
	}
	return judge(names, streams, cfg)
}

// Read judges one capture.
func Read(in io.Reader, cfg Config) (*Report, error) {
	return judge([]string{""}, []stream{func(f func(*dissect.Packet) error) error { return dissect.Read(in, f) }}, cfg)
}

// stream calls f with each packet of a capture.
type stream func(f func(*dissect.Packet) error) error

// errStop ends a stream early.
var errStop = errors.New("stop")

// packets makes an iterator of a stream. A packet is valid until the next. The error of the stream goes to err.
func (s stream) packets(err *error) iter.Seq[*dissect.Packet] {
	return func(yield func(*dissect.Packet) bool) {
		e := s(func(p *dissect.Packet) error {
			if !yield(p) {
				return errStop
			}
			return nil
		})
		if e != nil && e != errStop {
			*err = e
		}
	}
}

// judge merges streams.
func judge(names []string, streams []stream, cfg Config) (*Report, error) {
	v, err := New(cfg)
	if err != nil {
		return nil, err
	}
	v.report.Files = names
	errs := make([]error, len(streams))
	if len(streams) == 1 {
		for p := range streams[0].packets(&errs[0]) {
			v.add(0, p)
		}
		return v.Done(), errs[0]
	}
	heads := make([]*dissect.Packet, len(streams))
	nexts := make([]func() (*dissect.Packet, bool), len(streams))
	for i, s := range streams {
		next, stop := iter.Pull(s.packets(&errs[i]))
		defer stop()
		nexts[i] = next
		heads[i], _ = next()
	}
	for {
		first := -1
		for i, p := range heads {
			if p != nil && (first < 0 || p.Time.Before(heads[first].Time)) {
				first = i
			}
		}
		if first < 0 {
			return v.Done(), errors.Join(errs...)
		}
		v.add(first, heads[first])
		heads[first], _ = nexts[first]()
	}
}

// T is what a test needs of testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Capture judges a capture and fails the test for each rule of the standard that is broken in it and that
// no known departure explains. Notes do not fail it.
func Capture(t T, file string) *Report {
	t.Helper()
	if _, err := os.Stat(file); err != nil {
		t.Fatalf("%v", err)
	}
	r, err := Files(context.Background(), []string{file}, Config{})
	if err != nil {
		t.Fatalf("%v", err)
	}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Failure() {
			t.Errorf("%s: %s", file, f)
		}
	}
	return r
}

// String describes the finding on a line.
func (f *Finding) String() string {
	frames := ""
	for i, n := range f.Frames {
		if i > 0 {
			frames += ", "
		}
		frames += n.String()
	}
	s := fmt.Sprintf("%s %s (IBTA %s), frame %s, %s: %s", f.Severity, f.Rule, f.Section, frames, f.Flow, f.Sentence)
	if f.Section == noSection {
		s = fmt.Sprintf("%s %s, frame %s, %s: %s", f.Severity, f.Rule, cmp.Or(frames, "-"), f.Flow, f.Sentence)
	}
	if f.Departure != nil {
		s += fmt.Sprintf(" Known: %s (%s, %s)", f.Departure.Sentence, f.Departure.By, f.Departure.Doc)
	}
	return s
}

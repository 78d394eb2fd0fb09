package verify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// Files judges captures together: their packets are merged by time. A file named "-" is standard input. If a file is damaged,
// the error says where, and the report is about the packets before the damage.
func Files(ctx context.Context, names []string, cfg Config) (*Report, error) {
	var sources []*source
	for _, name := range names {
		sources = append(sources, &source{read: func(f func(*pcap.Record) error) (uint64, error) { return dissect.FileRecords(ctx, name, f) }})
	}
	return judge(names, sources, cfg)
}

// Read judges one capture.
func Read(in io.Reader, cfg Config) (*Report, error) {
	return judge([]string{""}, []*source{{read: func(f func(*pcap.Record) error) (uint64, error) { return dissect.Records(in, f) }}}, cfg)
}

// errStop ends a source early.
var errStop = errors.New("stop")

// source is a capture.
type source struct {
	// read calls f with each record. It returns how many packets the capture has lost, as far as the file says so.
	read func(f func(*pcap.Record) error) (lost uint64, err error)
	lost uint64 // the results of read
	err  error
}

// records returns an iterator over the records of the source. A record is valid until the next one.
func (s *source) records() iter.Seq[*pcap.Record] {
	return func(yield func(*pcap.Record) bool) {
		s.lost, s.err = s.read(func(rec *pcap.Record) error {
			if !yield(rec) {
				return errStop
			}
			return nil
		})
		if s.err == errStop {
			s.err = nil
		}
	}
}

// judge merges the sources by time and returns the report about them. names are those of the files.
func judge(names []string, sources []*source, cfg Config) (*Report, error) {
	v, err := New(cfg)
	if err != nil {
		return nil, err
	}
	v.report.Files = names
	if len(sources) == 1 {
		for rec := range sources[0].records() {
			v.Add(0, rec)
		}
	} else {
		v.merge(sources)
	}
	for i, s := range sources {
		if s.lost > 0 {
			v.dropped(i, s.lost)
		}
		err = errors.Join(err, s.err)
	}
	return v.Done(), err
}

// merge judges the records of several files in the order of their times.
func (v *Verifier) merge(sources []*source) {
	heads := make([]*pcap.Record, len(sources))
	nexts := make([]func() (*pcap.Record, bool), len(sources))
	for i, s := range sources {
		next, stop := iter.Pull(s.records())
		defer stop()
		nexts[i] = next
		heads[i], _ = next()
	}
	for {
		first := -1
		for i, rec := range heads {
			if rec != nil && (first < 0 || rec.Time.Before(heads[first].Time)) {
				first = i
			}
		}
		if first < 0 {
			return
		}
		v.Add(first, heads[first])
		heads[first], _ = nexts[first]()
	}
}

// T has the methods of testing.T that [Capture] and [Tap] call.
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
	var list []string
	for _, n := range f.Frames {
		list = append(list, n.String())
	}
	frames := strings.Join(list, ", ")
	s := fmt.Sprintf("%s %s (IBTA %s), frame %s, %s: %s", f.Severity, f.Rule, f.Section, frames, f.Flow, f.Sentence)
	if f.Section == noSection {
		s = fmt.Sprintf("%s %s, frame %s, %s: %s", f.Severity, f.Rule, cmp.Or(frames, "-"), f.Flow, f.Sentence)
	}
	if f.Departure != nil {
		s += fmt.Sprintf(" Known: %s (%s, %s)", f.Departure.Sentence, f.Departure.By, f.Departure.Doc)
	}
	return s
}

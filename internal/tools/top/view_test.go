package top

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/gdamore/tcell/v2"
)

// lines returns what a simulated terminal shows.
func lines(s tcell.SimulationScreen) (all []string) {
	cells, width, height := s.GetContents()
	for y := range height {
		var line []rune
		for x := range width {
			line = append(line, cells[y*width+x].Runes...)
		}
		all = append(all, strings.TrimRight(string(line), " "))
	}
	return all
}

func terminal(t *testing.T, width, height int) tcell.SimulationScreen {
	t.Helper()
	s := tcell.NewSimulationScreen("UTF-8")
	if err := s.Init(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Fini)
	s.SetSize(width, height)
	return s
}

// three is a sample of three connections, n seconds after the first.
func three(n uint64) *Sample {
	s := &Sample{Time: time.Unix(int64(n), 0)}
	for i, name := range []string{"a", "b", "c"} {
		speed := uint64(i+1) * n
		s.Connections = append(s.Connections, Connection{Key: name, Type: "RC", State: "active", Local: End{"10.0.0.1", uint32(i + 1)}, Peer: End{"10.0.0." + name, 0x77},
			Counts: Counts{Sent: 100 * speed, Retransmitted: (3 - uint64(i)) * n}})
	}
	return s
}

func key(r rune) *tcell.EventKey { return tcell.NewEventKey(tcell.KeyRune, r, tcell.ModNone) }

// order returns the last letters of the peers in the rows that are shown.
func order(s tcell.SimulationScreen) (o string) {
	for _, l := range lines(s)[2:] {
		if _, after, ok := strings.Cut(l, "10.0.0.1 "); ok {
			_, after, _ = strings.Cut(after, "10.0.0.")
			o += after[:1]
		}
	}
	return o
}

func TestViewSorts(t *testing.T) {
	s := terminal(t, 160, 12)
	v := view{title: "a test", column: FindColumn("sent/s")}
	for n := range uint64(3) {
		v.update(three(n))
	}
	v.draw(s)
	all := lines(s)
	if !strings.Contains(all[0], "a test, 3 connections") || !strings.Contains(all[1], "RETX/S") || !strings.HasPrefix(all[len(all)-1], "q quit") {
		t.Errorf("%q", all)
	}
	if got := order(s); got != "cba" {
		t.Errorf("by packets sent: %s\n%s", got, strings.Join(all, "\n"))
	}
	if row := all[2]; !strings.Contains(row, "10.0.0.1 0x3") || !strings.Contains(row, " 300 ") || !strings.Contains(row, "█") {
		t.Errorf("%q", row)
	}
	for _, step := range []struct {
		key  *tcell.EventKey
		want string
	}{
		{key('r'), "abc"},
		{tcell.NewEventKey(tcell.KeyRight, 0, 0), "abc"}, // received: all equal
		{key('>'), "abc"}, // bytes: the same
		{key('>'), "abc"}, // retransmissions
		{key('r'), "cba"},
		{tcell.NewEventKey(tcell.KeyLeft, 0, 0), "abc"},
	} {
		if v.key(step.key, 9) {
			t.Fatal("it ends")
		}
		v.draw(s)
		if got := order(s); got != step.want {
			t.Errorf("%v: %s by %s, want %s", step.key.Name(), got, Columns[v.column].Name, step.want)
		}
	}
}

func TestViewKeys(t *testing.T) {
	s := terminal(t, 100, 5) // has space for two rows
	v := view{column: FindColumn("peer")}
	v.update(three(0))
	page := v.draw(s)
	if page != 2 || order(s) != "ab" {
		t.Errorf("page of %d: %s", page, order(s))
	}
	for _, step := range []struct {
		key  tcell.Key
		want string
	}{{tcell.KeyDown, "bc"}, {tcell.KeyDown, "bc"}, {tcell.KeyUp, "ab"}, {tcell.KeyEnd, "bc"}, {tcell.KeyHome, "ab"}, {tcell.KeyPgDn, "bc"}, {tcell.KeyPgUp, "ab"}} {
		v.key(tcell.NewEventKey(step.key, 0, 0), page)
		v.draw(s)
		if got := order(s); got != step.want {
			t.Errorf("%v: %s, want %s", step.key, got, step.want)
		}
	}
	v.key(key('p'), page)
	v.update(&Sample{})
	if v.draw(s); len(v.rows) != 3 || !strings.Contains(lines(s)[0], "paused") {
		t.Errorf("paused: %d rows, %q", len(v.rows), lines(s)[0])
	}
	v.key(key('p'), page)
	v.update(&Sample{Notes: []string{"something is missing"}})
	s.SetSize(100, 20)
	if v.draw(s); len(v.rows) != 0 || !strings.Contains(strings.Join(lines(s), "\n"), "note: something is missing") {
		t.Errorf("%q", lines(s))
	}
	v.key(key('?'), page)
	if v.draw(s); !strings.Contains(strings.Join(lines(s), "\n"), "CNP/S    congestion notification packets") {
		t.Errorf("%q", lines(s))
	}
	if v.key(tcell.NewEventKey(tcell.KeyEscape, 0, 0), page) || v.help {
		t.Error("Escape does not end the help")
	}
	for _, k := range []*tcell.EventKey{key('q'), tcell.NewEventKey(tcell.KeyEscape, 0, 0), tcell.NewEventKey(tcell.KeyCtrlC, 0, 0)} {
		if !v.key(k, page) {
			t.Errorf("%v does not end it", k.Name())
		}
	}
}

// scripted gives samples and then an error.
type scripted struct {
	samples []*Sample
	err     error
	ended   func()
}

func (s *scripted) Title() string { return "scripted" }

func (s *scripted) Sample(ctx context.Context) (Sample, error) {
	if len(s.samples) == 0 {
		s.ended()
		return Sample{}, s.err
	}
	next := s.samples[0]
	s.samples = s.samples[1:]
	return *next, nil
}

// Show ends after a key, after the number of samples that the caller wants, if the context ends, and with an error of the source. It
// does not end at the end of a capture.
func TestShow(t *testing.T) {
	o := Options{Interval: time.Millisecond}
	broken := errors.New("the interface is gone")
	s := terminal(t, 100, 20)
	if err := Show(t.Context(), s, &scripted{[]*Sample{three(0)}, broken, func() {}}, o); err != broken {
		t.Errorf("%v", err)
	}
	s = terminal(t, 100, 20)
	if err := Show(t.Context(), s, &scripted{[]*Sample{three(0), three(1), three(2)}, broken, func() {}}, Options{Interval: time.Millisecond, Count: 2}); err != nil {
		t.Error(err)
	}
	s = terminal(t, 100, 20)
	if err := Show(t.Context(), s, &scripted{nil, io.EOF, func() { s.InjectKey(tcell.KeyRune, 'q', 0) }}, o); err != nil {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	s = terminal(t, 100, 20)
	if err := Show(ctx, s, &scripted{nil, io.EOF, cancel}, o); err != nil {
		t.Error(err)
	}
}

func TestNumbers(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.25": 0.25, "12.5": 12.5, "123": 123, "123457": 123457, "1.23M": 1.234e6, "1.23G": 1.234e9} {
		if got := number(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
	if got := Sparkline([]float64{9, 0, 1, 2, 4}, 4); got != "▁▃▅█" {
		t.Errorf("%q", got)
	}
	if got := Sparkline([]float64{0, 0}, 4); got != "  ▁▁" {
		t.Errorf("%q", got)
	}
}

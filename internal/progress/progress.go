// Package progress shows how far a long run has come. Each step that ends is one line, with
// the time since the start and an estimate of the time that is left. On a terminal a line
// below them names the steps under way and is rewritten every second. [Context] ends a run
// in good order when the user interrupts it.
package progress

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// Meter counts the steps of a run. Its methods may be called from any goroutine.
type Meter struct {
	name  string
	w     io.Writer
	live  bool // w is a terminal
	began time.Time
	ended chan struct{}
	done  sync.WaitGroup

	mu             sync.Mutex
	lasts          time.Duration // of a run that ends by time; 0: it ends with its steps
	steps, ran     int
	planned, spent time.Duration // the usual time of all steps, and of those that ran
	under          []string      // steps under way
	drawn          bool          // the line of steps under way is on the terminal
	printed        time.Time     // the last text
}

// New starts the meter of a program's run, which prints to w.
func New(name string, w io.Writer) *Meter {
	m := newMeter(name, w)
	f, ok := w.(*os.File)
	if m.live = ok && terminal(f); m.live {
		m.done.Go(m.redraw)
	}
	return m
}

func newMeter(name string, w io.Writer) *Meter {
	return &Meter{name: name, w: w, began: time.Now(), printed: time.Now(), ended: make(chan struct{})}
}

// terminal reports whether f is a terminal on which a line can be rewritten.
func terminal(f *os.File) bool {
	s, err := f.Stat()
	term := os.Getenv("TERM")
	return err == nil && s.Mode()&os.ModeCharDevice != 0 && term != "" && term != "dumb"
}

// Plan adds steps that usually take so long each. Only the ratios of these times matter:
// the estimate of what is left follows the machine.
func (m *Meter) Plan(steps int, each time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps += steps
	m.planned += time.Duration(steps) * each
}

// Lasts says that the run ends after d, however many steps it has.
func (m *Meter) Lasts(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lasts = d
}

// Begin says that a step is under way. The caller calls end when it has ended.
func (m *Meter) Begin(step string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under = append(m.under, step)
	m.draw()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(m.under, step); i >= 0 {
			m.under = slices.Delete(m.under, i, i+1)
		}
		m.draw()
	})
}

// Step prints what came of a step with the usual time each. The first line of text is
// followed by how far the run has come.
func (m *Meter) Step(each time.Duration, text string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ran++
	m.spent += each
	first, rest, more := strings.Cut(strings.TrimSuffix(text, "\n"), "\n")
	line := fmt.Sprintf("%s  [%s]\n", first, m.position())
	if more {
		line += rest + "\n"
	}
	m.print([]byte(line))
}

// quiet is how long nothing is printed at most, as long as steps end.
const quiet = 10 * time.Second

// Count counts a step of a run with too many of them for a line each. It prints how far
// the run has come, and what the step was, if nothing was printed for a while.
func (m *Meter) Count(each time.Duration, step string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ran++
	m.spent += each
	if !m.live && time.Since(m.printed) >= quiet {
		m.print(fmt.Appendf(nil, "%s: %s, %s\n", m.name, m.position(), step))
		return
	}
	m.draw()
}

// Write prints text that ends with a newline.
func (m *Meter) Write(text []byte) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(text), m.print(text)
}

// Close ends the meter and prints how far the run came, and err if it is not nil.
func (m *Meter) Close(err error) {
	close(m.ended)
	m.done.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.under = nil
	line := fmt.Sprintf("%s: %d steps in %s", m.name, m.ran, clock(time.Since(m.began)))
	if m.steps > 0 {
		line = fmt.Sprintf("%s: %d of %d steps in %s", m.name, m.ran, m.steps, clock(time.Since(m.began)))
	}
	if err != nil {
		line += ": " + err.Error()
	}
	m.wipe()
	m.live = false
	fmt.Fprintln(m.w, line)
}

// Position says how far the run has come: "12/210, 1:05, 17:40 left".
func (m *Meter) Position() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.position()
}

func (m *Meter) position() string {
	took := time.Since(m.began)
	s := fmt.Sprintf("%d, %s", m.ran, clock(took))
	if m.steps > 0 {
		s = fmt.Sprintf("%d/%d, %s", m.ran, m.steps, clock(took))
	}
	switch {
	case m.lasts > 0:
		s += fmt.Sprintf(", %s left", clock(max(0, m.lasts-took)))
	case m.spent > 0:
		left := float64(took) * float64(max(0, m.planned-m.spent)) / float64(m.spent)
		s += fmt.Sprintf(", %s left", clock(time.Duration(left)))
	}
	return s
}

// clock prints a time as minutes and seconds, with hours if there are some.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// redraw rewrites the line of steps under way every second.
func (m *Meter) redraw() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-m.ended:
			return
		case <-tick.C:
			m.mu.Lock()
			m.draw()
			m.mu.Unlock()
		}
	}
}

// print writes text above the line of steps under way.
func (m *Meter) print(text []byte) error {
	m.wipe()
	m.printed = time.Now()
	_, err := m.w.Write(text)
	m.draw()
	return err
}

// width is the most a line under way may take: a longer one would wrap, and could not be
// wiped.
const width = 79

func (m *Meter) draw() {
	if !m.live {
		return
	}
	line := []rune(m.position() + "  " + strings.Join(m.under, ", "))
	if len(line) > width {
		line = append(line[:width-1], '…')
	}
	fmt.Fprintf(m.w, "\r\x1b[K%s", string(line))
	m.drawn = true
}

func (m *Meter) wipe() {
	if m.live && m.drawn {
		fmt.Fprint(m.w, "\r\x1b[K")
		m.drawn = false
	}
}

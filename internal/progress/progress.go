// Package progress shows the progress of a long run. Each step that ends is one line, with the time since
// the start and an estimate of the remaining time. On a terminal a line below names the running steps; it
// is rewritten every second. [Context] ends a run in good order when the user interrupts it.
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
	lasts          time.Duration // the run ends after that time; 0: it ends with its steps
	steps, ran     int           // planned, and ended
	planned, spent time.Duration // usual time of the planned steps, and of those that ended
	running        []string      // steps
	drawn          bool          // the line of running steps is on the terminal
	printed        time.Time     // time of the last text
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

// terminal reports whether f is a terminal that can rewrite a line.
func terminal(f *os.File) bool {
	s, err := f.Stat()
	term := os.Getenv("TERM")
	return err == nil && s.Mode()&os.ModeCharDevice != 0 && term != "" && term != "dumb"
}

// Plan adds steps with their usual time each. Only the ratios of these times matter, because the estimate
// follows the speed of the machine.
func (m *Meter) Plan(steps int, each time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.steps += steps
	m.planned += time.Duration(steps) * each
}

// Lasts declares that the run ends after d, whatever the number of its steps.
func (m *Meter) Lasts(d time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.lasts = d
}

// Begin notes that a step begins. The caller calls end when the step has ended.
func (m *Meter) Begin(step string) (end func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = append(m.running, step)
	m.draw()
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if i := slices.Index(m.running, step); i >= 0 {
			m.running = slices.Delete(m.running, i, i+1)
		}
		m.draw()
	})
}

// Step prints the result of a step with the usual time each. The progress of the run follows the first line
// of text.
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

// quiet is the longest time without a line, as long as steps end.
const quiet = 10 * time.Second

// Count counts a step of a run that has too many steps for a line each. It prints the progress and the
// step if nothing was printed for a while.
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

// Close ends the meter and prints the progress, and err if it is not nil.
func (m *Meter) Close(err error) {
	close(m.ended)
	m.done.Wait()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.running = nil
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

// Position returns the progress of the run: "12/210, 1:05, 17:40 left".
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

// clock formats a time as minutes and seconds, with hours if it is long.
func clock(d time.Duration) string {
	s := int(d.Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}

// redraw rewrites the line of running steps every second.
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

// print writes text above the line of running steps.
func (m *Meter) print(text []byte) error {
	m.wipe()
	m.printed = time.Now()
	_, err := m.w.Write(text)
	m.draw()
	return err
}

// width is the longest line of running steps. A longer one would wrap, and could not be erased.
const width = 79

func (m *Meter) draw() {
	if !m.live {
		return
	}
	line := []rune(m.position() + "  " + strings.Join(m.running, ", "))
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

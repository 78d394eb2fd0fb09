package top

import (
	"fmt"
	"unicode/utf8"

	"github.com/gdamore/tcell/v2"

	"github.com/goroce/roce/internal/tools/nics"
)

// view is the content of the terminal: a table that is sorted by a column. It starts no goroutine.
type view struct {
	title   string
	meter   Meter
	sample  Sample
	rows    []Row
	column  int
	reverse bool
	first   int // row at the top
	paused  bool
	help    bool
	failed  error
}

// update shows the next sample. If the view is paused, it ignores the sample; the rates after the pause are then computed from
// the last sample that was shown.
func (v *view) update(s *Sample) {
	if v.paused {
		return
	}
	v.sample, v.rows = *s, v.meter.Rows(s)
	v.sort()
}

func (v *view) sort() { Sort(v.rows, v.column, v.reverse) }

// key handles a key. page is the number of rows on the screen. It returns true if the program has to end.
func (v *view) key(k *tcell.EventKey, page int) (quit bool) {
	move := 0
	switch k.Key() {
	case tcell.KeyEscape:
		if !v.help {
			return true
		}
		v.help = false
	case tcell.KeyCtrlC:
		return true
	case tcell.KeyLeft:
		v.choose(-1)
	case tcell.KeyRight:
		v.choose(1)
	case tcell.KeyUp:
		move = -1
	case tcell.KeyDown:
		move = 1
	case tcell.KeyPgUp:
		move = -page
	case tcell.KeyPgDn:
		move = page
	case tcell.KeyHome:
		move = -len(v.rows)
	case tcell.KeyEnd:
		move = len(v.rows)
	case tcell.KeyRune:
		switch k.Rune() {
		case 'q':
			return true
		case '<':
			v.choose(-1)
		case '>':
			v.choose(1)
		case 'r':
			v.reverse = !v.reverse
			v.sort()
		case 'p', ' ':
			v.paused = !v.paused
		case '?', 'h':
			v.help = !v.help
		}
	}
	v.first = max(0, min(v.first+move, len(v.rows)-page))
	return false
}

// choose sorts by the next column to the right or to the left.
func (v *view) choose(step int) {
	v.column = (v.column + step + len(Columns)) % len(Columns)
	v.reverse = false
	v.sort()
}

var (
	plain    = tcell.StyleDefault
	strong   = plain.Bold(true)
	heading  = plain.Reverse(true)
	trouble  = plain.Foreground(tcell.ColorRed)
	caution  = plain.Foreground(tcell.ColorYellow)
	minSpark = 10
)

// draw draws everything and returns how many rows fit on the screen.
func (v *view) draw(s tcell.Screen) (page int) {
	s.Clear()
	width, height := s.Size()
	status := fmt.Sprintf("rocectl top: %s, %d connections", v.title, len(v.rows))
	if !v.sample.Time.IsZero() {
		status += ", " + v.sample.Time.Format("15:04:05")
	}
	if v.paused {
		status += ", paused"
	}
	put(s, 0, 0, width, status, strong)
	bottom := height - 1
	put(s, 0, bottom, width, "q quit  ←→ sort  r reverse  ↑↓ scroll  p pause  ? help", heading)
	notes := v.sample.Notes
	if v.failed != nil {
		notes = append(notes[:len(notes):len(notes)], v.failed.Error())
	}
	for i := len(notes) - 1; i >= 0 && bottom > height/2; i-- {
		bottom--
		put(s, 0, bottom, width, "note: "+notes[i], caution)
	}
	page = max(bottom-2, 1)
	if v.help {
		v.drawHelp(s, width, bottom)
	} else {
		v.drawTable(s, width, page)
	}
	s.Show()
	return page
}

func (v *view) drawHelp(s tcell.Screen, width, bottom int) {
	for i, c := range Columns {
		if 2+i < bottom {
			put(s, 0, 2+i, width, fmt.Sprintf("%-8s %s", c.Name, c.Help), plain)
		}
	}
}

// drawTable draws the head and the rows that fit, each with a sparkline of its packet rate.
func (v *view) drawTable(s tcell.Screen, width, page int) {
	v.first = max(0, min(v.first, len(v.rows)-page))
	shown := v.rows[v.first:min(len(v.rows), v.first+page)]
	cells := make([][]string, len(shown))
	widths := make([]int, len(Columns))
	for i, c := range Columns {
		widths[i] = len(c.Name)
		for r := range shown {
			cell := nics.Printable(c.cell(&shown[r]))
			cells[r] = append(cells[r], cell)
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	put(s, 0, 1, width, "", heading)
	x := 0
	for i, c := range Columns {
		style := heading
		if i == v.column {
			style = heading.Bold(true).Underline(true)
		}
		put(s, x, 1, width, align(c.Name, widths[i], c.number), style)
		for r := range shown {
			put(s, x, 2+r, width, align(cells[r][i], widths[i], c.number), styleOf(&shown[r]))
		}
		x += widths[i] + 2
	}
	if left := width - x; left >= minSpark {
		put(s, x, 1, width, "PACKETS/S", heading)
		for r := range shown {
			put(s, x, 2+r, width, Sparkline(shown[r].History, min(left, historyLen)), plain)
		}
	}
}

// styleOf returns the style of a row: connections with errors or retransmissions have a colour.
func styleOf(r *Row) tcell.Style {
	switch {
	case r.State == "ERR" || r.State == "SQE" || r.State == "refused":
		return trouble
	case r.Rates.Retransmitted+r.Rates.Timeouts+r.Rates.NAKs+r.Rates.RNRs+r.Rates.CNPs > 0 || r.State == "waiting":
		return caution
	}
	return plain
}

// align fills a text up to a width.
func align(text string, width int, right bool) string {
	if right {
		return fmt.Sprintf("%*s", width, text)
	}
	return fmt.Sprintf("%-*s", width, text)
}

// put writes a text and cuts it at column end. With the style heading, it also fills the rest of the line.
func put(s tcell.Screen, x, y, end int, text string, style tcell.Style) {
	for _, r := range text {
		if x >= end {
			return
		}
		s.SetContent(x, y, r, nil, style)
		x++
	}
	for ; style == heading && x < end; x++ {
		s.SetContent(x, y, ' ', nil, style)
	}
}

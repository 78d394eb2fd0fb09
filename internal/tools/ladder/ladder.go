// Package ladder draws packets as a sequence diagram in plain text: a column
// per host, an arrow per packet, time going down.
//
//	           10.0.0.1                              10.0.0.2
//	0.000000       |                                     |
//	               |-- READ_REQUEST psn 0x12 len 4096 -->|
//	0.000041       |<-- READ_RESPONSE_FIRST psn 0x12 ----|
package ladder

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Step is one arrow.
type Step struct {
	At       time.Duration // since the first packet
	From, To string        // the hosts; the columns appear in this order
	Label    string        // on the arrow
	Note     string        // right of the diagram: "again", "ICRC BAD"; may be empty
	Lost     bool          // the arrow does not arrive
}

// Sizes of columns, in characters.
const (
	timeWidth = 12
	minGap    = 24 // between two columns, so that an arrow is seen as one
	maxGap    = 86 // longer labels are cut
)

// Draw writes the diagram of steps to w. It writes nothing if there are no steps.
func Draw(w io.Writer, steps []Step) error {
	if len(steps) == 0 {
		return nil
	}
	d := newDiagram(steps)
	var b strings.Builder
	d.header(&b)
	for i := range steps {
		d.arrow(&b, &steps[i])
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// diagram is the layout of the columns.
type diagram struct {
	hosts []string
	gap   int // characters between two neighbouring columns
	left  int // of the first column
}

func newDiagram(steps []Step) *diagram {
	d := &diagram{gap: minGap}
	for _, s := range steps {
		from, to := d.column(s.From), d.column(s.To)
		// An arrow over several columns has room for a longer label.
		spans := max(1, to-from, from-to)
		d.gap = max(d.gap, (utf8.RuneCountInString(s.Label)+len("<--  ---")+spans-1)/spans)
	}
	d.gap = min(d.gap, maxGap)
	for _, h := range d.hosts {
		d.gap = max(d.gap, len(h)+2)
	}
	d.left = timeWidth + 2 + len(d.hosts[0])/2
	return d
}

// column returns the index of a host, adding it when it is new.
func (d *diagram) column(host string) int {
	if i := slices.Index(d.hosts, host); i >= 0 {
		return i
	}
	d.hosts = append(d.hosts, host)
	return len(d.hosts) - 1
}

func (d *diagram) at(column int) int { return d.left + column*(d.gap+1) }

// header writes the names of the hosts, centred on their columns.
func (d *diagram) header(b *strings.Builder) {
	var line []rune
	for i, h := range d.hosts {
		line = put(line, d.at(i)-len(h)/2, h)
	}
	b.WriteString(string(line) + "\n")
}

// arrow writes one line: the time, the columns, and the arrow between two of them.
func (d *diagram) arrow(b *strings.Builder, s *Step) {
	line := put(nil, 0, fmt.Sprintf("%*.6f", timeWidth, s.At.Seconds()))
	for i := range d.hosts {
		line = put(line, d.at(i), "|")
	}
	from, to := d.column(s.From), d.column(s.To)
	left, right := d.at(min(from, to))+1, d.at(max(from, to))-1
	if from == to { // a packet from a host to itself
		line = put(line, left, "-> "+s.Label)
	} else {
		line = put(line, left, shaft(s, right-left+1, from < to))
	}
	if s.Note != "" {
		line = put(line, d.at(len(d.hosts)-1)+3, s.Note)
	}
	b.WriteString(string(line) + "\n")
}

// shaft returns the arrow: width characters with its head and label.
func shaft(s *Step, width int, rightward bool) string {
	label := s.Label
	if room := width - len("<--  ---"); utf8.RuneCountInString(label) > room {
		label = string([]rune(label)[:max(0, room-1)]) + "…"
	}
	dashes := strings.Repeat("-", max(1, width-len("--  >")-utf8.RuneCountInString(label)))
	head := map[bool]string{false: ">", true: "X"}[s.Lost]
	if rightward {
		return "-- " + label + " " + dashes + head
	}
	if !s.Lost {
		head = "<"
	}
	return head + "-- " + label + " " + dashes
}

// put writes text into line at a column, widening it as needed.
func put(line []rune, at int, text string) []rune {
	for i, r := range []rune(text) {
		for len(line) <= at+i {
			line = append(line, ' ')
		}
		line[at+i] = r
	}
	return line
}

package top

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/goroce/roce/internal/tools/nics"
)

// Column is a column of the table.
type Column struct {
	Name   string // in the head of the table and, in lower case, for --sort
	Help   string
	cell   func(*Row) string
	order  func(a, b *Row) int // the sort order; nil: that of the text of the cells
	number bool                // the cell is aligned at the right
}

// Columns are all columns in their order.
var Columns = []Column{
	{"PROCESS", "number and name of the process", process, func(a, b *Row) int { return cmp.Compare(a.PID, b.PID) }, false},
	{"DEVICE", "driver, and interface or address; \", exclusive\": the process has that for itself", device, nil, false},
	{"TYPE", "service", func(r *Row) string { return r.Type }, nil, false},
	{"LOCAL", "address and queue pair of this end", func(r *Row) string { return r.Local.String() }, nil, false},
	{"PEER", "address and queue pair of the peer", func(r *Row) string { return r.Peer.String() }, nil, false},
	{"STATE", "state of the queue pair; of packets: what they show", func(r *Row) string { return r.State }, nil, false},
	rate("SENT/S", "packets to the peer in a second", func(r *Rates) float64 { return r.Sent }),
	rate("RECV/S", "packets of the peer in a second", func(r *Rates) float64 { return r.Received }),
	rate("MB/S", "payload both ways, in megabytes a second", func(r *Rates) float64 { return (r.SentBytes + r.ReceivedBytes) / 1e6 }),
	rate("RETX/S", "packets sent again in a second", func(r *Rates) float64 { return r.Retransmitted }),
	rate("NAK/S", "NAKs both ways in a second, without RNR NAKs", func(r *Rates) float64 { return r.NAKs }),
	rate("RNR/S", "receiver-not-ready NAKs both ways in a second", func(r *Rates) float64 { return r.RNRs }),
	rate("CNP/S", "congestion notification packets both ways in a second", func(r *Rates) float64 { return r.CNPs }),
	{"RTT", "smoothed round trip in microseconds", func(r *Row) string { return number(r.RTT) }, func(a, b *Row) int { return cmp.Compare(b.RTT, a.RTT) }, true},
	{"FLIGHT", "packets in flight", func(r *Row) string { return fmt.Sprint(r.InFlight) }, func(a, b *Row) int { return cmp.Compare(b.InFlight, a.InFlight) }, true},
}

// rate returns a column for a rate. The highest rate is first in the sort order.
func rate(name, help string, of func(*Rates) float64) Column {
	return Column{name, help, func(r *Row) string {
		if r.New {
			return "-"
		}
		return number(of(&r.Rates))
	}, func(a, b *Row) int { return cmp.Compare(of(&b.Rates), of(&a.Rates)) }, true}
}

// FindColumn returns the index of the column with a name, -1 if there is none.
func FindColumn(name string) int {
	return slices.IndexFunc(Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) })
}

// Names lists the names of the columns, in lower case.
func Names() (all []string) {
	for _, c := range Columns {
		all = append(all, strings.ToLower(c.Name))
	}
	return all
}

// Sort sorts rows by a column. Rows with equal cells are sorted by their keys, so that their order does not change between samples.
func Sort(rows []Row, column int, reverse bool) {
	c := &Columns[column]
	slices.SortStableFunc(rows, func(a, b Row) int {
		var by int
		if c.order != nil {
			by = c.order(&a, &b)
		} else {
			by = strings.Compare(c.cell(&a), c.cell(&b))
		}
		if reverse {
			by = -by
		}
		return cmp.Or(by, strings.Compare(a.Key, b.Key))
	})
}

func process(r *Row) string {
	if r.PID == 0 {
		return "-"
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", r.PID, nics.Printable(r.Program)))
}

func device(r *Row) string {
	switch {
	case r.Device == "":
		return "-"
	case r.Alone:
		return r.Device + ", exclusive"
	}
	return r.Device
}

// String returns the address and the queue pair, like "10.0.0.1 0x12". It leaves out what is not known, and returns "-" if neither is known.
func (e End) String() string {
	switch {
	case e.Addr == "" && e.QPN == 0:
		return "-"
	case e.QPN == 0:
		return e.Addr
	case e.Addr == "":
		return fmt.Sprintf("%#x", e.QPN)
	}
	return fmt.Sprintf("%s %#x", e.Addr, e.QPN)
}

// number formats a number with at least three digits, except 0: 0, 0.25, 12.5, 1234, 1.23M.
func number(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 10:
		return fmt.Sprintf("%.2f", v)
	case v < 100:
		return fmt.Sprintf("%.1f", v)
	case v < 1e6:
		return fmt.Sprintf("%.0f", v)
	case v < 1e9:
		return fmt.Sprintf("%.2fM", v/1e6)
	}
	return fmt.Sprintf("%.2fG", v/1e9)
}

// bars are the heights of a sparkline.
var bars = []rune("▁▂▃▄▅▆▇█")

// Sparkline draws the newest values, one for each of width characters, relative to the highest of them.
func Sparkline(values []float64, width int) string {
	values = values[max(0, len(values)-width):]
	most := 0.0
	for _, v := range values {
		most = max(most, v)
	}
	line := []rune(strings.Repeat(" ", width-len(values)))
	for _, v := range values {
		at := 0
		if most > 0 {
			at = min(int(v/most*float64(len(bars))), len(bars)-1)
		}
		line = append(line, bars[at])
	}
	return string(line)
}

// WriteText prints the rows as a table.
func WriteText(w io.Writer, s *Sample, rows []Row) error {
	fmt.Fprintf(w, "%s, %d connections\n", s.Time.Format("15:04:05"), len(rows))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	var heads []string
	for _, c := range Columns {
		heads = append(heads, c.Name)
	}
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for i := range rows {
		var cells []string
		for _, c := range Columns {
			cells = append(cells, nics.Printable(c.cell(&rows[i])))
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range s.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// JSON is a sample as one object of a stream.
type JSON struct {
	Time        string   `json:"time"` // RFC 3339, with nanoseconds
	Source      string   `json:"source"`
	Connections []Row    `json:"connections"`
	Notes       []string `json:"notes,omitempty"`
}

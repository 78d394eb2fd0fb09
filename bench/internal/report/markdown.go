package report

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// table writes a Markdown table.
func table(w io.Writer, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = "---"
		if i > 0 {
			rule[i] = "--:"
		}
	}
	line(rule)
	for _, r := range rows {
		for i, c := range r {
			r[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		line(r)
	}
	fmt.Fprintln(w)
}

// known prints a value, or a dash if it is unknown.
func known(v float64, f func(float64) string) string {
	if v <= 0 {
		return "–"
	}
	return f(v)
}

func sizeName(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return strconv.Itoa(n>>20) + " MiB"
	case n >= 1<<10 && n%(1<<10) == 0:
		return strconv.Itoa(n>>10) + " KiB"
	}
	return strconv.Itoa(n) + " B"
}

// markdown writes everything.
func markdown(w io.Writer, d *data, plots []string) {
	e := d.Environment
	fmt.Fprintf(w, "# Figures\n\n")
	if e.Quick {
		fmt.Fprintf(w, "**A quick run: it shows that everything works. Its figures mean nothing.**\n\n")
	}
	fmt.Fprintf(w, "Made by `go run ./bench` in %.0f s on %s: %s, Linux %s, %s, core %d for one side and core %d for the other%s. "+
		"Medians; [docs/benchmarks.md](../../docs/benchmarks.md) says how it is done and how to read it.\n\n",
		e.Took, e.Time.Format("2 January 2006"), e.CPU, e.Kernel, e.Go, e.Cores[0], e.Cores[1], commit(e))
	for _, n := range e.Notes {
		fmt.Fprintf(w, "- %s\n", n)
	}
	if len(e.Notes) > 0 {
		fmt.Fprintln(w)
	}
	plot := func(name, alt string) {
		for _, p := range plots {
			if p == name {
				fmt.Fprintf(w, "![%s](%s)\n\n", alt, name)
			}
		}
	}

	fmt.Fprintf(w, "## Targets\n\n")
	d.targetTable(w)

	for _, pmtu := range d.pmtus {
		fmt.Fprintf(w, "## Goodput, path MTU %d\n\n", pmtu)
		plot(fmt.Sprintf("goodput-%d.svg", pmtu), fmt.Sprintf("goodput by size, path MTU %d", pmtu))
		d.goodputTable(w, pmtu)
	}
	if d.has(result.Alternating) {
		fmt.Fprintf(w, "## READ to WRITE\n\nBoth in turns of 10 ms, posted by one end and then by the other: the ratio of READs to WRITEs that move data the same way, "+
			"in the direction in which WRITEs are slower for the moment. In brackets that of both directions together, which is less where processors are unequal: docs/benchmarks.md.\n\n")
		d.contestTable(w)
	}
	if d.has(result.Blast, result.IPerf) {
		fmt.Fprintf(w, "## What the links carry\n\nPackets without a protocol, CRC and copy at both ends, by sockets and by the drivers of this stack; and iperf3.\n\n")
		d.ceilingTable(w)
	}
	if d.has(result.Stream) {
		fmt.Fprintf(w, "## Messages a second\n\n")
		plot("messages.svg", "messages a second by size")
		d.rateTable(w)
	}
	if d.has(result.Latency, result.Ping, result.TCPLatency) {
		fmt.Fprintf(w, "## 64 bytes there and back, µs\n\n")
		plot("latency.svg", "distribution of latencies")
		d.latencyTable(w)
	}
	if d.has(result.Scaling) {
		fmt.Fprintf(w, "## Many queue pairs\n\nSEND of 64 bytes, 16 to one queue pair after the other; million messages a second, all together.\n\"× one\": to one that takes turns with them.\n\n")
		plot("scaling.svg", "messages a second by queue pairs, goodput by loss")
		d.scalingTable(w)
	}
	if d.has(result.Loss) {
		fmt.Fprintf(w, "## Loss\n\nWRITE of 1 MiB, path MTU 4096, packets lost at random both ways.\n\n")
		d.lossTable(w)
	}
	if d.has(result.Connect, result.TCPConnect) {
		fmt.Fprintf(w, "## Connections a second\n\nDialled, accepted and closed, 32 at a time, by the connection manager; a Go program does the same with TCP.\n\n")
		d.connectTable(w)
	}
	if d.has(result.Engine, result.Memory) {
		fmt.Fprintf(w, "## Engine and memory\n\n")
		d.engineTable(w)
	}
	for i, r := range d.rxe {
		if i == 0 {
			fmt.Fprintf(w, "## Beside rxe\n\n")
		}
		fmt.Fprintf(w, "%s\n\n", r.about())
		r.table(w)
	}
	d.errors(w)
}

func commit(e result.Environment) string {
	if e.Commit == "" {
		return ""
	}
	return ", commit " + e.Commit
}

// has reports whether there is something of one of the kinds.
func (d *data) has(kinds ...string) bool {
	for _, p := range d.Points {
		for _, k := range kinds {
			if p.Spec.Kind == k && len(p.Rounds) > 0 {
				return true
			}
		}
	}
	return false
}

func (d *data) targetTable(w io.Writer) {
	var rows [][]string
	for _, t := range targets() {
		v, of := t.measure(d)
		verdict := t.verdict(v)
		measured := "–"
		if verdict != "not measured" {
			measured = t.format(v)
		}
		if of != "" {
			measured += " (" + of + ")"
		}
		sign := "≥ "
		if t.atMost {
			sign = "≤ "
		}
		rows = append(rows, []string{t.what, measured, sign + t.format(t.least), sign + t.format(t.aim), verdict})
	}
	table(w, []string{"what", "measured", "at least", "aim", ""}, rows)
}

func (d *data) goodputTable(w io.Writer, pmtu int) {
	head := []string{"Gb/s"}
	for _, l := range d.links {
		head = append(head, l, "× TCP", "× bare")
	}
	var rows [][]string
	tcp := d.tcp("offloads", pmtu).Goodput()
	for _, op := range d.listed {
		for _, size := range d.sizes {
			row, any := []string{op + " " + sizeName(size)}, false
			for _, l := range d.links {
				v := d.stream(l, op, size, pmtu).Goodput()
				bare := 0.0
				if size >= pmtu || size == smallSize {
					bare = d.blast(l, min(size, pmtu), pmtu).Goodput()
				}
				any = any || v > 0
				row = append(row, known(v/1e9, two), known(stats.Ratio(v, tcp), two), known(stats.Ratio(v, bare), two))
			}
			if any {
				rows = append(rows, row)
			}
		}
	}
	table(w, head, rows)
}

func (d *data) contestTable(w io.Writer) {
	head := []string{"size"}
	for _, pmtu := range d.pmtus {
		for _, l := range d.links {
			head = append(head, fmt.Sprintf("%s, path MTU %d", l, pmtu))
		}
	}
	var rows [][]string
	for _, size := range result.Values(d.Run, result.Alternating, func(s harness.Spec) int { return s.Size }) {
		row := []string{sizeName(size)}
		for _, pmtu := range d.pmtus {
			for _, l := range d.links {
				row = append(row, contestCell(d.contest(l, size, pmtu)))
			}
		}
		rows = append(rows, row)
	}
	table(w, head, rows)
}

// contestCell is the ratio in the slower direction, and that of both.
func contestCell(p *result.Point) string {
	cell := known(p.Median(ratioOf), two)
	if both := p.Median(func(m harness.Measure) float64 { return m.Extra["both"] }); both > 0 {
		cell += " (" + two(both) + ")"
	}
	return cell
}

func two(v float64) string   { return fmt.Sprintf("%.2f", v) }
func three(v float64) string { return fmt.Sprintf("%.3f", v) }
func one(v float64) string   { return fmt.Sprintf("%.1f", v) }
func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func (d *data) ceilingTable(w io.Writer) {
	sizes := result.Values(d.Run, result.Blast, func(s harness.Spec) int { return s.Size })
	pmtus := result.Values(d.Run, result.Blast, func(s harness.Spec) int { return s.PMTU })
	var rows [][]string
	for _, l := range d.links {
		for _, by := range []struct {
			name string
			get  func(link string, size, pmtu int) *result.Point
		}{{"sockets", d.blast}, {"our driver", d.driver}} {
			for _, pmtu := range pmtus {
				for _, size := range sizes {
					if p := by.get(l, size, pmtu); p != nil {
						rows = append(rows, []string{fmt.Sprintf("%s, %s, payload %s, interface MTU for %d", l, by.name, sizeName(size), pmtu),
							known(p.Goodput()/1e9, two), known(p.Rate()/1e6, three), p.Rounds[0].Mode})
					}
				}
			}
		}
	}
	for _, pmtu := range []int{1024, 4096} {
		for _, how := range [][2]string{{"offloads", "default offloads"}, {"plain", "all offloads off"}} {
			if p := d.tcp(how[0], pmtu); p != nil {
				rows = append(rows, []string{fmt.Sprintf("TCP, %s, interface MTU %d", how[1], p.Spec.PMTU), known(p.Goodput()/1e9, two), "–", "iperf3"})
			}
		}
	}
	table(w, []string{"link", "Gb/s", "million packets/s", "how"}, rows)
}

func (d *data) rateTable(w io.Writer) {
	head := []string{"million/s"}
	for _, l := range d.links {
		for _, pmtu := range d.pmtus {
			head = append(head, fmt.Sprintf("%s, PMTU %d", l, pmtu))
		}
	}
	var rows [][]string
	for _, op := range d.ops {
		for _, size := range d.sizes {
			if size > 16<<10 {
				continue
			}
			row := []string{op + " " + sizeName(size)}
			for _, l := range d.links {
				for _, pmtu := range d.pmtus {
					row = append(row, known(d.stream(l, op, size, pmtu).Rate()/1e6, three))
				}
			}
			rows = append(rows, row)
		}
	}
	table(w, head, rows)
}

func (d *data) latencyTable(w io.Writer) {
	var rows [][]string
	add := func(name string, p, to *result.Point) {
		if p == nil {
			return
		}
		rows = append(rows, []string{name, one(p50(p)), one(quantile(p, func(l *harness.Latency) float64 { return l.P99 })),
			one(quantile(p, func(l *harness.Latency) float64 { return l.P999 })), known(stats.Ratio(p50(p), p50(to)), two)})
	}
	for _, l := range d.links {
		add("bare "+l+" packets", d.ping(l, false), nil)
		add("bare "+l+" packets, sockets not connected", d.unconnected(l), d.ping(l, false))
		add("packets by our driver "+l, d.ping(l, true), d.ping(l, false))
		add("SEND over "+l+", polled", d.latency(l, false), d.ping(l, false))
	}
	tcp := d.tcpLatency()
	for _, l := range d.links {
		add("SEND over "+l+", background", d.latency(l, true), tcp)
		add("SEND over "+l+", background, sleeping at once", d.sleeping(l), tcp)
	}
	add("TCP, net.Conn", tcp, nil)
	table(w, []string{"", "p50", "p99", "p99.9", "× bare; background: × TCP"}, rows)
}

func (d *data) scalingTable(w io.Writer) {
	head := []string{"queue pairs"}
	for _, l := range d.links {
		head = append(head, l, "× one")
	}
	var rows [][]string
	for _, n := range d.qps {
		row := []string{strconv.Itoa(n)}
		for _, l := range d.links {
			p := d.scaling(l, n)
			v, _ := manyToOne(p)
			row = append(row, known(p.Rate()/1e6, three), known(v, two))
		}
		rows = append(rows, row)
	}
	table(w, head, rows)
}

func (d *data) lossTable(w io.Writer) {
	var rows [][]string
	for _, l := range d.links {
		for _, loss := range result.Values(d.Run, result.Loss, func(s harness.Spec) float64 { return s.Loss }) {
			p := d.loss(l, loss)
			if p == nil {
				continue
			}
			again := p.Sum(func(m harness.Measure) float64 { return float64(m.Retrans) }) / max(p.Sum(func(m harness.Measure) float64 { return float64(m.Packets) }), 1)
			rows = append(rows, []string{fmt.Sprintf("%s, %g %%", l, loss*100), known(p.Goodput()/1e9, two), known(stats.Ratio(p.Goodput(), d.loss(l, 0).Goodput()), two),
				fmt.Sprintf("%.2f %%", 100*again)})
		}
	}
	table(w, []string{"lost", "Gb/s", "× lossless", "packets sent again"}, rows)
}

func (d *data) connectTable(w io.Writer) {
	var rows [][]string
	tcp := d.Find(harness.Spec{Kind: result.TCPConnect, Link: "tcp", PMTU: smallPMTU})
	for _, l := range d.links {
		if p := d.Find(harness.Spec{Kind: result.Connect, Link: l, PMTU: smallPMTU}); p != nil {
			rows = append(rows, []string{l, whole(p.Rate()), known(stats.Ratio(p.Rate(), tcp.Rate()), two)})
		}
	}
	if tcp != nil {
		rows = append(rows, []string{"TCP", whole(tcp.Rate()), "1.00"})
	}
	table(w, []string{"", "connections/s", "× TCP"}, rows)
}

func (d *data) engineTable(w io.Writer) {
	var rows [][]string
	for _, p := range d.Points {
		extra := func(name string) float64 { return p.Median(func(m harness.Measure) float64 { return m.Extra[name] }) }
		switch {
		case len(p.Rounds) == 0:
		case p.Spec.Kind == result.Engine:
			rows = append(rows, []string{strings.TrimPrefix(p.Name, "engine/"), nanos(p.Median(func(m harness.Measure) float64 { return m.Value })), nanos(extra("ns/op")), whole(extra("allocs/op"))})
		case p.Spec.Kind == result.Memory:
			fmt.Fprintf(w, "An idle connected RC queue pair with the default sizes takes %s of heap (%d of them made).\n\n",
				octets(p.Median(func(m harness.Measure) float64 { return m.Value })), p.Spec.QPs)
		}
	}
	table(w, []string{"`go test ./qp -bench Engine` (alone: `-tags noicrc`)", "a packet, both ends", "an operation", "allocations"}, rows)
}

// errors lists what did not work, and what had to be sent again though nothing was
// to be lost.
func (d *data) errors(w io.Writer) {
	var lines []string
	for _, p := range d.Points {
		for _, e := range p.Errors {
			lines = append(lines, fmt.Sprintf("%s: %s", p.Name, e))
		}
		again := p.Sum(func(m harness.Measure) float64 { return float64(m.Retrans) })
		if packets := p.Sum(func(m harness.Measure) float64 { return float64(m.Packets) }); p.Spec.Kind == result.Stream && again > packets/1000 {
			lines = append(lines, fmt.Sprintf("%s: %.1f %% of the packets had to be sent again", p.Name, 100*again/packets))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "## Trouble\n\n- %s\n", strings.Join(lines, "\n- "))
	}
}

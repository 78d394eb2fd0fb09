package report

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/stats"
)

// table writes a Markdown table, unless there are no rows.
func table(w io.Writer, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	line(head)
	rule := slices.Repeat([]string{"--:"}, len(head))
	rule[0] = "---"
	line(rule)
	for _, r := range rows {
		for i, c := range r {
			r[i] = strings.ReplaceAll(c, "|", `\|`)
		}
		line(r)
	}
	fmt.Fprintln(w)
}

// byLinks returns the head of a table with some columns for each link, in whose names %s is the link.
func (d *data) byLinks(first string, columns ...string) []string {
	head := []string{first}
	for _, l := range d.links {
		for _, c := range columns {
			head = append(head, strings.ReplaceAll(c, "%s", l))
		}
	}
	return head
}

// known formats a value, or returns a dash if it is unknown.
func known(v float64, f func(float64) string) string {
	if v <= 0 {
		return "–"
	}
	return f(v)
}

func one(v float64) string   { return fmt.Sprintf("%.1f", v) }
func two(v float64) string   { return fmt.Sprintf("%.2f", v) }
func three(v float64) string { return fmt.Sprintf("%.3f", v) }
func whole(v float64) string { return fmt.Sprintf("%.0f", v) }

func sizeName(n int) string { return result.SizeName(n, " ") }

// section is a part of the report. It is left out if there are no values of its kinds.
type section struct {
	title, intro string
	kinds        []string
	plot, alt    string // file name and description of a plot, if there is one
	table        func(d *data, w io.Writer)
}

// sections lists the parts after the targets and the goodput.
var sections = []section{
	{"READ to WRITE", "READs and WRITEs alternate every 10 ms, posted by one end and then by the other. The value is the ratio of READs to WRITEs that move data in the same direction, " +
		"for the direction in which WRITEs are slower at the time. In brackets: the ratio for both directions together, which is lower if the processors are unequal (docs/benchmarks.md).",
		[]string{result.Alternating}, "", "", (*data).readWriteTable},
	{"Upper bounds of the links", "Packets without a protocol, with CRC and copy at both ends, by sockets and by the drivers of this stack; and iperf3.",
		[]string{result.Blast, result.IPerf}, "", "", (*data).ceilingTable},
	{"Messages a second", "", []string{result.Stream}, "messages.svg", "messages a second by size", (*data).rateTable},
	{"64 bytes there and back, µs", "", []string{result.Latency, result.Ping, result.TCPLatency}, "latency.svg", "distribution of latencies", (*data).latencyTable},
	{"Many queue pairs", "SEND of 64 bytes, 16 in a row to each queue pair in turn; million messages a second in all.\n\"× one\": the ratio to a single queue pair, measured in alternation.",
		[]string{result.Scaling}, "scaling.svg", "messages a second by queue pairs, goodput by loss", (*data).scalingTable},
	{"Processes", "Several processes on one address, over udp, each with one queue pair to a separate process at the other end. The values are sums. All processes of one end share one core, except in the last two rows.",
		[]string{result.Processes}, "", "", (*data).processesTable},
	{"A busy machine", "Measured while other programs compute without a pause. A row has the number of these programs, and \"pinned\" (each end has one core, and the programs are on the two cores in turn) or \"free\" (all may use both cores). " +
		"Messages of 64 KiB, by WRITEs or by writes to a net.Conn, and 64 bytes there and back. In brackets: the ratio to TCP under the same load. perftest: ib_write_bw and ib_send_lat, which poll without a pause.",
		[]string{result.Busy, result.BusyTrips}, "", "", (*data).busyTable},
	{"What Go programs use", "The same programs over a net.Conn of TCP and over this stack: a stream and round trips over rsocket, requests and answers by package message with one outstanding request on each connection, and the " +
		"web server of the examples. µs: processor time of both ends for each message or request, including polling.",
		[]string{result.ConnStream, result.ConnTrips, result.Requests, result.Web}, "", "", (*data).surfaceTable},
	{"Idle connections", "A busy queue pair over udp, on a device that also has many connected queue pairs without traffic. The program sleeps until there are completions.",
		[]string{result.IdleStream, result.IdleTrips}, "", "", (*data).idleTable},
	{"Programs on our libibverbs", "Unmodified programs of Debian on this stack's libraries, with one core for each end, path MTU 4096. perftest alternates with `rocectl perf --poll`, which runs the same tests with the same flags; " +
		"latencies are as both print them: for a READ the round trip, for others half of it. Open MPI, with one rank at each end, over UCX (rc_v) alternates with its own TCP: 8 bytes there and back, and windows of 16 messages.",
		[]string{result.Programs}, "", "", (*data).programsTable},
	{"Loss", "Messages of 1 MiB, path MTU 4096, with random losses in both directions: with go-back-N at both ends, and with `--recovery all` (docs/recovery.md).", []string{result.Loss}, "", "", (*data).lossTable},
	{"Connections a second", "Dialled, accepted and closed, 32 at a time, by the connection manager; a Go program does the same with TCP.",
		[]string{result.Connect, result.TCPConnect}, "", "", (*data).connectTable},
	{"Engine and memory", "", []string{result.Engine, result.Memory}, "", "", (*data).engineTable},
}

// markdown writes the report.
func markdown(w io.Writer, d *data, plots []string) {
	paragraph := func(format string, a ...any) { fmt.Fprintf(w, format+"\n\n", a...) }
	plot := func(name, alt string) {
		if slices.Contains(plots, name) {
			paragraph("![%s](%s)", alt, name)
		}
	}
	e := d.Environment
	paragraph("# Figures")
	if e.Quick {
		paragraph("**A quick run: it only shows that everything works. Its figures have no meaning.**")
	}
	commit := ""
	if e.Commit != "" {
		commit = ", commit " + e.Commit
	}
	paragraph("Made by `go run ./bench` in %.0f s on %s: %s, Linux %s, %s, core %d for one side and core %d for the other%s. "+
		"Medians; [docs/benchmarks.md](../../docs/benchmarks.md) says how it is done and how to read it.",
		e.Took, e.Time.Format("2 January 2006"), e.CPU, e.Kernel, e.Go, e.Cores[0], e.Cores[1], commit)
	if len(e.Notes) > 0 {
		paragraph("- %s", strings.Join(e.Notes, "\n- "))
	}
	paragraph("## Targets")
	d.targetTable(w)
	for _, pmtu := range d.pmtus {
		paragraph("## Goodput, path MTU %d", pmtu)
		plot(fmt.Sprintf("goodput-%d.svg", pmtu), fmt.Sprintf("goodput by size, path MTU %d", pmtu))
		d.goodputTable(w, pmtu)
	}
	for _, s := range sections {
		if !d.has(s.kinds...) {
			continue
		}
		paragraph("## %s", s.title)
		if s.intro != "" {
			paragraph("%s", s.intro)
		}
		plot(s.plot, s.alt)
		s.table(d, w)
	}
	for i, r := range d.rxe {
		if i == 0 {
			paragraph("## Against rxe")
		}
		paragraph("%s", about(r))
		rxeTable(w, r)
	}
	d.errors(w)
}

func (d *data) targetTable(w io.Writer) {
	var rows [][]string
	for _, t := range targets() {
		v, of := t.measure(d)
		verdict := t.verdict(v)
		measured := "–"
		if verdict != notMeasured {
			measured = t.format(v)
		}
		if of != "" {
			measured += " (" + of + ")"
		}
		sign := "≥ "
		if t.atMost() {
			sign = "≤ "
		}
		rows = append(rows, []string{t.what, measured, sign + t.format(t.least), sign + t.format(t.aim), verdict})
	}
	table(w, []string{"what", "measured", "at least", "aim", ""}, rows)
}

func (d *data) goodputTable(w io.Writer, pmtu int) {
	var rows [][]string
	tcp := d.tcp("offloads", pmtu).Goodput()
	for _, op := range d.listed {
		for _, size := range d.sizes {
			row, measured := []string{op + " " + sizeName(size)}, false
			for _, l := range d.links {
				v, bare := d.stream(l, op, size, pmtu).Goodput(), 0.0
				if size >= pmtu || size == result.SmallSize {
					bare = d.blast(l, min(size, pmtu), pmtu, false).Goodput()
				}
				measured = measured || v > 0
				row = append(row, known(v/1e9, two), known(stats.Ratio(v, tcp), two), known(stats.Ratio(v, bare), two))
			}
			if measured {
				rows = append(rows, row)
			}
		}
	}
	table(w, d.byLinks("Gb/s", "%s", "× TCP", "× bare"), rows)
}

func (d *data) readWriteTable(w io.Writer) {
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
				p := d.Find(harness.Spec{Kind: result.Alternating, Link: l, Op: result.ReadToWrite, Size: size, PMTU: pmtu})
				cell := known(p.Median(value), two)
				if both := p.Median(extra("both")); both > 0 {
					cell += " (" + two(both) + ")"
				}
				row = append(row, cell)
			}
		}
		rows = append(rows, row)
	}
	table(w, head, rows)
}

func (d *data) ceilingTable(w io.Writer) {
	sizes := result.Values(d.Run, result.Blast, func(s harness.Spec) int { return s.Size })
	pmtus := result.Values(d.Run, result.Blast, func(s harness.Spec) int { return s.PMTU })
	var rows [][]string
	for _, l := range d.links {
		for i, by := range []string{"sockets", "our driver"} {
			for _, pmtu := range pmtus {
				for _, size := range sizes {
					if p := d.blast(l, size, pmtu, i == 1); p != nil {
						rows = append(rows, []string{fmt.Sprintf("%s, %s, payload %s, interface MTU for %d", l, by, sizeName(size), pmtu),
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
		rows = append(rows, []string{name, one(quantile(p, p50)), one(quantile(p, func(l *harness.Latency) float64 { return l.P99 })),
			one(quantile(p, func(l *harness.Latency) float64 { return l.P999 })), known(stats.Ratio(quantile(p, p50), quantile(to, p50)), two)})
	}
	for _, l := range d.links {
		bare := d.ping(l, "", false)
		add("bare "+l+" packets", bare, nil)
		add("bare "+l+" packets, sockets not connected", d.ping(l, result.Unconnected, false), bare)
		add("packets by our driver "+l, d.ping(l, "", true), bare)
		add("SEND over "+l+", polled", d.latency(l, false), bare)
		add("SEND over "+l+", background, the program polls", d.small(harness.Spec{Kind: result.Latency, Link: l, Background: true}), bare)
	}
	tcp := d.tcpLatency()
	for _, l := range d.links {
		add("SEND over "+l+", background", d.latency(l, true), tcp)
		add("SEND over "+l+", background, sleeping at once", d.small(harness.Spec{Kind: result.Latency, Link: l, Wait: true, Sleep: true}), tcp)
	}
	add("TCP, net.Conn", tcp, nil)
	table(w, []string{"", "p50", "p99", "p99.9", "× bare; background: × TCP"}, rows)
}

func (d *data) scalingTable(w io.Writer) {
	var rows [][]string
	for _, n := range d.qps {
		row := []string{strconv.Itoa(n)}
		for _, l := range d.links {
			p := d.scaling(l, n)
			row = append(row, known(p.Rate()/1e6, three), known(p.Median(value), two))
		}
		rows = append(rows, row)
	}
	table(w, d.byLinks("queue pairs", "%s", "× one"), rows)
}

func (d *data) processesTable(w io.Writer) {
	points := func(n int, shared bool) (messages, bits *result.Point) {
		return d.processes("SEND", result.SmallSize, smallPMTU, n, shared), d.processes("WRITE", result.TargetSize, 4096, n, shared)
	}
	var rows [][]string
	row := func(name string, messages, bits *result.Point) {
		rows = append(rows, []string{name, known(messages.Rate()/1e6, three), known(bits.Goodput()/1e9, two)})
	}
	for _, n := range result.Values(d.Run, result.Processes, func(s harness.Spec) int { return s.Processes }) {
		messages, bits := points(n, true)
		row(strconv.Itoa(n), messages, bits)
	}
	shared, sharedBits := points(1, true)
	messages, bits := points(1, false)
	row("1, Exclusive", messages, bits)
	rows = append(rows, []string{"1, × Exclusive", known(shared.MedianRatio(messages, harness.Measure.Rate), two), known(sharedBits.MedianRatio(bits, harness.Measure.Goodput), two)})
	cores, shards := d.twoCores("SEND", result.SmallSize, smallPMTU)
	coresBits, shardsBits := d.twoCores("WRITE", result.TargetSize, 4096)
	row("2, a core each", cores, coresBits)
	row("1, two shards on both cores", shards, shardsBits)
	table(w, []string{"processes", "SEND of 64 bytes, M/s", "WRITE of 1 MiB, Gb/s"}, rows)
}

func (d *data) lossTable(w io.Writer) {
	cells := func(link, op string, loss float64, recovery bool) []string {
		p := d.loss(link, op, loss, recovery)
		if p == nil {
			return []string{"–", "–", "–"}
		}
		return []string{known(p.Goodput()/1e9, two), known(p.MedianRatio(d.loss(link, op, 0, recovery), harness.Measure.Goodput), two),
			fmt.Sprintf("%.2f %%", 100*p.Sum(retrans)/max(p.Sum(packets), 1))}
	}
	var rows [][]string
	for _, l := range d.links {
		for _, op := range []string{"WRITE", "READ"} {
			for _, loss := range result.Values(d.Run, result.Loss, func(s harness.Spec) float64 { return s.Loss }) {
				if d.loss(l, op, loss, false) == nil && d.loss(l, op, loss, true) == nil {
					continue
				}
				row := append([]string{fmt.Sprintf("%s, %s, %g %%", l, op, loss*100)}, cells(l, op, loss, false)...)
				rows = append(rows, append(row, cells(l, op, loss, true)...))
			}
		}
	}
	table(w, []string{"lost", "Gb/s", "× lossless", "sent again", "with recovery: Gb/s", "× lossless", "sent again"}, rows)
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
		switch {
		case len(p.Rounds) == 0:
		case p.Spec.Kind == result.Engine:
			rows = append(rows, []string{strings.TrimPrefix(p.Name, "engine/"), nanos(p.Median(value)), nanos(p.Median(extra("ns/op"))), whole(p.Median(extra("allocs/op")))})
		case p.Spec.Kind == result.Memory:
			fmt.Fprintf(w, "An idle connected RC queue pair with the default sizes takes %s of heap (%d of them made).\n\n", octets(p.Median(value)), p.Spec.QPs)
		}
	}
	table(w, []string{"`go test ./qp -bench Engine` (alone: `-tags noicrc`)", "a packet, both ends", "an operation", "allocations"}, rows)
}

// errors lists the rounds that failed, and retransmissions on links that lose no packets on
// purpose.
func (d *data) errors(w io.Writer) {
	var lines []string
	for _, p := range d.Points {
		for _, e := range p.Errors {
			lines = append(lines, fmt.Sprintf("%s: %s", p.Name, e))
		}
		if again, all := p.Sum(retrans), p.Sum(packets); p.Spec.Kind == result.Stream && again > all/1000 {
			lines = append(lines, fmt.Sprintf("%s: %.1f %% of the packets had to be sent again", p.Name, 100*again/all))
		}
	}
	if len(lines) > 0 {
		fmt.Fprintf(w, "## Trouble\n\n- %s\n", strings.Join(lines, "\n- "))
	}
}

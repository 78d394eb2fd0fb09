package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/goroce/roce/internal/tools/ladder"
)

// titles says where the NICs are.
var titles = map[string]string{LinkMem: "on a wire in this process", LinkUDP: "on UDP sockets of this host"}

// WriteText prints the result for people. bold formats headings on a terminal; elsewhere it should return its argument.
func (r *Result) WriteText(w io.Writer, bold func(string) string) error {
	fmt.Fprintln(w, bold("Two software RDMA NICs "+titles[r.Link]))
	for i, name := range [...]string{"client", "server"} {
		n := r.Nodes[i]
		fmt.Fprintf(w, "  %s  %s  node %s  QPN %v  path MTU %d\n", name, n.Addr, n.GUID, n.QPN, n.MTU)
	}
	fmt.Fprintf(w, "  connected by the connection manager (REQ, REP, RTU) in %s\n", micros(r.Connect))
	for _, p := range r.Phases {
		fmt.Fprintf(w, "\n%s\n", bold(p.title()))
		if err := writeTable(w, p.Rows); err != nil {
			return err
		}
		fmt.Fprintf(w, "  %s\n", p.summary())
	}
	for _, l := range []struct {
		title string
		steps []ladder.Step
	}{
		{"An RDMA READ, packet by packet", r.Read},
		{"The same with a packet of the answer lost", r.LossyRead},
	} {
		if len(l.steps) > 0 {
			fmt.Fprintf(w, "\n%s\n", bold(l.title))
			if err := ladder.Draw(w, l.steps); err != nil {
				return err
			}
		}
	}
	if r.Capture != "" {
		fmt.Fprintf(w, "\nAll %d packets are in %s. Look at them with\n  rocectl pcap check %[2]s\n  rocectl pcap decode %[2]s\n  tshark -r %[2]s\n", r.Packets, r.Capture)
	}
	return nil
}

func (p *Phase) title() string {
	if p.Loss == 0 {
		return "On a good wire"
	}
	return fmt.Sprintf("On a wire that loses %g %% of the packets, each way", 100*p.Loss)
}

func (p *Phase) summary() string {
	var again uint64
	rounds := 0
	for _, r := range p.Rows {
		again += r.Retransmitted
		rounds += r.Rounds
	}
	return fmt.Sprintf("%d packets lost, %d sent again; the data of all %d operations verified", p.Lost, again, rounds)
}

// writeTable prints the rows below their headings.
func writeTable(w io.Writer, rows []Row) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintf(tw, "  %-19s\tbytes\trounds\tmedian\tp99\tsent again\t\n", "operation")
	for _, r := range rows {
		fmt.Fprintf(tw, "  %-19s\t%d\t%d\t%s\t%s\t%d\t\n", r.Name, r.Bytes, r.Rounds, micros(r.Median), micros(r.P99), r.Retransmitted)
	}
	return tw.Flush()
}

// micros prints a time in a unit that does not change from line to line.
func micros(d time.Duration) string {
	return fmt.Sprintf("%.1f µs", float64(d)/float64(time.Microsecond))
}

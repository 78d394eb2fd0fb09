package capcheck

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// maxListed is how many frame numbers a line has at most.
const maxListed = 20

// WriteText prints the report: a line of totals, one per queue pair, and the
// frames that are wrong.
func (r *Report) WriteText(w io.Writer) error {
	fmt.Fprintf(w, "%s: %s, %d packets, %d RoCE, ICRC %d good %d bad", r.File, r.verdict(), r.Packets, r.RoCE, r.ICRCGood, r.ICRCBad)
	for _, c := range []struct {
		n    int
		what string
	}{{r.Malformed, "malformed"}, {r.Truncated, "cut short"}} {
		if c.n > 0 {
			fmt.Fprintf(w, ", %d %s", c.n, c.what)
		}
	}
	fmt.Fprintln(w)
	for _, l := range []struct {
		print bool
		text  string
	}{
		{r.ICRCBad > 0, "wrong ICRC: frame " + list(r.BadFrames)},
		{r.Malformed > 0, "malformed: frame " + list(r.MalformedFrames)},
		{len(r.UDPChecksumWrong) > 0, "wrong UDP checksum, but right ICRC: frame " + list(r.UDPChecksumWrong)},
		{r.SuperPackets > 0, fmt.Sprintf("captured as super-packets: %d packets in %d frames", r.Split, r.SuperPackets)},
		{r.UDPChecksumPartial > 0, fmt.Sprintf("UDP checksum left to the card: %d frames", r.UDPChecksumPartial)},
		{r.Truncated > 0 && r.ICRCGood+r.ICRCBad == 0, "cut short by the capture: no ICRC could be verified; capture whole packets (tcpdump -s 0)"},
		{r.Undecoded > 0, fmt.Sprintf("cut short by the capture: %d frames not decoded; what is missing may have been in those", r.Undecoded)},
	} {
		if l.print {
			fmt.Fprintf(w, "  %s\n", l.text)
		}
	}
	tw := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	several := slices.ContainsFunc(r.Flows, func(f *Flow) bool { return f.IfIndex != r.Flows[0].IfIndex })
	for _, f := range r.Flows {
		at := ""
		if several {
			at = fmt.Sprintf("if %d\t", f.IfIndex)
		}
		qpn := fmt.Sprintf("%#x", f.DestQPN)
		if f.SrcQPN != 0 {
			qpn += fmt.Sprintf(" from %#x", f.SrcQPN)
		}
		fmt.Fprintf(tw, "  %s > %s\tqpn %s\t%s\t%d packets\t%d bytes\t%s%s\n",
			f.Src, f.Dst, qpn, f.Transport, f.Packets, f.Bytes, at, f.events())
	}
	if r.Unfollowed > 0 {
		fmt.Fprintf(tw, "  and %d packets of other queue pairs, more than are followed\n", r.Unfollowed)
	}
	return tw.Flush()
}

// verdict returns the result in a word or two.
func (r *Report) verdict() string {
	switch {
	case r.ICRCBad+r.Malformed > 0:
		return "BAD"
	case r.Error != "":
		return "damaged file"
	case r.ICRCGood == 0:
		return "nothing to verify"
	}
	return "ok"
}

// events lists losses, retransmissions and NAKs, "-" if there are none.
func (f *Flow) events() string {
	var s []string
	for _, c := range []struct {
		n    int
		what string
	}{
		{f.Retransmitted, "retransmitted"}, {f.Gaps, "gaps"}, {f.Late, "late"}, {f.Missing, "missing"},
		{f.ResponseGaps, "response gaps"}, {f.RNRs, "RNR NAK"},
	} {
		if c.n > 0 {
			s = append(s, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(f.NAKs)) {
		s = append(s, fmt.Sprintf("%d %s", f.NAKs[kind], kind))
	}
	if len(s) == 0 {
		return "-"
	}
	return strings.Join(s, ", ")
}

func list(frames []int) string {
	var s []string
	for i, n := range frames {
		if i == maxListed {
			s = append(s, fmt.Sprintf("and %d more", len(frames)-i))
			break
		}
		s = append(s, strconv.Itoa(n))
	}
	return strings.Join(s, ", ")
}

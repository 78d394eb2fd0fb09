package verify

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/netip"
	"strconv"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// HostCounters are the counters of a host over the time of a capture. Only the captured traffic may have used the device in that time.
type HostCounters struct {
	Addrs  []netip.Addr      // of the host
	Counts map[string]uint64 // the keys are counter names of rxe, of mlx5, or of this stack
}

// ErrNoCounters says that a file has no counter that a rule compares.
var ErrNoCounters = errors.New("verify: no counter is known; wanted is what --counters prints, \"rdma statistic show -j\", or lines of a name and a number")

// maxCounters is the maximal length of a file with counters, in bytes.
const maxCounters = 1 << 20

// ReadCounters reads counters: the output of --counters of the commands, the JSON of "rdma statistic show -j", or lines with a name
// and a number each. It adds up the counters of several devices. The error is [ErrNoCounters] if no counter is known.
func ReadCounters(in io.Reader) (map[string]uint64, error) {
	b, err := io.ReadAll(io.LimitReader(in, maxCounters+1))
	if err != nil {
		return nil, err
	}
	if len(b) > maxCounters {
		return nil, fmt.Errorf("verify: more than %d bytes of counters", maxCounters)
	}
	counts := map[string]uint64{}
	if t := bytes.TrimSpace(b); len(t) > 0 && (t[0] == '{' || t[0] == '[') {
		d := json.NewDecoder(bytes.NewReader(t))
		d.UseNumber()
		var v any
		if err := d.Decode(&v); err != nil {
			return nil, fmt.Errorf("verify: counters: %w", err)
		}
		addJSON(counts, "", v)
	} else {
		addLines(counts, b)
		if _, ok := counts["sent_pkts"]; ok { // the counters are of this stack, which does not print those that are zero
			for _, f := range new(qp.Counters).Fields() {
				counts[f.Name] += 0
			}
		}
	}
	for _, c := range comparisons {
		for _, name := range c.names {
			if _, ok := counts[name]; ok {
				return counts, nil
			}
		}
	}
	return nil, ErrNoCounters
}

// addJSON adds all numbers in a JSON value, each under the nearest object key above it.
func addJSON(counts map[string]uint64, name string, v any) {
	switch v := v.(type) {
	case map[string]any:
		for k, e := range v {
			addJSON(counts, k, e)
		}
	case []any:
		for _, e := range v {
			addJSON(counts, name, e)
		}
	case json.Number:
		if n, err := strconv.ParseUint(v.String(), 10, 64); err == nil {
			counts[name] += n
		}
	}
}

// addLines adds the counters from lines that have a name, an optional colon and a number. It ignores other lines.
func addLines(counts map[string]uint64, b []byte) {
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 2 {
			continue
		}
		if n, err := strconv.ParseUint(f[1], 10, 64); err == nil {
			counts[strings.TrimSuffix(f[0], ":")] += n
		}
	}
}

// Since returns how much each counter grew between two readings. If a counter is smaller than before, the device was created anew
// in between, and Since returns its value as it is.
func Since(before, after map[string]uint64) map[string]uint64 {
	d := map[string]uint64{}
	for name, n := range after {
		if n >= before[name] {
			n -= before[name]
		}
		d[name] = n
	}
	return d
}

// event is a kind of event that a host counts.
type event uint8

const (
	nakReceived event = iota
	nakHeeded         // those NAKs that the requester does not ignore
	nakSent
	rnrReceived
	rnrSent
	duplicates // requests that had arrived before
	perhapsDuplicates
	beyondGap // requests behind one that is missing
	wrongICRC
	marked
	cnpReceived
	cnpSent
	timeouts
	perhapsTimeouts
	retransmissions
	numEvents
)

// hostTally counts the events of a host.
type hostTally struct {
	counts *HostCounters
	n      [numEvents]int
	frames [numEvents][]Frame // the first frames of each kind of event
	placed bool               // packets of the host were captured there
	away   bool               // packets were captured elsewhere
}

// maxEventFrames is how many frames of a kind of event are named.
const maxEventFrames = 8

// comparison says which counters count an event.
type comparison struct {
	rule  RuleID
	names []string
	sent  bool  // the host sends the packet that is counted; otherwise it receives it
	least event // the counter counts all of these events
	most  event // the counter counts at most these events
}

// comparisons lists all counters that are compared. rxe counts a NAK only if the requester acts on it, and counts all packets
// behind one gap once; this stack and adapters count every NAK and every packet.
var comparisons = []comparison{
	{counterNAK, []string{"packet_seq_err", "rcvd_seq_err"}, false, nakHeeded, nakReceived},
	{counterSequence, []string{"seq_nak_sent"}, true, nakSent, nakSent},
	{counterSequence, []string{"out_of_sequence", "out_of_seq_request"}, true, nakSent, beyondGap},
	{counterTimeout, []string{"local_ack_timeout_err"}, true, timeouts, perhapsTimeouts},
	{counterDuplicate, []string{"duplicate_request"}, false, duplicates, perhapsDuplicates},
	{counterRNR, []string{"rcvd_rnr_err"}, false, rnrReceived, rnrReceived},
	{counterRNR, []string{"send_rnr_err"}, true, rnrSent, rnrSent},
	{counterICRC, []string{"icrc_err", "rx_icrc_encapsulated"}, false, wrongICRC, wrongICRC},
	{counterCNP, []string{"np_ecn_marked_roce_packets"}, false, marked, marked},
	{counterCNP, []string{"np_cnp_sent"}, true, cnpSent, cnpSent},
	{counterCNP, []string{"rp_cnp_handled"}, false, cnpReceived, cnpReceived},
	{counterRetransmission, []string{"retrans_pkts"}, true, retransmissions, retransmissions},
}

// ofRxe is a counter that only rxe has.
const ofRxe = "link_downed"

// bounds returns the least and the largest value that a counter may have according to the capture. ok is false if the capture cannot tell.
func (c *comparison) bounds(t *hostTally, h *HostCounters, complete bool) (least, most int, ok bool) {
	least, most = t.n[c.least], max(t.n[c.most], t.n[c.least])
	if _, rxe := h.Counts[ofRxe]; rxe && c.least == nakHeeded {
		least = 0 // rxe does not count a NAK for the oldest request
	}
	switch {
	case complete && t.placed && !t.away:
	case c.sent && c.least == c.most: // packets that were lost before the place of the capture are not in it
		return least, math.MaxInt, least > 0
	default: // packets may have been lost, duplicated, marked or damaged between the capture and the host
		return 0, 0, false
	}
	return least, most, true
}

// initCounters makes the tallies of the hosts whose counters are given.
func (v *Verifier) initCounters() {
	v.tallies = map[bth.GID]*hostTally{}
	for _, h := range v.cfg.Counters {
		t := &hostTally{counts: &h}
		v.hosts = append(v.hosts, t)
		for _, a := range h.Addrs {
			v.tallies[bth.GIDFrom(a)] = t
		}
	}
}

// happened counts an event of a host.
func (v *Verifier) happened(host bth.GID, e event) {
	t := v.tallies[host]
	if t == nil {
		return
	}
	t.n[e]++
	if len(t.frames[e]) < maxEventFrames {
		t.frames[e] = append(t.frames[e], v.now.frame)
	}
}

// locate notes where the packets of hosts with counters are captured.
func (v *Verifier) locate(p *packet) {
	if len(v.tallies) == 0 {
		return
	}
	if t := v.tallies[p.Frame.Src]; t != nil {
		t.placed, t.away = t.placed || p.out, t.away || !p.out
	}
	if t := v.tallies[p.Frame.Dst]; t != nil {
		t.placed, t.away = t.placed || p.in, t.away || !p.in
	}
}

// arrival counts a request that has arrived before, or that arrives behind a gap.
func (h *half) arrival(p *packet) {
	if len(h.v.tallies) == 0 || !p.in {
		return
	}
	a, psn := &h.arrived, p.Frame.PSN()
	switch {
	case !a.known || !a.sure:
		if h.find(psn) != nil {
			h.v.happened(h.flow.key.dst, perhapsDuplicates)
		}
	case h.ackedOnce && !h.acked.Less(psn):
		h.v.happened(h.flow.key.dst, duplicates)
	case psn.Less(a.next): // whether it counts depends on whether the responder keeps requests behind a gap
		h.v.happened(h.flow.key.dst, perhapsDuplicates)
	case a.next.Less(psn):
		h.v.happened(h.flow.key.dst, beyondGap)
	}
}

// compare compares the counters with the events of the capture. It is called at the end of the capture.
func (v *Verifier) compare() {
	for _, h := range v.order {
		if t := v.tallies[h.flow.key.src]; t != nil {
			c := &h.report.Repeated
			t.n[timeouts] += c.Timeout
			t.n[perhapsTimeouts] += c.Timeout + c.Early + c.Implied + c.Needless
			if h.ackedOnce && h.acked.Add(1).Less(h.next) || !h.ackedOnce && h.started {
				t.n[perhapsTimeouts]++ // the last timeout, after which the requester gave up, shows no packet
			}
			t.n[retransmissions] += c.total()
		}
	}
	for _, t := range v.hosts {
		t.n[perhapsDuplicates] += t.n[duplicates]
		for i := range comparisons {
			v.compareCounters(t, &comparisons[i])
		}
	}
}

// compareCounters compares the counters of a row of the table for one host.
func (v *Verifier) compareCounters(t *hostTally, row *comparison) {
	c := t.counts
	for _, name := range row.names {
		n, ok := c.Counts[name]
		if !ok || v.skip[row.rule] {
			continue
		}
		least, most, ok := row.bounds(t, c, v.complete)
		if !ok {
			v.limitOf(LimitCounter, row.rule, "", &packet{})
			continue
		}
		if n >= uint64(least) && n <= uint64(most) {
			continue
		}
		want := fmt.Sprint(least)
		switch {
		case most == math.MaxInt:
			want += " or more"
		case most > least:
			want = fmt.Sprintf("%d to %d", least, most)
		}
		f := Finding{Rule: row.rule, Section: byID[row.rule].Section, Severity: byID[row.rule].Severity, Flow: fmt.Sprint(c.Addrs), Frames: append([]Frame{}, t.frames[row.most]...),
			Sentence: fmt.Sprintf("The counter %s is %d; the capture shows %s.", name, n, want)}
		if v.cfg.Found != nil {
			v.cfg.Found(&f)
		}
		v.count[row.rule]++
		v.report.Findings = append(v.report.Findings, f)
	}
}

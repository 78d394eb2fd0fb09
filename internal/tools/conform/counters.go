package conform

import (
	"cmp"
	"context"
	"strings"
	"time"
)

// compared are the counters of a peer that can be compared with packets, and for each the number of packets that the tap has seen. The
// names are those of rocectl conform --serve: rxe's names and, for congestion, those of adapters.
var compared = []struct {
	names []string // the sum of these counters is compared
	trace func(*judged) int
}{
	{[]string{"icrc_err"}, func(j *judged) int { return j.bad }},
	{[]string{"seq_nak_sent"}, func(j *judged) int { return j.situations[sentNAK] }},
	{[]string{"rcvd_seq_err"}, func(j *judged) int { return j.situations[gotNAK] }},
	{[]string{"send_rnr_err"}, func(j *judged) int { return j.situations[sentRNR] }},
	{[]string{"rcvd_rnr_err"}, func(j *judged) int { return j.situations[gotRNR] }},
	{[]string{"retrans_pkts", "probe_pkts"}, func(j *judged) int { return j.again }},
	{[]string{"np_ecn_marked_roce_packets"}, func(j *judged) int { return j.marked }},
	{[]string{"np_cnp_sent"}, func(j *judged) int { return j.situations[sentCNP] }},
	{[]string{"rp_cnp_handled", "rp_cnp_ignored"}, func(j *judged) int { return j.situations[gotCNP] }},
}

// For a moment after the workload, the counters may lack the latest packets, or the tap may.
const (
	settleTime = 2 * time.Second       // how long compareCounters waits until both agree
	settleStep = 50 * time.Millisecond // how often it compares them
)

// compareCounters compares the growth of the peer's counters in a step with the packets of the step.
func (r *runner) compareCounters(ctx context.Context, st *step, s *stage, before map[string]uint64) (list []CounterResult, err error) {
	ended := again(ctx, settleTime, settleStep, func() bool {
		list = list[:0]
		var now map[string]uint64
		if now, err = st.counters(ctx); err != nil {
			return true
		}
		records, over := s.rec.all()
		var j *judged
		if j, err = judge(records, view{conns: s.conns, udp: s.driver == "udp"}); err != nil || over {
			return true
		}
		right := true
		for _, c := range compared {
			res := CounterResult{Step: st.name, Name: strings.Join(c.names, " + "), Trace: uint64(c.trace(j))}
			known := true
			for _, n := range c.names {
				v, ok := now[n]
				known = known && ok
				res.Peer += v - before[n]
			}
			if !known || res.Peer == 0 && res.Trace == 0 {
				continue
			}
			right = right && res.Right()
			list = append(list, res)
		}
		return right
	})
	if err := cmp.Or(ended, err); err != nil {
		return nil, err
	}
	return list, nil
}

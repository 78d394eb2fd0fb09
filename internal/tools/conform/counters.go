package conform

import (
	"context"
	"time"
)

// compared are the counters of a peer that can be compared with packets, and for each the number of packets that the tap has seen. The
// names are those of rocectl conform --serve: rxe's names and, for congestion, those of adapters.
var compared = []struct {
	names []string // the sum of these counters is compared
	trace func(*judged) int
}{
	{[]string{"icrc_err"}, func(j *judged) int { return j.BadGot }},
	{[]string{"seq_nak_sent"}, func(j *judged) int { return j.NAKsSent }},
	{[]string{"rcvd_seq_err"}, func(j *judged) int { return j.NAKsGot }},
	{[]string{"send_rnr_err"}, func(j *judged) int { return j.RNRsSent }},
	{[]string{"rcvd_rnr_err"}, func(j *judged) int { return j.RNRsGot }},
	{[]string{"retrans_pkts", "probe_pkts"}, func(j *judged) int { return j.again }},
	{[]string{"np_ecn_marked_roce_packets"}, func(j *judged) int { return j.MarkedGot }},
	{[]string{"np_cnp_sent"}, func(j *judged) int { return j.CNPsSent }},
	{[]string{"rp_cnp_handled", "rp_cnp_ignored"}, func(j *judged) int { return j.CNPsGot }},
}

// For a moment after the workload, the counters may lack the latest packets, or the tap may.
const (
	settleTime = 2 * time.Second       // how long compareCounters waits until both agree
	settleStep = 50 * time.Millisecond // how often it compares them
)

// compareCounters compares the growth of the peer's counters in a step with the packets of the step.
func (r *runner) compareCounters(ctx context.Context, st *step, s *stage, before map[string]uint64) (list []CounterResult, err error) {
	for until := time.Now().Add(settleTime); ; {
		now, err := st.counters(ctx)
		if err != nil {
			return nil, err
		}
		records, over := s.rec.all()
		j, err := judge(records, view{conns: s.conns, udp: s.driver == "udp"})
		if err != nil || over {
			return nil, err
		}
		list, right := list[:0], true
		for _, c := range compared {
			res := CounterResult{Step: st.name, Trace: uint64(c.trace(j))}
			known := true
			for i, n := range c.names {
				v, ok := now[n]
				known = known && ok
				res.Peer += v - before[n]
				if i > 0 {
					res.Name += " + "
				}
				res.Name += n
			}
			if !known || res.Peer == 0 && res.Trace == 0 {
				continue
			}
			right = right && res.Right()
			list = append(list, res)
		}
		if right || time.Now().After(until) {
			return list, nil
		}
		pause := time.NewTimer(settleStep)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return nil, ctx.Err()
		}
	}
}

package verify

import (
	"slices"
	"time"
)

// LatencyKind names a kind of time that the Verifier measures.
type LatencyKind string

// The kinds of times.
const (
	AckLatency     LatencyKind = "acknowledgement" // from the latest transmission of a request to its ACK
	ReadLatency    LatencyKind = "read"            // from the latest transmission of a READ to its first response
	AtomicLatency  LatencyKind = "atomic"          // from the latest transmission of an atomic to its response
	NAKGeneration  LatencyKind = "nak-generation"  // from the request behind the gap to the NAK
	NAKReaction    LatencyKind = "nak-reaction"    // from the NAK to the retransmission of the request
	Retransmission LatencyKind = "retransmission"  // from a transmission of a request to the next
	RNRWait        LatencyKind = "rnr-wait"        // from the RNR NAK to the retransmission of the request
)

var latencyKinds = []LatencyKind{AckLatency, ReadLatency, AtomicLatency, NAKGeneration, NAKReaction, Retransmission, RNRWait}

// Latency is the distribution of a time, at the place of the capture.
type Latency struct {
	Kind   LatencyKind   `json:"kind"`
	Count  int           `json:"count"`
	Least  time.Duration `json:"least_ns"`
	Median time.Duration `json:"median_ns"`
	P90    time.Duration `json:"p90_ns"`
	P99    time.Duration `json:"p99_ns"`
	Most   time.Duration `json:"most_ns"`
}

// timed records a time of a connection.
func (h *half) timed(k LatencyKind, d time.Duration) {
	h.v.times.add(k, d)
	if h.v.cfg.Timed != nil {
		h.v.cfg.Timed(h.flow.key.src.Addr(), k, d)
	}
}

// latencies collects times.
type latencies map[LatencyKind]*samples

// samples are the times of one kind. If there are more than maxSamples, only every second, fourth, … time is kept.
type samples struct {
	kept        []time.Duration
	count, step int
	least, most time.Duration
}

// maxSamples bounds the times of one kind that are kept.
const maxSamples = 1 << 15

func (l latencies) add(k LatencyKind, d time.Duration) {
	s := l[k]
	if s == nil {
		s = &samples{step: 1, least: d, most: d}
		l[k] = s
	}
	s.least, s.most = min(s.least, d), max(s.most, d)
	if s.count%s.step == 0 {
		if len(s.kept) == maxSamples {
			for i := range maxSamples / 2 {
				s.kept[i] = s.kept[2*i]
			}
			s.kept = s.kept[:maxSamples/2]
			s.step *= 2
		}
		s.kept = append(s.kept, d)
	}
	s.count++
}

// distributions returns the distribution of each kind of time that was measured.
func (l latencies) distributions() (all []Latency) {
	for _, k := range latencyKinds {
		s := l[k]
		if s == nil {
			continue
		}
		slices.Sort(s.kept)
		at := func(percent int) time.Duration { return s.kept[(len(s.kept)-1)*percent/100] }
		all = append(all, Latency{k, s.count, s.least, at(50), at(90), at(99), s.most})
	}
	return all
}

// finish adds the path MTUs, the missing PSNs, the times and the spacing of CNPs to the report.
func (v *Verifier) finish() {
	for _, h := range v.order {
		if h.flow.half != h {
			continue
		}
		h.report.MTU = h.flow.mtu
		h.report.Missing += h.gaps.Missing()
	}
	if v.now == nil || !v.now.Time.IsZero() {
		v.report.Times = v.times.distributions()
	}
	for _, s := range Scopes {
		if sp := v.cnps.spacing[s]; sp != nil {
			v.report.CNPs = append(v.report.CNPs, *sp)
		}
	}
}

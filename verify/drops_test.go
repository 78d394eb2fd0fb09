package verify

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/goroce/roce/link/pcap"
)

// drops are ways to remove packets from a capture: one in n at random, a burst, or one packet.
var drops = []struct {
	name  string
	seeds int
	lose  func(*rand.Rand, int) (lost func(i int) bool)
}{
	{"1 in 100", 4, oneIn(100)},
	{"1 in 10", 6, oneIn(10)},
	{"1 in 3", 4, oneIn(3)},
	{"a burst", 6, burst},
	{"one", 4, func(r *rand.Rand, n int) func(int) bool {
		k := r.IntN(n)
		return func(i int) bool { return i == k }
	}},
}

func oneIn(n int) func(*rand.Rand, int) func(int) bool {
	return func(r *rand.Rand, _ int) func(int) bool { return func(int) bool { return r.IntN(n) == 0 } }
}

// burst removes a tenth of the packets, in succession.
func burst(r *rand.Rand, n int) func(int) bool {
	from := r.IntN(n)
	return func(i int) bool { return i >= from && i < from+max(n/10, 2) }
}

// records reads a capture.
func records(t *testing.T, in io.Reader) (all []pcap.Record) {
	t.Helper()
	r, err := pcap.NewReader(in)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		rec.Data = bytes.Clone(rec.Data)
		all = append(all, rec)
	}
}

// judgeRecords judges the records for which lost returns false. If lost is nil, it judges all.
func judgeRecords(t *testing.T, recs []pcap.Record, cfg Config, lost func(i int) bool) *Report {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i := range recs {
		if lost == nil || !lost(i) {
			v.Add(0, &recs[i])
		}
	}
	return v.Done()
}

// found returns the findings that no departure explains, by rule and frame.
func found(r *Report) map[string]*Finding {
	m := map[string]*Finding{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Departure == nil {
			m[fmt.Sprint(f.Rule, " ", f.Frames[len(f.Frames)-1])] = f
		}
	}
	return m
}

// TestDrops: if packets are missing in a capture, it has no findings that the complete capture does not have, wherever it was made.
func TestDrops(t *testing.T) {
	type capture struct {
		name string
		recs []pcap.Record
		cfgs map[string]Config
	}
	var all []capture
	at := Config{At: addrs("10.77.0.3", "fd77::3"), Dropped: true}
	for _, file := range captures(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		c := capture{filepath.Base(file), records(t, bytes.NewReader(b)), map[string]Config{"anywhere": {}}}
		if c.name == "rxe612_run1.pcap" { // its last packets are forged
			c.recs = slices.DeleteFunc(c.recs, func(rec pcap.Record) bool { return rec.Number >= 1584 })
		}
		if _, ofHost := departuresOf[c.name]; !ofHost {
			c.cfgs["at the host"] = at
		}
		all = append(all, c)
	}
	for at := range 2 {
		for _, rxe := range []bool{false, true} {
			s := rightScene(t)
			if rxe {
				s.likeRxe()
			}
			all = append(all, capture{fmt.Sprint("scene at ", at, rxe), records(t, bytes.NewReader(s.capture(at))),
				map[string]Config{"anywhere": {}, "at the host": {Directions: true, Dropped: true}}})
		}
	}
	seen := map[string]bool{}
	for _, c := range all {
		for where, cfg := range c.cfgs {
			want := found(judgeRecords(t, c.recs, cfg, nil))
			for _, d := range drops {
				seeds := d.seeds
				if len(c.recs) < 200 {
					seeds *= 5
				}
				for seed := range seeds {
					r := judgeRecords(t, c.recs, cfg, d.lose(rand.New(rand.NewPCG(uint64(seed), uint64(len(c.recs)))), len(c.recs)))
					for key, f := range found(r) {
						if k := fmt.Sprint(c.name, f.Rule); want[key] == nil && !seen[k] {
							seen[k] = true
							t.Errorf("%s, %s, %s lost, seed %d: %s", c.name, where, d.name, seed, f)
						}
					}
				}
			}
		}
	}
}

// TestNeeds: if packets may be missing, rules that need a complete capture give a limit in place of a finding. All other rules give the
// same findings.
func TestNeeds(t *testing.T) {
	type result struct{ found, unseen bool }
	results := map[RuleID]result{}
	for _, b := range breaks() {
		s := rightScene(t)
		b.spoil(s)
		cfg := b.cfg
		cfg.Dropped = true
		r := s.judge(b.at, cfg)
		_, byRule := unexplained(r)
		for id := range byRule {
			if id != b.rule {
				t.Errorf("%s: found %s", b.rule, id)
			}
		}
		res := results[b.rule]
		res.found = res.found || byRule[b.rule] > 0
		res.unseen = res.unseen || slices.ContainsFunc(r.Limits, func(l Limit) bool { return (l.Kind == LimitUnseen || l.Kind == LimitCounter) && l.Rule == b.rule })
		results[b.rule] = res
	}
	for _, id := range slices.Sorted(maps.Keys(results)) {
		needs := byID[id].Needs&Complete != 0
		if res := results[id]; res.found == needs || needs && !res.unseen {
			t.Errorf("%s: needs a complete capture: %v, but found without: %v, said that it cannot be told: %v", id, needs, res.found, res.unseen)
		}
	}
}

// TestWithdrawn: the configuration says that a capture is complete, but both ends have acted on a packet that is not in it. The Verifier
// notices that, and withdraws the findings that a missing packet would explain.
func TestWithdrawn(t *testing.T) {
	s := rightScene(t)
	recs := records(t, bytes.NewReader(s.capture(active)))
	i := s.index("send-middle")
	r := judgeRecords(t, recs, Config{Directions: true}, func(k int) bool { return k == i })
	if all, _ := unexplained(r); len(all) > 0 {
		t.Errorf("found %v", all)
	}
	for _, want := range []LimitKind{LimitUnseen, LimitDropped} {
		if !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Kind == want }) {
			t.Errorf("no limit %s in %+v", want, r.Limits)
		}
	}
	if _, err := New(Config{Complete: true, Dropped: true}); err != ErrContradiction {
		t.Errorf("error %v", err)
	}
}

package verify

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

// countsOf are the counters that the ends have after the right scene.
var countsOf = [2]map[string]uint64{
	active: {"rcvd_seq_err": 1, "packet_seq_err": 1, "local_ack_timeout_err": 2, "rcvd_rnr_err": 1, "rp_cnp_handled": 2, "retrans_pkts": 7,
		"icrc_err": 0, "duplicate_request": 0, "out_of_seq_request": 0, "np_cnp_sent": 0},
	passive: {"seq_nak_sent": 1, "out_of_sequence": 2, "out_of_seq_request": 1, "duplicate_request": 2, "send_rnr_err": 1, "np_ecn_marked_roce_packets": 2, "np_cnp_sent": 2,
		"icrc_err": 0, "rcvd_seq_err": 0, "local_ack_timeout_err": 0, "retrans_pkts": 0},
}

// counted are the counters of an end after the right scene, with one of them changed.
func counted(at int, name string, n uint64) Config {
	c := maps.Clone(countsOf[at])
	if name != "" {
		c[name] = n
	}
	return Config{Counters: []HostCounters{{[]netip.Addr{netip.MustParseAddr(fmt.Sprint("10.0.0.", at+1))}, c}}}
}

var counterBreaks = func() (all []breakage) {
	for _, b := range []struct {
		rule RuleID
		at   int
		name string
		n    uint64
	}{
		{counterNAK, active, "rcvd_seq_err", 2}, {counterNAK, active, "packet_seq_err", 0},
		{counterSequence, passive, "seq_nak_sent", 0}, {counterSequence, passive, "seq_nak_sent", 2}, {counterSequence, passive, "out_of_sequence", 3}, {counterSequence, passive, "out_of_seq_request", 0},
		{counterTimeout, active, "local_ack_timeout_err", 1}, {counterTimeout, active, "local_ack_timeout_err", 9},
		{counterDuplicate, passive, "duplicate_request", 1}, {counterDuplicate, passive, "duplicate_request", 9},
		{counterRNR, active, "rcvd_rnr_err", 0}, {counterRNR, passive, "send_rnr_err", 0}, {counterRNR, passive, "send_rnr_err", 2},
		{counterICRC, passive, "icrc_err", 1},
		{counterCNP, active, "rp_cnp_handled", 1}, {counterCNP, passive, "np_cnp_sent", 1}, {counterCNP, passive, "np_ecn_marked_roce_packets", 3},
		{counterRetransmission, active, "retrans_pkts", 6}, {counterRetransmission, active, "retrans_pkts", 8},
	} {
		all = append(all, breakage{b.rule, b.at, counted(b.at, b.name, b.n), func(*scene) {}})
	}
	return all
}()

// TestCounters: right counters give no findings, wherever the capture was made, and also if it has lost packets.
func TestCounters(t *testing.T) {
	for of := range 2 {
		for at := range 2 {
			cfg := counted(of, "", 0)
			r := rightScene(t).judge(at, cfg)
			complain(t, fmt.Sprintf("of %d at %d", of, at), r)
			if told := !slices.ContainsFunc(r.Limits, func(l Limit) bool { return l.Kind == LimitCounter }); told != (of == at) {
				t.Errorf("of %d at %d: all counters can be told: %v", of, at, told)
			}
			cfg.Dropped = true
			complain(t, fmt.Sprintf("of %d at %d, dropped", of, at), rightScene(t).judge(at, cfg))
		}
	}
	// A wrong ICRC is counted.
	s := rightScene(t)
	s.step("ud").wire = func(b []byte) []byte { b[len(b)-1] ^= 1; return b }
	cfg := counted(passive, "icrc_err", 1)
	cfg.Ignore = []RuleID{headerICRC}
	complain(t, "a wrong ICRC", s.judge(passive, cfg))
}

func TestReadCounters(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     map[string]uint64
	}{
		{"of this stack", "listening on 10.0.0.1\nsent_pkts                        12\nrcvd_seq_err                     3\n", map[string]uint64{"sent_pkts": 12, "rcvd_seq_err": 3, "np_cnp_sent": 0}},
		{"rdma", `[{"ifname":"rxe0","port":1,"sent_pkts":5,"duplicate_request":7,"link_downed":0}]`, map[string]uint64{"duplicate_request": 7, "link_downed": 0}},
		{"two devices", `[{"ifname":"a","packet_seq_err":5},{"ifname":"b","packet_seq_err":7}]`, map[string]uint64{"packet_seq_err": 12}},
		{"ethtool", "NIC statistics:\n     np_cnp_sent: 4\n     rx_icrc_encapsulated: 9\n", map[string]uint64{"np_cnp_sent": 4, "rx_icrc_encapsulated": 9}},
		{"nested", `{"counters":{"np_cnp_sent":4},"rate":1.5,"text":"x"}`, map[string]uint64{"np_cnp_sent": 4}},
	} {
		got, err := ReadCounters(strings.NewReader(tt.in))
		if err != nil {
			t.Errorf("%s: %v", tt.name, err)
		}
		for name, n := range tt.want {
			if v, ok := got[name]; !ok || v != n {
				t.Errorf("%s: %s is %d, %v; want %d", tt.name, name, v, ok, n)
			}
		}
	}
	for _, in := range []string{"", "[]", "no counters", `{"sent":1}`, "{", "[1,2", strings.Repeat("a 1\n", maxCounters)} {
		if _, err := ReadCounters(strings.NewReader(in)); err == nil {
			t.Errorf("no error for %.20q", in)
		}
	}
	if _, err := ReadCounters(strings.NewReader("x 1")); !errors.Is(err, ErrNoCounters) {
		t.Errorf("error %v", err)
	}
	if d := Since(map[string]uint64{"a": 3, "b": 9}, map[string]uint64{"a": 5, "b": 2, "c": 1}); !maps.Equal(d, map[string]uint64{"a": 2, "b": 2, "c": 1}) {
		t.Errorf("since: %v", d)
	}
}

func FuzzReadCounters(f *testing.F) {
	f.Add([]byte(`[{"sent_pkts":5,"link_downed":0}]`))
	f.Add([]byte("np_cnp_sent: 4\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if _, err := ReadCounters(strings.NewReader(string(b))); err != nil {
			return
		}
	})
}

// TestCountersText: a finding about counters says what was compared.
func TestCountersText(t *testing.T) {
	r := rightScene(t).judge(active, counted(active, "rcvd_seq_err", 2))
	var b strings.Builder
	if err := r.WriteText(&b); err != nil || !strings.Contains(b.String(), "error counter-nak, frame 23, [10.0.0.1]: The counter rcvd_seq_err is 2; the capture shows 1.\n") {
		t.Errorf("%v\n%s", err, b.String())
	}
}

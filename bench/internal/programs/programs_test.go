//go:build linux

package programs

import (
	"strings"
	"testing"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/perftest"
	"github.com/goroce/roce/bench/internal/result"
)

// Both contenders get the same flags.
func TestCommands(t *testing.T) {
	s := &Suite{dir: "/tmp/x", port: 20001}
	for _, tt := range []struct {
		op          string
		size        int
		flags       string
		serverPolls bool
	}{
		{"send_bw", 64, "-F -s 64 -n 1000 -p 20001", true},
		{"read_lat", 64, "-F -s 64 -n 1000 -p 20001", false},
		{"write_bw", 65536, "-F -s 65536 -n 1000 -p 20001", false},
		{"write_lat", 64, "-F -s 64 -n 1000 -p 20001", true},
	} {
		spec := harness.Spec{Link: "raw", Op: tt.op, Size: tt.size, Count: 1000, By: result.ByPerftest}
		for side, polls := range []bool{true, tt.serverPolls} {
			spec.By = result.ByPerftest
			if got, want := strings.Join(s.argv(spec, "eth0", side), " "), "ib_"+tt.op+" "+tt.flags; got != want {
				t.Errorf("%q, want %q", got, want)
			}
			spec.By = result.ByRocectl
			want := "/tmp/x/rocectl perf " + tt.op + " --dev eth0 --link raw --poll=" + map[bool]string{true: "true", false: "false"}[polls] + " " + tt.flags
			if got := strings.Join(s.argv(spec, "eth0", side), " "); got != want {
				t.Errorf("%q, want %q", got, want)
			}
		}
	}
}

func TestMeasureOf(t *testing.T) {
	m := measureOf(perftest.Row{Iters: 1000, Mega: 0.5}, harness.Spec{Op: "send_bw", Size: 64})
	if m.Rate() != 5e5 || m.Goodput() != 8*64*5e5 {
		t.Errorf("%v/s, %v bit/s", m.Rate(), m.Goodput())
	}
	m = measureOf(perftest.Row{Iters: 1000, Typical: 5, P99: 6, P999: 7}, harness.Spec{Op: "read_lat", Size: 64})
	if m.Latency == nil || m.Latency.P50 != 5 || m.Latency.P99 != 6 || m.Latency.P999 != 7 {
		t.Errorf("%+v", m.Latency)
	}
}

func TestParsePingPong(t *testing.T) {
	m, err := parsePingPong("a warning\nlat 5000 7.562 12.012 34.000\n", 8)
	if err != nil || m.Latency == nil || m.Latency.Count != 5000 || m.Latency.P50 != 7.562 || m.Latency.P999 != 34 {
		t.Errorf("%+v, %v", m, err)
	}
	m, err = parsePingPong("bw 400 0.250000\n", 1<<20)
	if err != nil || m.Rate() != 1600 || m.Goodput() != 8*1600*(1<<20) {
		t.Errorf("%+v, %v", m, err)
	}
	for _, out := range []string{"", "lat x\n", "bw 400\n"} {
		if m, err := parsePingPong(out, 8); err == nil {
			t.Errorf("%q: %+v", out, m)
		}
	}
}

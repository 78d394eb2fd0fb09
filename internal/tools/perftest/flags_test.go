package perftest

import (
	"strings"
	"testing"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// An end reads the flags that the other end sends.
func TestFlagsOnTheWire(t *testing.T) {
	for _, test := range Tests {
		for _, f := range []flags{
			{test: test.Name, service: qp.RC, size: maxSize, iters: maxIters, qps: maxQPs, both: true},
			{test: test.Name, service: qp.UD, size: 0, iters: 0, qps: 1},
			{test: test.Name, service: qp.UC, size: 1, iters: 5, qps: 2},
		} {
			b := f.append(nil)
			if len(b) != flagsLen || parseFlags(b) != f {
				t.Errorf("%+v is read as %+v from %x", f, parseFlags(b), b)
			}
		}
	}
	for _, b := range [][]byte{nil, make([]byte, flagsLen), {'R', 255, 255, 255, 255, 255, 255, 255, 255, 255, 255}} {
		if f := parseFlags(b); f != (flags{}) {
			t.Errorf("%x is read as %+v", b, f)
		}
	}
}

// If the flags of the two ends differ, both ends name the flags before anything is transferred. The number of messages may differ
// if only the client needs it.
func TestMismatch(t *testing.T) {
	for _, tt := range []struct {
		test           string
		server, client func(*Config)
		want           string // the client's error; "" if the test passes
	}{
		{"write_bw", func(c *Config) { c.Size = 4096 }, func(*Config) {}, "the peer has -s 4096, this end has -s 65536: give both ends the same"},
		{"write_bw", func(*Config) {}, func(c *Config) { c.All = true }, "the peer has -s 65536, this end has -a"},
		{"read_bw", func(c *Config) { c.QPs = 2 }, func(*Config) {}, "the peer has -q 2, this end has -q 1"},
		{"send_bw", func(c *Config) { c.Both = true }, func(c *Config) { c.Service = qp.UC }, "the peer has -c RC -b, this end has -c UC no -b"},
		{"send_bw", func(c *Config) { c.Iters = 10 }, func(c *Config) { c.Iters = 20 }, "the peer has -n 10, this end has -n 20"},
		{"write_lat", func(c *Config) { c.Iters = 10 }, func(c *Config) { c.Iters = 20 }, "the peer has -n 10"},
		{"write_bw", func(c *Config) { c.Iters = 10 }, func(c *Config) { c.Iters = 20 }, ""},
		{"write_bw", func(c *Config) { c.CM, c.Size = true, 64 }, func(c *Config) { c.CM, c.Size = true, 32 }, "the peer has -s 64, this end has -s 32"},
	} {
		t.Run(tt.test+" "+tt.want, func(t *testing.T) {
			sd, cd := tooltest.Pair(t, fault.Config{})
			addr, served := serve(t, sd, config(t, tt.test, tt.server))
			_, err := Client(t.Context(), cd, addr, config(t, tt.test, tt.client))
			out := <-served
			if tt.want == "" {
				if err != nil || out.Err != nil {
					t.Errorf("client: %v; server: %v", err, out.Err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("client: %v, want %s", err, tt.want)
			}
			if out.Err == nil || !strings.Contains(out.Err.Error(), "give both ends the same") {
				t.Errorf("server: %v", out.Err)
			}
		})
	}
	other := flags{test: "send_bw"}
	if err := other.agree(flags{test: "read_bw"}); err == nil || !strings.Contains(err.Error(), "the peer runs read_bw, this end send_bw") {
		t.Errorf("other programs: %v", err)
	}
}

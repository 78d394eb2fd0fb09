package perftest

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

// play runs both ends of a test and returns the result of each, and the output of the client.
func play(t *testing.T, f fault.Config, cfg Config) (client, server Result, printed string) {
	t.Helper()
	sd, cd := tooltest.Pair(t, f)
	addr, served := serve(t, sd, cfg)
	var out strings.Builder
	cfg.Out = &out
	client, err := Client(t.Context(), cd, addr, cfg)
	o := <-served
	if err != nil || o.Err != nil {
		t.Fatalf("client: %v, server: %v", err, o.Err)
	}
	return client, o.Result, out.String()
}

var lossy = fault.Config{Seed: 11, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}

func TestLatency(t *testing.T) {
	for _, tt := range []struct {
		test, name string
		fault      fault.Config
		change     func(*Config)
	}{
		{"send_lat", "defaults", fault.Config{}, func(*Config) {}},
		{"send_lat", "large", fault.Config{}, func(c *Config) { c.Size, c.RxDepth = 5000, 3 }},
		{"send_lat", "events", fault.Config{}, func(c *Config) { c.Events = true }},
		{"send_lat", "UC", fault.Config{}, func(c *Config) { c.Service, c.Size = qp.UC, 3000 }},
		{"send_lat", "UD", fault.Config{}, func(c *Config) { c.Service, c.Size = qp.UD, 1024 }},
		{"send_lat", "UD inline", fault.Config{}, func(c *Config) { c.Service = qp.UD }},
		{"send_lat", "losses", lossy, func(c *Config) { c.Iters = 50 }},
		{"write_lat", "defaults", fault.Config{}, func(*Config) {}},
		{"write_lat", "one byte", fault.Config{}, func(c *Config) { c.Size = 1 }},
		{"write_lat", "large", fault.Config{}, func(c *Config) { c.Size, c.Iters = 5000, 300 }},
		{"write_lat", "UC", fault.Config{}, func(c *Config) { c.Service = qp.UC }},
		{"write_lat", "connection manager", fault.Config{}, func(c *Config) { c.CM = true }},
		{"send_lat", "connection manager", fault.Config{}, func(c *Config) { c.CM = true }},
		{"read_lat", "connection manager", fault.Config{}, func(c *Config) { c.CM = true }},
		{"write_lat", "losses", lossy, func(c *Config) { c.Iters = 50 }},
		{"read_lat", "defaults", fault.Config{}, func(*Config) {}},
		{"read_lat", "losses", lossy, func(c *Config) { c.Size, c.Iters = 3000, 50 }},
		{"atomic_lat", "defaults", fault.Config{}, func(*Config) {}},
		{"atomic_lat", "compare and swap", fault.Config{}, func(c *Config) { c.Atomic = CmpAndSwap }},
		{"atomic_lat", "unchecked", fault.Config{}, func(c *Config) { c.Check = false }},
		{"atomic_lat", "losses", lossy, func(c *Config) { c.Iters = 50 }},
	} {
		t.Run(tt.test+"/"+tt.name, func(t *testing.T) {
			cfg := config(t, tt.test, tt.change)
			if testing.Short() {
				cfg.Iters = min(cfg.Iters, 100)
			}
			client, server, printed := play(t, tt.fault, cfg)
			results := []Result{client}
			if cfg.Test.mutual {
				results = append(results, server)
			} else if len(server.Rows()) != 0 {
				t.Errorf("the server has measured %+v", server)
			}
			for _, r := range results {
				if len(r.Rows()) != 1 {
					t.Fatalf("%+v", r)
				}
				l := r.Latency[0]
				if l.Size != cfg.Size || l.Iters != cfg.Iters || l.Min <= 0 || l.Typical < l.Min || l.P99 < l.Typical || l.P999 < l.P99 || l.Max < l.P999 {
					t.Errorf("%+v", l)
				}
			}
			want := fmt.Sprintf(`Latency Test\n(?s:.*) #bytes #iterations    t_min\[usec\] .*\n %d +%d +\d+\.\d\d .*\n-+\n$`, cfg.Size, cfg.Iters)
			if !regexp.MustCompile(want).MatchString(printed) {
				t.Errorf("no %s in\n%s", want, printed)
			}
		})
	}
}

// This tests options of bandwidth tests, single and combined.
func TestOptions(t *testing.T) {
	for _, tt := range []struct {
		test, name string
		fault      fault.Config
		change     func(*Config)
		told       bool // the server has the client's figures, or both ends have the sum
	}{
		{"send_bw", "queue pairs", fault.Config{}, func(c *Config) { c.QPs, c.Size, c.Iters = 5, 300, 100 }, false},
		{"write_bw", "queue pairs", fault.Config{}, func(c *Config) { c.QPs, c.Size, c.Iters = 5, 300, 100 }, true},
		{"read_bw", "queue pairs", fault.Config{}, func(c *Config) { c.QPs, c.Size, c.Iters = 5, 300, 100 }, true},
		{"atomic_bw", "queue pairs", fault.Config{}, func(c *Config) { c.QPs, c.Iters = 5, 100 }, true},
		{"send_bw", "post list", fault.Config{}, func(c *Config) { c.PostList, c.Size, c.Iters = 16, 300, 160 }, false},
		{"write_bw", "post list", fault.Config{}, func(c *Config) { c.PostList, c.Size, c.Iters = 16, 300, 160 }, true},
		{"write_bw", "post list and moderation", fault.Config{}, func(c *Config) { c.PostList, c.CQMod, c.Size, c.Iters = 16, 4, 300, 160 }, true},
		{"read_bw", "moderation", fault.Config{}, func(c *Config) { c.CQMod, c.Size, c.Iters = 7, 300, 100 }, true},
		{"atomic_bw", "moderation", fault.Config{}, func(c *Config) { c.CQMod, c.Iters, c.TxDepth = 7, 100, 9 }, true},
		{"send_bw", "inline", fault.Config{}, func(c *Config) { c.InlineSize, c.Size, c.Iters = 100, 100, 200 }, false},
		{"write_bw", "inline", fault.Config{}, func(c *Config) { c.InlineSize, c.Size, c.Iters = 100, 99, 200 }, true},
		{"write_bw", "gigabits", fault.Config{}, func(c *Config) { c.Gbits, c.Iters = true, 20 }, true},
		{"write_bw", "unchecked", fault.Config{}, func(c *Config) { c.Check, c.Iters = false, 50 }, true},
		{"read_bw", "unchecked", fault.Config{}, func(c *Config) { c.Check, c.Iters = false, 50 }, true},
		{"send_bw", "unchecked", fault.Config{}, func(c *Config) { c.Check, c.Iters = false, 50 }, false},
		{"atomic_bw", "unchecked", fault.Config{}, func(c *Config) { c.Check, c.Iters, c.Atomic = false, 50, CmpAndSwap }, true},
		{"send_bw", "both ways", fault.Config{}, func(c *Config) { c.Both, c.Size, c.Iters = true, 300, 100 }, true},
		{"send_bw", "both ways, queue pairs, losses", lossy, func(c *Config) { c.Both, c.QPs, c.Size, c.Iters = true, 3, 300, 50 }, true},
		{"write_bw", "both ways", fault.Config{}, func(c *Config) { c.Both, c.Size, c.Iters = true, 300, 100 }, true},
		{"read_bw", "both ways", fault.Config{}, func(c *Config) { c.Both, c.Size, c.Iters = true, 300, 100 }, true},
		{"atomic_bw", "both ways", fault.Config{}, func(c *Config) { c.Both, c.Iters, c.QPs = true, 100, 2 }, true},
		{"atomic_bw", "both ways, compare and swap", fault.Config{}, func(c *Config) { c.Both, c.Iters, c.Atomic = true, 100, CmpAndSwap }, true},
		{"send_bw", "UC", fault.Config{}, func(c *Config) { c.Service, c.Size, c.Iters, c.TxDepth = qp.UC, 3000, 50, 4 }, false},
		{"send_bw", "UD", fault.Config{}, func(c *Config) { c.Service, c.Size, c.Iters, c.TxDepth = qp.UD, 1000, 50, 4 }, false},
		{"send_bw", "UD both ways", fault.Config{}, func(c *Config) { c.Service, c.Size, c.Iters, c.Both = qp.UD, 100, 50, true }, true},
		{"send_bw", "UD unchecked", fault.Config{}, func(c *Config) { c.Service, c.Size, c.Iters, c.Check = qp.UD, 100, 50, false }, false},
		{"send_bw", "connection manager", fault.Config{}, func(c *Config) { c.CM, c.QPs, c.Size, c.Iters = true, 3, 300, 100 }, false},
		{"read_bw", "connection manager", fault.Config{}, func(c *Config) { c.CM, c.Both, c.Size, c.Iters = true, true, 300, 100 }, true},
		{"atomic_bw", "connection manager, losses", lossy, func(c *Config) { c.CM, c.Iters = true, 50 }, true},
		{"write_bw", "events", fault.Config{}, func(c *Config) { c.Events, c.Iters = true, 20 }, true},
	} {
		t.Run(tt.test+"/"+tt.name, func(t *testing.T) {
			cfg := config(t, tt.test, tt.change)
			client, server, _ := play(t, tt.fault, cfg)
			if len(client.Bandwidth) != 1 || len(server.Bandwidth) != 1 {
				t.Fatalf("client %+v, server %+v", client, server)
			}
			c, s := client.Bandwidth[0], server.Bandwidth[0]
			if c.Size != cfg.Size || c.Iters != cfg.Iters*cfg.QPs || c.Average <= 0 || c.Peak < c.Average {
				t.Errorf("client: %+v", c)
			}
			near := func(a, b float64) bool { return a/b > 0.999999 && a/b < 1.000001 }
			if s.Iters != c.Iters || tt.told != near(s.Average, c.Average) {
				t.Errorf("client: %+v, server: %+v", c, s)
			}
		})
	}
}

// With -a, a test runs with all sizes, one after the other.
func TestAllSizes(t *testing.T) {
	for _, tt := range []struct {
		test   string
		change func(*Config)
		sizes  int
		server int // number of rows on the server
	}{
		{"send_bw", func(*Config) {}, 23, 23},
		{"send_bw", func(c *Config) { c.Both = true }, 23, 23},
		{"send_bw", func(c *Config) { c.Service, c.RxDepth = qp.UD, 5 }, 10, 10},
		{"write_bw", func(*Config) {}, 23, 1},
		{"write_bw", func(c *Config) { c.Both = true }, 23, 23},
		{"read_bw", func(*Config) {}, 23, 1},
		{"send_lat", func(*Config) {}, 23, 23},
		{"send_lat", func(c *Config) { c.Service = qp.UD }, 10, 10},
		{"write_lat", func(*Config) {}, 23, 23},
		{"read_lat", func(*Config) {}, 23, 0},
	} {
		cfg := config(t, tt.test, func(c *Config) {
			c.All, c.Iters, c.TxDepth, c.RxDepth, c.Check = true, 5, min(c.TxDepth, 3), min(c.RxDepth, 3), c.Test.TwoSided
			tt.change(c)
		})
		t.Run(fmt.Sprintf("%s/%v/both=%v", tt.test, cfg.Service, cfg.Both), func(t *testing.T) {
			if raceEnabled && cfg.Service == qp.RC {
				t.Skip("megabytes are slow under the race detector, which has tests of all other options")
			}
			client, server, _ := play(t, fault.Config{}, cfg)
			if len(client.Rows()) != tt.sizes || len(server.Rows()) != tt.server {
				t.Fatalf("client: %d rows, server: %d; want %d and %d", len(client.Rows()), len(server.Rows()), tt.sizes, tt.server)
			}
			for i, r := range client.Bandwidth {
				if r.Size != 2<<i || r.Iters != 5 {
					t.Errorf("row %d: %+v", i, r)
				}
			}
			for i, r := range client.Latency {
				if r.Size != 2<<i || r.Iters != 5 {
					t.Errorf("row %d: %+v", i, r)
				}
			}
		})
	}
}

// With -D, a test runs for a time instead of a number of messages.
func TestDuration(t *testing.T) {
	for _, name := range []string{"send_bw", "write_bw", "read_bw", "atomic_bw", "send_lat", "write_lat", "read_lat", "atomic_lat"} {
		for _, both := range []bool{false, true} {
			cfg := config(t, name, func(c *Config) {
				c.Margin, c.Size, c.Both, c.Check = 10*time.Millisecond, min(c.Size, 1000), both, false
			})
			if both && cfg.Test.Latency {
				continue
			}
			t.Run(fmt.Sprintf("%s/both=%v", name, both), func(t *testing.T) {
				client, printed := playFor(t, cfg)
				for _, r := range client.Bandwidth {
					if r.Iters <= 0 || r.Average <= 0 || r.Peak != 0 {
						t.Errorf("%+v", r)
					}
				}
				for _, r := range client.Latency {
					if r.Iters <= 0 || r.Average <= 0 || r.Rate <= 0 || !strings.Contains(printed, "tps average") {
						t.Errorf("%+v\n%s", r, printed)
					}
				}
				if len(client.Rows()) != 1 {
					t.Errorf("%+v", client)
				}
			})
		}
	}
}

// playFor plays a test for 60 ms. If the machine was too busy to transfer anything in the 40 ms between the margins, it plays the
// test again, for four times as long.
func playFor(t *testing.T, cfg Config) (client Result, printed string) {
	idle := func() bool {
		return slices.ContainsFunc(client.Bandwidth, func(r Report) bool { return r.Iters == 0 }) ||
			slices.ContainsFunc(client.Latency, func(r Latency) bool { return r.Iters == 0 })
	}
	for _, cfg.Duration = range []time.Duration{60 * time.Millisecond, 240 * time.Millisecond, 960 * time.Millisecond} {
		if client, _, printed = play(t, fault.Config{}, cfg); !idle() {
			break
		}
	}
	return client, printed
}

// The server reports messages that an unreliable service has lost.
func TestDatagramsLost(t *testing.T) {
	cfg := config(t, "send_bw", func(c *Config) { c.Service, c.Size, c.Iters, c.RxDepth = qp.UD, 1000, 50, 10 })
	s, c := hand(t, cfg)
	w, v := begin(t, c, s)
	if err := c.run(t.Context(), 20, w); err != nil {
		t.Fatal(err)
	}
	tr := &traffic{side: s.side, iters: 50, recv: []*receives{v.(*receives)}}
	tr.last = -lossTimeout // the time of the last message, long ago
	tr.received = 10
	if _, err := tr.run(t.Context()); err == nil || !strings.Contains(err.Error(), "UD repeats nothing") {
		t.Error(err)
	}
}

// A server of write_lat reports a client that disconnects in the middle of the test.
func TestWriteLatLeft(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	cfg := config(t, "write_lat", func(c *Config) { c.Iters = 50 })
	addr, served := serve(t, sd, cfg)
	cfg.Iters, cfg.silent = 20, true
	if _, err := Client(t.Context(), cd, addr, cfg); err != nil {
		t.Error(err)
	}
	if o := <-served; o.Err == nil || !strings.Contains(o.Err.Error(), "hung up after 20 WRITEs of 50") {
		t.Errorf("server: %v", o.Err)
	}
}

// The last WRITE of UC may arrive after its sender has closed the TCP connection.
func TestWriteLatOvertaken(t *testing.T) {
	late := fault.Config{Rx: fault.Rates{Delay: 1}, DelayTime: 20 * time.Millisecond}
	play(t, late, config(t, "write_lat", func(c *Config) { c.Service, c.Iters = qp.UC, 5 }))
}

// write_lat reports a message that differs from the one that the client sends.
func TestWriteLatChecks(t *testing.T) {
	s, _ := hand(t, config(t, "write_lat", func(c *Config) { c.Size = 100 }))
	g := trip{end: s}
	expect(t, "good", g.intact(0), "")
	s.export.WriteAt([]byte{5}, 99)
	expect(t, "the counter", g.intact(0), "")
	s.export.WriteAt([]byte{5}, 98)
	expect(t, "in front of it", g.intact(7), "WRITE 7 of 100 bytes has 0x05 at 98")
}

func TestNewLatency(t *testing.T) {
	var posts []time.Duration
	at := time.Duration(0)
	for i := range 103 { // gaps of 1 to 102 µs
		at += time.Duration(i) * time.Microsecond
		posts = append(posts, at)
	}
	l := newLatency(64, posts, 2)
	l.samples = nil
	// The two largest samples are left out. The others are the halves of 1 to 100 µs. The maximum is the smallest one that is left out.
	want := Latency{Size: 64, Iters: 103, Min: 0.5, Max: 50.5, Typical: 25.25, Average: 25.25, P99: 50, P999: 50.5}
	if l.Stdev < 14.4 || l.Stdev > 14.5 || l.Average < 25.2499 || l.Average > 25.2501 {
		t.Errorf("%+v", l)
	}
	if l.Stdev, l.Average = 0, want.Average; fmt.Sprint(l) != fmt.Sprint(want) || l.Max != want.Max {
		t.Errorf("%+v, want %+v", l, want)
	}
	if l := newLatency(2, posts[:minIters], 1); l.Iters != minIters || l.Max < l.Min {
		t.Errorf("of the fewest: %+v", l)
	}
}

func TestLatencyDump(t *testing.T) {
	l := Latency{samples: []float64{3, 1.5, 2, 9, 8}}
	for sorted, want := range map[bool]string{
		false: "#, usec\n1, 3\n2, 1.5\n3, 2\n4, 9\n5, 8\n",
		true:  "#, usec\n1, 1.5\n2, 2\n3, 3\n",
	} {
		var b strings.Builder
		if l.dump(&b, sorted); b.String() != want {
			t.Errorf("%q, want %q", b.String(), want)
		}
	}
}

// Invalid options and invalid combinations are errors.
func TestOptionChecks(t *testing.T) {
	_, d := tooltest.Pair(t, fault.Config{})
	for _, tt := range []struct {
		test   string
		change func(*Config)
		want   string
	}{
		{"read_bw", func(c *Config) { c.Service = qp.UC }, "UC: read_bw knows RC"},
		{"write_lat", func(c *Config) { c.Service = qp.UD }, "UD: write_lat knows RC, UC"},
		{"atomic_bw", func(c *Config) { c.All = true }, "atomic_bw has 8 only"},
		{"send_bw", func(c *Config) { c.CM, c.Service = true, qp.UC }, "only RC"},
		{"send_lat", func(c *Config) { c.QPs = 2 }, "only in bandwidth tests"},
		{"send_lat", func(c *Config) { c.Both = true }, "only in bandwidth tests"},
		{"send_lat", func(c *Config) { c.PostList = 2 }, "only in bandwidth tests"},
		{"send_bw", func(c *Config) { c.Histogram = true }, "only in latency tests"},
		{"read_bw", func(c *Config) { c.InlineSize = 10 }, "READs and atomics have none"},
		{"write_lat", func(c *Config) { c.Events = true }, "makes none"},
		{"send_bw", func(c *Config) { c.Duration = -1 }, "want a positive one"},
		{"send_bw", func(c *Config) { c.Duration, c.All = 1, true }, "(-a)"},
		{"send_bw", func(c *Config) { c.Duration, c.Events = 1, true }, "(-e)"},
		{"send_bw", func(c *Config) { c.Duration, c.Margin = 10, 5 }, "twice the margin"},
		{"atomic_bw", func(c *Config) { c.Duration, c.Check = 1, true }, "cannot be checked"},
		{"send_bw", func(c *Config) { c.PostList = 3 }, "a multiple of the post list's 3"},
		{"send_bw", func(c *Config) { c.PostList, c.CQMod = 10, 3 }, "a multiple of the CQ moderation's 3"},
		{"send_bw", func(c *Config) { c.PostList = 200 }, "larger than the TX depth"},
		{"send_bw", func(c *Config) { c.QPs = maxQPs + 1 }, "queue pairs (-q) 16385"},
		{"send_bw", func(c *Config) { c.CQMod = 1025 }, "CQ moderation (-Q) 1025"},
		{"send_bw", func(c *Config) { c.InlineSize = 913 }, "inline size (-I) 913"},
		{"send_bw", func(c *Config) { c.PostList = 0 }, "post list (-l) 0"},
		{"send_bw", func(c *Config) { c.QPs, c.Size, c.Check = 200, maxSize, false }, "more than"},
	} {
		c := config(t, tt.test, tt.change)
		if err := c.check(d); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.test, err, tt.want)
		}
	}
	c := config(t, "send_bw", func(c *Config) { c.Service, c.Size = qp.UD, 2000 })
	if err := c.check(d); err != nil {
		t.Fatal(err)
	}
	if _, err := newSide(d, &c, terms{cycleBuffer, cacheLine, 3}, netip.MustParseAddr("127.0.0.1"), false); err == nil || !strings.Contains(err.Error(), "at most the path MTU") {
		t.Error(err)
	}
}

// Options that are not given get the values that perftest uses.
func TestFillIn(t *testing.T) {
	_, d := tooltest.Pair(t, fault.Config{})
	for _, tt := range []struct {
		test   string
		change func(*Config)
		want   string // TX depth, RX depth, CQ moderation, inline size
	}{
		{"send_bw", func(*Config) {}, "128 512 1 0"},
		{"send_bw", func(c *Config) { c.Size = 8192 }, "128 512 100 0"},
		{"send_bw", func(c *Config) { c.Iters = 20 }, "20 20 1 0"},
		{"send_bw", func(c *Config) { c.Service, c.Size = qp.UD, 64 }, "128 1000 100 0"},
		{"send_bw", func(c *Config) { c.Service, c.Iters, c.Size = qp.UC, 50000, 64 }, "128 16000 100 0"},
		{"write_bw", func(c *Config) { c.PostList = 4 }, "128 1 4 0"},
		{"send_lat", func(*Config) {}, "1 512 1 236"},
		{"send_lat", func(c *Config) { c.Service = qp.UD }, "1 1000 1 188"},
		{"write_lat", func(*Config) {}, "1 1 1 220"},
		{"read_lat", func(*Config) {}, "1 1 1 0"},
	} {
		c := config(t, tt.test, func(c *Config) { c.Check = false; tt.change(c) })
		if err := c.check(d); err != nil {
			t.Errorf("%s: %v", tt.test, err)
		}
		if got := fmt.Sprint(c.TxDepth, c.RxDepth, c.CQMod, c.InlineSize); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.test, got, tt.want)
		}
	}
}

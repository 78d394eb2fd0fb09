//go:build linux

package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/bench/internal/result"
)

func find(t *testing.T, name string) test {
	t.Helper()
	i := slices.IndexFunc(tests, func(t test) bool { return t.name == name })
	if i < 0 {
		t.Fatalf("no test %s", name)
	}
	return tests[i]
}

// Rows as perftest and rocectl print them.
func TestRead(t *testing.T) {
	for _, tt := range []struct {
		test, output string
		want         result.RXESample
	}{
		{"WRITE 64 KiB, PMTU 1024", " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n 65536      49100            0.00               12.87  \t\t   0.024550\n---\n",
			result.RXESample{Value: 12.87, Iters: 49100}},
		{"SEND 64 B", " 64         2000000          0.00               0.51  \t\t   1.000123\n", result.RXESample{Value: 1.000123, Iters: 2000000}},
		{"SEND 64 B", " 64         2000           0.000000            0.051000            0.100012\n", result.RXESample{Value: 0.100012, Iters: 2000}},
		{"SEND 64 B latency", " 64      3000          8.10           30.20        9.00     \t       9.30     \t0.50   \t\t12.00  \t\t25.00  \n",
			result.RXESample{Value: 9, P99: 12, Iters: 3000}},
		{"WRITE 64 B latency", " 64      3000          49.63          266294.27      70.36    \t       2801.28     \t-nan   \t\t61353.65 \t\t180839.16\n",
			result.RXESample{Value: 70.36, P99: 61353.65, Iters: 3000}},
	} {
		if got, err := find(t, tt.test).read(tt.output); err != nil || got != tt.want {
			t.Errorf("%s: %+v, %v; want %+v", tt.test, got, err, tt.want)
		}
	}
	for _, output := range []string{"", " 65536 what", " 64 1 2 3 4\n", " 65536 1 2 3\n"} {
		if s, err := find(t, "WRITE 64 KiB, PMTU 1024").read(output); err == nil {
			t.Errorf("%q: %+v", output, s)
		}
	}
}

// In every test both contenders get the same flags.
func TestCommands(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range tests {
		if seen[tt.name] {
			t.Errorf("two tests are called %s", tt.name)
		}
		seen[tt.name] = true
		ends := [2]*end{{name: "x"}, {name: "y"}}
		ends[1].remote = ends[0]
		our := ours{ends: ends, rocectl: "rocectl", link: "raw"}
		for _, c := range []contender{rxe{ends}, our, libraries{ends, "lib", "raw"}, mixed{our, rxe{ends}, true}} {
			server, client := strings.Join(c.argv(0, tt, 19001, 2), " "), strings.Join(c.argv(1, tt, 19001, 2), " ")
			want := strings.Join(tt.args(19001, 2), " ")
			if !strings.HasSuffix(server, want) || !strings.Contains(client, want+" ") {
				t.Errorf("%s, %s: %q and %q lack %q", tt.name, c.name(), server, client, want)
			}
		}
	}
}

// With and without losses link/fault does the same work for each packet: only the rate differs.
func TestSameFaults(t *testing.T) {
	ends := [2]*end{{name: "x"}, {name: "y"}}
	ends[1].remote = ends[0]
	m := mixed{ours{ends: ends, rocectl: "rocectl", link: "raw"}, rxe{ends}, false}
	lossy := m
	lossy.lossy = true
	tt := find(t, result.FromRXE)
	without, with := m.argv(1, tt, 19001, 2), lossy.argv(1, tt, 19001, 2)
	for i := range without {
		if before := without[max(i, 1)-1]; without[i] != with[i] && before != "--loss" {
			t.Errorf("%q and %q differ at %q", without, with, without[i])
		}
	}
	if len(without) != len(with) || slices.Equal(without, with) {
		t.Errorf("%q and %q", without, with)
	}
}

func TestResults(t *testing.T) {
	r := results{RXE: result.RXE{Kernel: "6.12"}, links: []string{"roce raw"}}
	write, lat := find(t, "WRITE 64 KiB, PMTU 1024"), find(t, "SEND 64 B latency")
	for _, v := range []float64{3, 1, 2} {
		r.add(write, "rxe", result.RXESample{Value: v}, nil)
		r.add(write, "roce raw", result.RXESample{Value: 3 * v}, nil)
		r.add(lat, "rxe", result.RXESample{Value: 10 * v, P99: 20}, nil)
	}
	r.add(lat, "roce raw", result.RXESample{Value: 5, P99: 7}, nil)
	r.add(lat, "roce raw", result.RXESample{}, errors.New("broken"))
	r.add(find(t, "FETCH_ADD"), "rxe", result.RXESample{}, errors.New("broken"))
	r.summarize()
	want := `| test | | rxe | roce raw | ratio |
|---|---|---:|---:|---:|
| WRITE 64 KiB, PMTU 1024 | Gb/s | 2 | 6 | 3.00 |
| SEND 64 B latency | µs | 20.0 (99 %: 20.0) | 5.0 (99 %: 7.0) | 4.00 |
| FETCH_ADD | M/s | failed | – | – |
`
	if got := r.markdown(); !strings.HasSuffix(got, want) {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	file := filepath.Join(t.TempDir(), "results", "rxe.json")
	if err := r.write(file); err != nil {
		t.Fatal(err)
	}
	var back result.RXE
	b, _ := os.ReadFile(file)
	if err := json.Unmarshal(b, &back); err != nil || back.Rows[0].By["roce raw"].Ratio != 3 || back.Rows[1].By["roce raw"].Failed[0] != "broken" {
		t.Errorf("%v: %s", err, b)
	}
}

func TestParse(t *testing.T) {
	if o, err := parse([]string{"-cpus", "2", "-links", "raw,udp"}); err != nil || o.cpus != 2 || len(o.links) != 2 || o.out != "bench/results/rxe-2.json" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse(nil); err != nil || o.cpus != 1 || o.out != "bench/results/rxe-1.json" {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := parse([]string{"-here"}); err != nil || !o.here || o.out != "bin/rxe.json" {
		t.Errorf("%+v, %v", o, err)
	}
	for _, args := range [][]string{{"-cpus", "3"}, {"-rounds", "0"}, {"-run", "("}, {"x"}, {"-here", "-kernel", "6.1"}, {"-guest", "KVM"}, {"-links", "raw,foo"}, {"-links", ""}} {
		if _, err := parse(args); err == nil {
			t.Errorf("%v accepted", args)
		}
	}
}

// A rate of 0 is no measurement: it must not change the median.
func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{0, 0}, 0}, {[]float64{5, 0}, 5}, {[]float64{1, 3}, 2}, {[]float64{9, 0, 1, 4}, 4}} {
		var all []result.RXESample
		for _, v := range tt.values {
			all = append(all, result.RXESample{Value: v})
		}
		if got := median(all, func(s result.RXESample) float64 { return s.Value }); got != tt.want {
			t.Errorf("median of %v: %v, want %v", tt.values, got, tt.want)
		}
	}
}

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/pcap"
)

// impairReport has the counters that the tests check.
type impairReport struct {
	A, B struct{ Received, Sent, RoCE, Overrun, Unsent, Unusable uint64 }

	AToB map[string]uint64 `json:"a_to_b"`
	BToA map[string]uint64 `json:"b_to_a"`

	Rules []struct{ Matched, Fired uint64 }

	Connections int
}

// startImpair runs the command between two interfaces, or on one if far is nil. stop ends it and returns its counters.
func startImpair(t *testing.T, flags []string, near, far *netlab.Side) (stop func() impairReport) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	args := append([]string{"impair", "--json", near.Interface + "@" + near.Netns()}, flags...)
	if far != nil {
		args = append(args, far.Interface+"@"+far.Netns())
	}
	var out bytes.Buffer
	said := &announced{text: "forwarding between", ready: make(chan struct{})}
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, args, &out, said) }()
	select {
	case <-said.ready:
	case code := <-ended:
		t.Fatalf("impair: exit %d, %s", code, said)
	}
	return func() (r impairReport) {
		t.Helper()
		cancel()
		if code := <-ended; code != exitOK {
			t.Fatalf("impair: exit %d, %s", code, said)
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s", err, out.String())
		}
		return r
	}
}

// TestImpair: this stack is at both ends of the bridge. Rules affect only the packets that they select, also
// in the middle of a super-packet, and the ends recover.
func TestImpair(t *testing.T) {
	a, b, near, far := netlab.Bridged(t, netlab.Config{})
	rules := func(name string) string { return "--rules ../../examples/impair/" + name + ".yaml" }
	perf := func(test string) [2]string {
		return [2]string{"perf " + test + " -s 65536 -n 5", "perf " + test + " -s 65536 -n 5 %s"}
	}
	rping := [2]string{"rping -s -C 5", "rping -c -C 5 -V -S 4000 -a %s"}
	for _, tt := range []struct {
		name, flags string
		ends        [2]string
		v6          bool
		fired       []uint64 // how often each rule fired; nil: at least once
		dropped     uint64   // in both directions together
		fails       string   // part of the client's output if it fails
	}{
		{name: "nothing", ends: rping},
		{name: "nothing over IPv6", ends: rping, v6: true},
		{name: "drop a WRITE", flags: rules("drop-write"), ends: perf("write_bw"), fired: []uint64{1}, dropped: 1},
		{name: "drop a WRITE twice", flags: rules("drop-write-twice"), ends: perf("write_bw"), fired: []uint64{1, 1}, dropped: 2},
		{name: "drop the last packet", flags: rules("drop-last"), ends: perf("write_bw"), fired: []uint64{1}, dropped: 1},
		{name: "drop a SEND", flags: rules("drop-send"), ends: perf("send_bw"), fired: []uint64{1}, dropped: 1},
		{name: "drop a READ response", flags: rules("drop-read-response"), ends: perf("read_bw"), fired: []uint64{1}, dropped: 1},
		{name: "drop a READ response twice", flags: rules("drop-read-response-twice"), ends: perf("read_bw"), fired: []uint64{1, 1}, dropped: 2},
		{name: "a bit error", flags: rules("corrupt"), ends: perf("write_bw"), fired: []uint64{1}},
		{name: "reorder", flags: rules("reorder"), ends: perf("write_bw"), fired: []uint64{1}},
		{name: "duplicate", flags: rules("duplicate"), ends: rping},
		{name: "delay", flags: rules("delay"), ends: rping},
		{name: "congestion", flags: rules("ecn"), ends: perf("write_bw")},
		{name: "flags", flags: "--fault drop,tx,op=WRITE_*,rel=2,iter=1 --dup rx=50% --seed 5", ends: perf("write_bw"), fired: []uint64{1}, dropped: 1},
		{name: "wrong content", flags: "--fault corrupt,op=READ_RESPONSE_*,nth=3,icrc=right", ends: rping, fired: []uint64{1}, fails: "data"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trace := filepath.Join(t.TempDir(), "run.pcapng")
			stop := startImpair(t, append(strings.Fields(tt.flags), "--trace", trace), near, far)
			addr := b.IP4
			if tt.v6 {
				addr = b.IP6
			}
			if strings.HasPrefix(tt.ends[0], "rping") {
				tt.ends[0] += " -a " + addr.String()
			}
			code, out := meet(t, a, b, tt.ends[0], fmt.Sprintf(tt.ends[1], addr))
			r := stop()
			switch {
			case tt.fails == "" && code != exitOK, tt.fails != "" && (code == exitOK || !strings.Contains(out, tt.fails)):
				t.Errorf("client: exit %d, %s", code, out)
			}
			for i, c := range r.Rules {
				if tt.fired != nil && c.Fired != tt.fired[i] || c.Fired == 0 {
					t.Errorf("rule %d matched %d and fired %d, want %v", i+1, c.Matched, c.Fired, tt.fired)
				}
			}
			if got := r.AToB["dropped"] + r.BToA["dropped"]; got != tt.dropped {
				t.Errorf("%d packets dropped, want %d", got, tt.dropped)
			}
			if lost := r.A.Overrun + r.A.Unsent + r.A.Unusable + r.B.Overrun + r.B.Unsent + r.B.Unusable; lost != 0 || r.Connections == 0 {
				t.Errorf("lost %d of its own, %d connections: %+v", lost, r.Connections, r)
			}
			extra := r.AToB["duplicated"] - r.AToB["dropped"] - r.AToB["held"]
			if r.A.Received+extra != r.B.Sent {
				t.Errorf("%+v: A received %d, B sent %d, want %d more", r, r.A.Received, r.B.Sent, int64(extra))
			}
			checkTrace(t, trace, r)
		})
	}
}

// checkTrace compares a trace with the counters.
func checkTrace(t *testing.T, name string, r impairReport) {
	t.Helper()
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	in, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	var seq, dropped, arrived, left uint64
	at := map[uint64]pcap.Record{}
	for {
		rec, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		seq++
		if !strings.HasPrefix(rec.Comment, fmt.Sprintf("seq=%d ", seq)) {
			t.Fatalf("record %d has the comment %q", seq, rec.Comment)
		}
		if strings.Contains(rec.Comment, " drop ") {
			dropped++
		}
		if rec.Direction == pcap.In {
			arrived++
			rec.Data = nil
			at[rec.ID] = rec
			continue
		}
		left++
		if from, ok := at[rec.ID]; !ok || from.Interface == rec.Interface || rec.Time.Before(from.Time) || !strings.Contains(rec.Comment, fmt.Sprintf("of=%d", rec.ID)) {
			t.Errorf("record %d (%s) left before it came: %+v", seq, rec.Comment, from)
		}
	}
	if arrived != r.A.Received+r.B.Received || left != r.A.Sent+r.B.Sent || dropped != r.AToB["dropped"]+r.BToA["dropped"] {
		t.Errorf("the trace has %d arrivals, %d departures and %d drops; counters %+v", arrived, left, dropped, r)
	}
}

// TestImpairOneInterface: with one interface, impair forwards the packets between the host's UDP sockets and the wire.
func TestImpairOneInterface(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	var out bytes.Buffer
	if code := run(t.Context(), []string{"impair", "--for", "1ms", a.Interface + "@" + a.Netns()}, &out, &out); code != exitOK && strings.Contains(out.String(), "TCX") {
		netlab.Lacking(t, "TCX", errors.New(out.String()))
	}
	taps := func() (n int) {
		links, err := a.Netlink().LinkList()
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if l.Type() == "tuntap" {
				n++
			}
		}
		return n
	}
	for _, tt := range []struct {
		name, flags string
		v6          bool
		dropped     uint64
	}{
		{name: "nothing"},
		{name: "nothing over IPv6", v6: true},
		{name: "drop a WRITE twice", flags: "--rules ../../examples/impair/drop-write-twice.yaml", dropped: 2},
		{name: "drop a response", flags: "--fault drop,rx,op=ACKNOWLEDGE,nth=2", dropped: 1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			trace := filepath.Join(t.TempDir(), "run.pcapng")
			stop := startImpair(t, append(strings.Fields(tt.flags), "--trace", trace), a, nil)
			if n := taps(); n != 2 {
				t.Errorf("%d tap devices, want 2", n)
			}
			addr := b.IP4
			if tt.v6 {
				addr = b.IP6
			}
			perf := "perf write_bw --link udp -s 65536 -n 20 "
			if code, out := meet(t, a, b, perf, perf+addr.String()); code != exitOK {
				t.Errorf("client: exit %d, %s", code, out)
			}
			r := stop()
			if r.A.Received == 0 || r.A.RoCE != r.A.Received || r.B.RoCE == 0 || r.Connections == 0 {
				t.Errorf("not all packets came by: %+v", r)
			}
			if got := r.AToB["dropped"] + r.BToA["dropped"]; got != tt.dropped || r.A.Received-r.AToB["dropped"] != r.B.Sent {
				t.Errorf("%d packets dropped, want %d; A received %d, B sent %d", got, tt.dropped, r.A.Received, r.B.Sent)
			}
			checkTrace(t, trace, r)
			if n := taps(); n != 0 {
				t.Errorf("%d tap devices are left", n)
			}
		})
	}
	before := state(t, a)
	kill := launchImpair(t, a, a.Interface)
	if n := taps(); n != 2 {
		t.Errorf("%d tap devices while the bridge runs, want 2", n)
	}
	kill()
	wantState(t, a, before)
	if code, out := meet(t, a, b, "rping -s --link udp -C 3 -a "+b.IP4.String(), "rping -c --link udp -C 3 -a "+b.IP4.String()); code != exitOK {
		t.Errorf("after it was killed: exit %d, %s", code, out)
	}
}

// TestImpairLeavesNothing: when the process ends or is killed, the kernel removes what it has for the bridge, and a second start works
// at once.
func TestImpairLeavesNothing(t *testing.T) {
	a, b, near, far := netlab.Bridged(t, netlab.Config{})
	before := state(t, near)
	kill := launchImpair(t, near, near.Interface, far.Interface)
	if during := state(t, near); slices.Equal(before, during) {
		t.Errorf("nothing shows that the bridge runs: %q", during)
	}
	kill()
	wantState(t, near, before)
	stop := startImpair(t, nil, near, far)
	if code, out := meet(t, a, b, "rping -s -C 1 -a "+b.IP4.String(), "rping -c -C 1 -a "+b.IP4.String()); code != exitOK {
		t.Errorf("after a second start: exit %d, %s", code, out)
	}
	stop()
	wantState(t, near, before)
}

// TestImpairRefuses: impair reports wrong flags and interfaces that it cannot forward between.
func TestImpairRefuses(t *testing.T) {
	_, _, near, far := netlab.Bridged(t, netlab.Config{})
	refuse := func(want string, code int, args ...string) {
		t.Helper()
		var out bytes.Buffer
		got := exitOK
		near.Do(t, func() { got = run(t.Context(), append([]string{"impair"}, args...), &out, &out) })
		if got != code || !strings.Contains(out.String(), want) {
			t.Errorf("impair %s: exit %d, %s; want %d and %q", strings.Join(args, " "), got, out.String(), code, want)
		}
	}
	refuse("no such network interface", exitFailed, near.Interface, "nowhere0")
	refuse("no Ethernet interface", exitFailed, near.Interface, "lo")
	refuse("are one interface", exitFailed, near.Interface, near.Interface)
	refuse("network namespace nobody", exitFailed, near.Interface, far.Interface+"@nobody")
	refuse("want one or two", exitUsage)
	refuse("is not IFACE", exitUsage, near.Interface, "@x")
	refuse("no such file", exitFailed, "--rules", "none.yaml", near.Interface, far.Interface)
	refuse("values.yaml:4:13: unknown action", exitFailed, "--check", "--rules", "../../internal/impair/testdata/mistakes/values.yaml")
	refuse(".pcapng", exitUsage, "--trace", "x.pcap", near.Interface, far.Interface)
	refuse("want both, a or b", exitUsage, "--trace-at", "c", near.Interface, far.Interface)
	refuse("--for -5s is negative", exitUsage, "--for", "-5s", near.Interface, far.Interface)
	refuse("--buffer -1 is not between 0 and 1073741823 bytes", exitUsage, "--buffer", "-1", near.Interface, far.Interface)
	refuse("--buffer 1073741824 is not", exitUsage, "--buffer", "1073741824", near.Interface, far.Interface)
	refuse("delay-time -1s is negative", exitUsage, "--delay-time", "-1s", near.Interface, far.Interface)

	bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}
	if err := near.Netlink().LinkAdd(bridge); err != nil {
		netlab.Lacking(t, "bridge", err)
	}
	if err := near.Netlink().LinkSetMaster(far.Link(), bridge); err != nil {
		t.Fatal(err)
	}
	refuse("is a port of br0", exitFailed, near.Interface, far.Interface)
	if err := near.Netlink().LinkSetNoMaster(far.Link()); err != nil {
		t.Fatal(err)
	}

}

// TestImpairCheck: the examples are valid.
func TestImpairCheck(t *testing.T) {
	files, _ := filepath.Glob("../../examples/impair/*.yaml")
	if !slices.ContainsFunc(files, func(s string) bool { return strings.HasSuffix(s, "drop-write.yaml") }) {
		t.Fatal("the examples are gone")
	}
	for _, name := range files {
		var out bytes.Buffer
		if code := run(t.Context(), []string{"impair", "--check", "--rules", name}, &out, &out); code != exitOK {
			t.Errorf("%s: exit %d, %s", name, code, out.String())
		}
	}
}

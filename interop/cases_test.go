//go:build linux

package main

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// The names of cases must differ: they select cases, and name the folders of their logs.
func TestNamesDiffer(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range allCases() {
		if seen[c.name()] {
			t.Errorf("two cases are called %s", c.name())
		}
		seen[c.name()] = true
	}
}

// The matrix is complete: every tool, in both roles, clean and impaired.
func TestMatrix(t *testing.T) {
	have := make(map[string]bool)
	for _, c := range allCases() {
		have[c.name()] = true
	}
	for _, tool := range []string{"rping", "rping6", "rc_pingpong", "srq_pingpong", "program/rdma_client", "program/ucmatose", "program/rping", "program/rc_pingpong",
		"atomic_bw/FETCH_AND_ADD", "atomic_bw/CMP_AND_SWAP", "send_bw", "write_bw", "read_bw", "rstream", "riostream", "fi_pingpong"} {
		for _, role := range []string{"linux-server", "linux-client"} {
			for _, impairment := range []string{"clean", "loss4", "dup20"} {
				if name := strings.Join([]string{tool, role, impairment}, "/"); !have[name] {
					t.Errorf("no case %s", name)
				}
			}
		}
	}
}

// All programs of perftest have cases. Those that measure latency have cases with loss, too.
func TestPerftestMatrix(t *testing.T) {
	have := make(map[string]bool)
	for _, c := range allCases() {
		have[c.name()] = true
	}
	for _, role := range []string{"linux-server", "linux-client"} {
		for name, impairments := range map[string][]string{
			"send_lat": {"clean", "loss4"}, "read_lat": {"clean", "loss4"}, "atomic_lat": {"clean", "loss4"}, "write_lat": {"clean"},
			"send_bw/qp3": {"clean"}, "write_bw/bidirectional": {"clean"}, "send_bw/UD/all": {"clean"}, "send_lat/duration": {"clean"},
			"write_bw/list": {"clean"}, "send_bw/rdma_cm": {"clean"}, "send_bw/UC": {"clean"}, "send_bw/UD": {"clean"}, "send_lat/UD": {"clean"},
		} {
			for _, impairment := range impairments {
				if name := strings.Join([]string{name, role, impairment}, "/"); !have[name] && !have["program/"+name] {
					t.Errorf("no case %s", name)
				}
			}
		}
	}
}

// Congestion control is tested with requests, responses and unreliable services.
func TestMarkedMatrix(t *testing.T) {
	have := make(map[string]bool)
	for _, c := range allCases() {
		have[c.name()] = true
	}
	for _, tool := range []string{"rping", "rping6", "rc_pingpong", "uc_pingpong", "write_bw", "read_bw"} {
		for _, role := range []string{"linux-server", "linux-client"} {
			if name := tool + "/" + role + "/marked"; !have[name] {
				t.Errorf("no case %s", name)
			}
		}
	}
}

// The unreliable services have cases for each of their operations.
func TestUnreliableMatrix(t *testing.T) {
	have := make(map[string]bool)
	for _, c := range allCases() {
		have[c.name()] = true
	}
	for _, tool := range []string{"uc_pingpong", "ud_pingpong"} {
		for _, role := range []string{"linux-server", "linux-client"} {
			for _, name := range []string{tool + "/" + role + "/clean", tool + "6/" + role + "/clean", tool + "/" + role + "/clean/mtu4200"} {
				if !have[name] {
					t.Errorf("no case %s", name)
				}
			}
		}
	}
	for _, name := range []string{
		"udpong6/linux-server/clean", "udpong6/linux-client/clean",
		"udpong/linux-server/clean", "udpong/linux-client/clean", "udpong/linux-server/loss4", "udpong/linux-client/loss4",
		"udaddy/linux-server/clean", "udaddy/linux-client/clean", "udaddy6/linux-server/clean", "udaddy6/linux-client/clean",
		"udaddy/linux-server/dup20", "udaddy/linux-client/dup20", "udaddy/linux-server/clean/mtu4200", "udaddy/linux-client/clean/mtu4200",
		"udaddy/linux-server/loss10dup50", "udaddy/linux-client/loss10dup50",
		"udaddy/linux-server/resolve/loss20", "udaddy/linux-client/resolve/loss20", "udaddy/linux-server/resolve/dup20", "udaddy/linux-client/resolve/dup20",
		"udaddy/linux-server/no-server", "udaddy/linux-client/no-server",
		"mckey/linux-server/clean", "mckey/linux-client/clean", "mckey/linux-server/dup20", "mckey/linux-client/dup20",
		"mckey/linux-server/repeated/loss20", "mckey/linux-client/repeated/loss20",
		"mckey/linux-server/clean/mtu4200", "mckey/linux-client/clean/mtu4200", "mckey/linux-server/clean/udp", "mckey/linux-client/clean/udp",
	} {
		if !have["program/"+name] {
			t.Errorf("no case program/%s", name)
		}
	}
}

// rocectl does not have these tools: our side is rdma-core's program, or a server that rejects every
// connection.
func TestOnlyPrograms(t *testing.T) {
	for _, c := range allCases() {
		switch c.tool.name {
		case "rdma_client", "ucmatose", "udaddy", "mckey", "cmtime", "udpong":
			if !c.program && (c.linux == server || c.scenario.name != rejected.name) {
				t.Errorf("%s needs a program", c.name())
			}
		}
	}
}

func TestPathMTU(t *testing.T) {
	for link, want := range map[int]int{1500: 1024, 4200: 4096, 4175: 2048, 9000: 4096, 1280: 1024, 576: 256} {
		if got := pathMTU(link); got != want {
			t.Errorf("pathMTU(%d) = %d, want %d", link, got, want)
		}
	}
}

// The exit code is 1 after a failure, and if a case did not run.
func TestReport(t *testing.T) {
	o := &options{kernels: []string{"6.1"}}
	cases := allCases()[:2]
	ok := func(i int) result { return result{kernel: "6.1", name: cases[i].name(), took: time.Second} }
	bad := ok(1)
	bad.err = errors.New("broken")
	log := result{kernel: "6.1", name: "kernel-log"}
	for _, tt := range []struct {
		results []result
		code    int
		says    string
	}{
		{[]result{ok(0), ok(1), log}, 0, "interop: 3 passed, 0 failed"},
		{[]result{ok(0), bad, log}, 1, "interop: 2 passed, 1 failed"},
		{[]result{ok(0), log}, 1, "not run"},
	} {
		var b strings.Builder
		if code := report(&b, o, cases, tt.results, time.Second); code != tt.code || !strings.Contains(b.String(), tt.says) {
			t.Errorf("exit code %d, want %d and %q in:\n%s", code, tt.code, tt.says, b.String())
		}
	}
}

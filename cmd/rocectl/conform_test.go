package main

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// conform --self passes and writes the card in all forms.
func TestConformSelf(t *testing.T) {
	dir := t.TempDir()
	page, junit, captures := filepath.Join(dir, "card.html"), filepath.Join(dir, "card.xml"), filepath.Join(dir, "steps")
	code, stdout, stderr := rocectl(t, "conform", "--self", "--only", "clean/(send|cm)/|drop-middle/write|script/headers/in-order", "--limit", "1m", "--html", page, "--junit", junit, "--captures", captures)
	if code != 0 || !strings.Contains(stdout, "PASS, 7 of 7 steps pass") {
		t.Fatalf("exit status %d\n%s%s", code, stdout, stderr)
	}
	for _, name := range []string{page, junit} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		for d := xml.NewDecoder(f); ; {
			if _, err := d.Token(); err == io.EOF {
				break
			} else if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
		}
		f.Close()
	}
	files, err := filepath.Glob(filepath.Join(captures, "*.pcapng"))
	if err != nil || len(files) != 7 {
		t.Fatalf("captures: %v, %v", files, err)
	}
	if code, stdout, stderr := rocectl(t, "pcap", "verify", "--at", "file", filepath.Join(captures, "clean-send-tester.pcapng")); code != 0 {
		t.Errorf("the capture of a step: exit status %d\n%s%s", code, stdout, stderr)
	}
}

// conform tests the server of conform --serve with a rule file and a script of the user.
func TestConformServe(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.77:0") // finds a free port
	if err != nil {
		t.Skipf("the loopback has one address here: %v", err)
	}
	port := strings.TrimPrefix(l.Addr().String(), "127.0.0.77:")
	l.Close()
	rules := filepath.Join(t.TempDir(), "second.yaml")
	if err := os.WriteFile(rules, []byte("rules:\n  - {name: the second, action: drop, match: {opcode: \"SEND_*\", nth: 2}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	mine := filepath.Join(t.TempDir(), "mine.script")
	if err := os.WriteFile(mine, []byte("title \"a SEND\"\nrule \"9.7\"\nconnect verbs rc recv=1\nsend SEND_ONLY psn=+0 ackreq len=100\noutcome \"ACK +0 msn 1; recv SUCCESS 100 B\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r, w := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		ended <- run(ctx, []string{"conform", "--serve", "--link", "udp", "--port", port, "127.0.0.77"}, w, io.Discard)
		w.Close()
	}()
	ready := make([]byte, 256)
	if n, err := r.Read(ready); err != nil || !strings.Contains(string(ready[:n]), "listening on 127.0.0.77:"+port) {
		t.Fatalf("%q, %v", ready[:n], err)
	}
	go io.Copy(io.Discard, r)
	code, stdout, stderr := rocectl(t, "conform", "--link", "udp", "--port", port, "--rules", rules, "--script", mine, "--only", "^second/send/tester|^script/mine$", "--limit", "1m", "--json", "127.0.0.77")
	var card struct {
		Verdict string
		Peer    struct{ Software string }
		Steps   []struct {
			Name   string
			Faults int
		}
	}
	if err := json.Unmarshal([]byte(stdout), &card); err != nil || code != 0 || card.Verdict != "pass" || len(card.Steps) != 2 || card.Steps[0].Faults != 1 || !strings.HasPrefix(card.Peer.Software, "rocectl") {
		t.Errorf("exit status %d, %v, %+v\n%s", code, err, card, stderr)
	}
	stop()
	if code := <-ended; code != 0 {
		t.Errorf("the peer ends with %d", code)
	}
}

// Impossible flags are usage errors, and a peer that does not answer gives an error of one line.
func TestConformUsage(t *testing.T) {
	for _, test := range []struct {
		args string
		code int
		says string
	}{
		{"", exitUsage, "address of the peer is missing"},
		{"--self 10.0.0.1", exitUsage, "--self needs no HOST"},
		{"--self --peer rping", exitUsage, "the peer is this stack"},
		{"--serve --self", exitUsage, "--serve excludes"},
		{"--link mem 10.0.0.1", exitUsage, "--link mem"},
		{"--poll 10.0.0.1", exitUsage, "--poll"},
		{"--capture x.pcap 10.0.0.1", exitUsage, "--captures"},
		{"--peer telnet 10.0.0.1", exitUsage, "want serve, perftest or rping"},
		{"--mtu 1000 10.0.0.1", exitUsage, "want 256, 512"},
		{"--only ( 10.0.0.1", exitUsage, "--only"},
		{"--limit 0s 10.0.0.1", exitUsage, "--limit"},
		{"--cnp-scope world 10.0.0.1", exitUsage, "--cnp-scope"},
		{"--kind .. --link udp 127.0.0.1", exitUsage, "--kind"},
		{"--rules none.yaml 10.0.0.1", exitFailed, "no such file"},
		{"--self --only no-such-step", exitUsage, "--list"},
		{"--link udp --wait 0s --port 1 127.0.0.1", exitFailed, "connection refused"},
		{"--self --only clean/send/tester --html /nowhere/card.html", exitFailed, "/nowhere"},
	} {
		code, _, stderr := rocectl(t, append([]string{"conform"}, strings.Fields(test.args)...)...)
		if code != test.code || !strings.Contains(stderr, test.says) {
			t.Errorf("conform %s: exit status %d, %q; want %d, %q", test.args, code, stderr, test.code, test.says)
		}
	}
	code, stdout, _ := rocectl(t, "conform", "--list", "--peer", "rping")
	if code != 0 || !strings.Contains(stdout, "drop-rep/rping") {
		t.Errorf("--list: exit status %d\n%s", code, stdout)
	}
	code, stdout, _ = rocectl(t, "conform", "--commands", "--peer", "rping", "--mtu", "1024", "--link", "udp", "127.0.0.1")
	if code != 0 || stdout != "rping -s -P -a 127.0.0.1 -p 7174 -S 6139 &\nwait\n" {
		t.Errorf("--commands: exit status %d\n%s", code, stdout)
	}
}

// The card in docs/conform.md has the same peer, sections, steps and verdicts as the output of the command above it. The rest is not compared,
// because it depends on the load of the machine.
func TestConformPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/conform.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, ok := strings.Cut(string(page), "    $ rocectl ")
	if !ok {
		t.Fatal("the page has no command")
	}
	lines := strings.Split(rest, "\n")
	code, stdout, stderr := rocectl(t, strings.Fields(strings.ReplaceAll(lines[0], "'", ""))...)
	if code != 0 {
		t.Fatalf("exit status %d\n%s%s", code, stdout, stderr)
	}
	same := regexp.MustCompile(`^(conformance of [^:]*: PASS, \d+ of \d+ steps pass|path MTU .*|the peer sends .*|[A-Z][a-z ]+|  pass  \S+/\S+)`)
	var shown, printed []string
	for _, line := range lines[1:] {
		text, inside := strings.CutPrefix(line, "    ")
		if !inside {
			break
		}
		if m := same.FindString(text); m != "" {
			shown = append(shown, m)
		}
	}
	for line := range strings.Lines(stdout) {
		if m := same.FindString(strings.TrimRight(line, " \n")); m != "" {
			printed = append(printed, m)
		}
	}
	// The peer sends a probe, which is an extension, only in some runs.
	probes := func(s string) bool { return strings.HasPrefix(s, "Known departures") }
	shown, printed = slices.DeleteFunc(shown, probes), slices.DeleteFunc(printed, probes)
	if !slices.Equal(shown, printed) || len(shown) < 20 {
		t.Errorf("the page has\n%s\nand the command prints\n%s\n%s", strings.Join(shown, "\n"), strings.Join(printed, "\n"), stdout)
	}
}

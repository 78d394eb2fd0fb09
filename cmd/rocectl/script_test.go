package main

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// writeScript writes a script to a file and returns its name.
func writeScript(t *testing.T, text string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "mine.script")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// wrongGap expects the wrong PSN.
const wrongGap = "connect verbs rc recv=1\nsend SEND_ONLY psn=+1 ackreq len=100\nexpect NAK_SEQUENCE psn=+1\n"

// upper has the bytes of a payload in capital letters, and has expectations that accept any payload.
const upper = "connect verbs rc recv=1\nsend WRITE_ONLY ackreq hex=a0b1c2d3\nexpect ACK\nsend READ_REQUEST dmalen=4\nexpect READ_RESPONSE_ONLY hex=A0B1C2D3\n" +
	"send READ_REQUEST dmalen=4\nexpect READ_RESPONSE_ONLY hex=* text=*\n"

func TestScript(t *testing.T) {
	wrong, broken := writeScript(t, wrongGap), writeScript(t, "connect cm\nsend SEND_OLNY\n")
	for _, tt := range []struct {
		args           string
		code           int
		stdout, stderr string // parts
	}{
		{"script run sequence/a-gap cm/no-listener", exitOK, "pass  sequence/a-gap", ""},
		{"script run -v sequence/a-gap", exitOK, "send SEND_ONLY psn=+1 ackreq len=100", ""},
		{"script run keys/*", exitOK, "pass  keys/write-with-a-key-that-is-none", ""},
		{"script run " + wrong, exitFailed, ":3:1: came: NAK_SEQUENCE psn=+0 msn=0 (psn is +0); expected: NAK_SEQUENCE psn=+1", "1 of 1 scripts failed"},
		{"script run " + wrong, exitFailed, "3: expect NAK_SEQUENCE psn=+1  <-- psn is +0", ""},
		{"script run " + writeScript(t, upper), exitOK, "pass", ""},
		{"script run " + broken, exitFailed, "", broken + `:2:6: there is no packet "SEND_OLNY" to send`},
		{"script check " + broken, exitFailed, "", ":2:6:"},
		{"script check " + wrong, exitOK, "right, steps: 3", ""},
		{"script check keys/* " + wrong, exitOK, "keys/write-to-a-queue-pair-that-does-not-allow-it: right", ""},
		{"script check /dev/zero", exitFailed, "", "/dev/zero: more than 4194304 bytes are no script"},
		{"script run no/such", exitUsage, "", `"no/such" is neither a file nor a script of the library`},
		{"script run no*", exitUsage, "", `no script of the library matches "no*"`},
		{"script run", exitUsage, "", "an argument is missing"},
		{"script run --json --junit sequence/a-gap", exitUsage, "", "--json and --junit exclude each other"},
		{"script run --dev eth0 sequence/a-gap", exitUsage, "", "give --peer"},
		{"script run --link xdp sequence/a-gap", exitUsage, "", "--link"},
		{"script run --kind 7 sequence/a-gap", exitUsage, "", "--kind:"},
		{"script run --timeout 0s sequence/a-gap", exitUsage, "", "--timeout 0s"},
		{"script show sequence/a-gap", exitOK, "connect verbs rc recv=1", ""},
		{"script show no/such", exitUsage, "", "the library has no script"},
		{"script list rping/*", exitOK, "rping/server-gap", ""},
		{"script list --json rping/server-gap", exitOK, `"peer":"rping -s"`, ""},
	} {
		code, stdout, stderr := rocectl(t, strings.Fields(tt.args)...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("rocectl %s: exit %d, %q, %q; want %d, %q, %q", tt.args, code, stdout, stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
}

// An interrupted run writes valid results, also for the scripts that were not played.
func TestScriptInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for _, format := range []string{"--junit", "--json"} {
		var out, errs bytes.Buffer
		if code := run(ctx, []string{"script", "run", format, "sequence/a-gap"}, &out, &errs); code == exitOK || !strings.Contains(errs.String(), "interrupted") {
			t.Errorf("%s: exit code %d, %s", format, code, errs.String())
		}
		if !strings.Contains(out.String(), "sequence/a-gap") {
			t.Errorf("%s: %s", format, out.String())
		}
	}
}

// The results as JSON have an object for each script, and the results as JUnit XML have the packets of a failure.
func TestScriptResults(t *testing.T) {
	wrong := writeScript(t, wrongGap)
	code, stdout, _ := rocectl(t, "script", "run", "--json", "sequence/a-gap", wrong)
	d := json.NewDecoder(strings.NewReader(stdout))
	for _, want := range []string{"pass", "fail"} {
		var r struct {
			Verdict, Error, Outcome string
			Events                  []struct{ From, Packet, Line string }
		}
		if err := d.Decode(&r); err != nil {
			t.Fatal(err)
		}
		if r.Verdict != want || (r.Error != "") != (want == "fail") || len(r.Events) < 2 || r.Events[0].From != "script" || r.Events[1].Packet != "NAK_SEQUENCE psn=+0 msn=0" {
			t.Errorf("%+v, want %s", r, want)
		}
	}
	if code != exitFailed {
		t.Errorf("exit %d", code)
	}
	_, stdout, _ = rocectl(t, "script", "run", "--junit", "sequence/a-gap", wrong)
	var suite struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Cases    []struct {
			Failure string `xml:"failure"`
		} `xml:"testcase"`
	}
	if err := xml.Unmarshal([]byte(stdout), &suite); err != nil || suite.Tests != 2 || suite.Failures != 1 || !strings.Contains(suite.Cases[1].Failure, "<-- psn is +0") {
		t.Errorf("%v, %+v", err, suite)
	}
}

// docs/script.md has each statement and each field, its example is valid, and it names the folders of the library.
func TestScriptPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/script.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, names := range [][]string{script.Verbs(), script.Fields()} {
		for _, n := range names {
			if !strings.Contains(page, "`"+n+"`") && !strings.Contains(page, "`"+n+" ") && !strings.Contains(page, "`"+n+"=") {
				t.Errorf("docs/script.md does not have %s", n)
			}
		}
	}
	_, example, _ := strings.Cut(page, "## A script\n\n")
	example, _, _ = strings.Cut(example, "\n\nIf something")
	if _, err := script.Parse("example", strings.ReplaceAll("\n"+example, "\n    ", "\n")); err != nil {
		t.Errorf("the example: %v", err)
	}
	for _, s := range library.All() {
		if folder, _, _ := strings.Cut(s.Name, "/"); !strings.Contains(page, "`"+folder+"`") {
			t.Errorf("docs/script.md does not have the folder %s", folder)
		}
		if s.About == "" || s.Title == "" || s.Rule == "" {
			t.Errorf("%s: a comment, title or rule is missing", s.Name)
		}
	}
}

// A script can be played against a program on the network, over packet sockets between two namespaces.
func TestScriptOnInterfaces(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	serve := func(args ...string) (srv *announced, ended chan int) {
		srv, ended = &announced{ready: make(chan struct{})}, make(chan int, 1)
		go func() {
			code := exitFailed
			a.Do(t, func() { code = run(t.Context(), args, srv, srv) })
			ended <- code
		}()
		return srv, ended
	}
	srv, ended := serve("rping", "-s", "-a", a.IP4.String())
	select {
	case <-srv.ready:
	case code := <-ended:
		t.Fatalf("server: exit %d, %s", code, srv)
	}
	capture := filepath.Join(t.TempDir(), "run.pcapng")
	b.Do(t, func() {
		code, stdout, stderr := rocectl(t, "script", "run", "--peer", a.IP4.String(), "--capture", capture, "rping/server-ping", "sequence/a-gap")
		if code != exitOK || !strings.Contains(stdout, "pass  rping/server-ping") || !strings.Contains(stdout, "skip  sequence/a-gap") {
			t.Errorf("exit %d, %s%s", code, stdout, stderr)
		}
	})
	if code := <-ended; code != exitOK {
		t.Errorf("server: exit %d, %s", code, srv)
	}
	if code, stdout, _ := rocectl(t, "pcap", "check", capture); code != exitOK {
		t.Errorf("the capture: %s", stdout)
	}
	// The interface is removed while the script waits.
	waiting, result := writeScript(t, "accept cm\n"), make(chan struct{})
	said := &announced{ready: make(chan struct{})}
	go func() {
		defer close(result)
		b.Do(t, func() {
			var out bytes.Buffer
			code := run(t.Context(), []string{"script", "run", "--peer", a.IP4.String(), waiting}, &out, said)
			if code != exitFailed || !strings.Contains(out.String(), ":1:1: receiving: ") {
				t.Errorf("a vanished interface: exit %d, %s", code, out.String())
			}
		})
	}()
	<-said.ready
	a.Do(t, func() {
		l, err := netlink.LinkByName(a.Interface)
		if err == nil {
			err = netlink.LinkDel(l)
		}
		if err != nil {
			t.Error(err)
		}
	})
	<-result
}

// A script can be played over UDP sockets of the loopback interface, without privilege.
func TestScriptOnLoopback(t *testing.T) {
	if runtime.GOOS == "darwin" {
		t.Skip("only 127.0.0.1 is the host's own")
	}
	near, far := linktest.Loopback(53).String(), linktest.Loopback(54).String()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	srv, served := &announced{ready: make(chan struct{})}, make(chan int, 1)
	go func() { served <- run(ctx, strings.Fields("rping -s --link udp -a "+far), srv, srv) }()
	select {
	case <-srv.ready:
	case code := <-served:
		t.Fatalf("server: exit %d, %s", code, srv)
	}
	code, stdout, stderr := rocectl(t, "script", "run", "--link", "udp", "--peer", far, "--local", near, "rping/server-ping")
	if code != exitOK || !strings.Contains(stdout, "pass  rping/server-ping") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if code := <-served; code != exitOK {
		t.Errorf("server: exit %d, %s", code, srv)
	}
	// UDP sockets cannot send from another address: this is an error.
	stranger := writeScript(t, "connect manual\nsend REQ from stranger\n")
	if code, stdout, _ := rocectl(t, "script", "run", "--link", "udp", "--peer", far, "--local", near, stranger); code != exitFailed ||
		!strings.Contains(stdout, ":2:1: driver udp sends from its own address") {
		t.Errorf("exit %d, %s", code, stdout)
	}
}

package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	cleanPcap  = "../../testdata/pcaps/rping.pcap"
	hostPcap   = "../../testdata/pcaps/host/udp4-client.pcap"
	judgedPcap = "../../testdata/pcaps/rxe612_run2_v6_rsocket_cmR.pcap" // has requests that rxe refuses
	forgedPcap = "../../testdata/pcaps/rxe612_run3_flush.pcap"          // has one wrong ICRC on purpose
)

func TestPcapCommands(t *testing.T) {
	clean, err := os.ReadFile(cleanPcap)
	if err != nil {
		t.Fatal(err)
	}
	packed, damaged := filepath.Join(t.TempDir(), "packed.pcap.gz"), filepath.Join(t.TempDir(), "damaged.pcap")
	var z bytes.Buffer
	gz := gzip.NewWriter(&z)
	gz.Write(clean)
	gz.Close()
	if err := errors.Join(os.WriteFile(packed, z.Bytes(), 0o600), os.WriteFile(damaged, clean[:1500], 0o600)); err != nil {
		t.Fatal(err)
	}
	counters, none := filepath.Join(t.TempDir(), "counters.json"), filepath.Join(t.TempDir(), "none.json")
	if err := errors.Join(os.WriteFile(counters, []byte(`[{"ifname":"rxe0","duplicate_request":1,"link_downed":0}]`), 0o600), os.WriteFile(none, []byte("[]"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string // parts of them
	}{
		{[]string{"pcap", "verify", "--at", "10.77.0.3", "--counters", "10.77.0.3=" + counters, cleanPcap}, exitFailed,
			"error counter-duplicate, frame -, [10.77.0.3]: The counter duplicate_request is 1; the capture shows 0.\n", "the captures break rules"},
		{[]string{"pcap", "verify", "--at", "10.77.0.3", "--counters", "10.77.0.3=" + counters + "," + counters, cleanPcap}, exitOK, "right", ""},
		{[]string{"pcap", "verify", "--counters", "10.77.0.3=" + counters, cleanPcap}, exitOK, "cannot tell: counter, rule counter-duplicate, 1 time: ", ""},
		{[]string{"pcap", "verify", "--counters", "10.77.0.3=" + none, cleanPcap}, exitFailed, "", "none.json: verify: no counter is known"},
		{[]string{"pcap", "verify", "--counters", "10.77.0.3=no-such-file", cleanPcap}, exitFailed, "", "no-such-file"},
		{[]string{"pcap", "verify", "--counters", counters, cleanPcap}, exitUsage, "", "is not of the form"},
		{[]string{"pcap", "verify", "--counters", "here=" + counters, cleanPcap}, exitUsage, "", "is not an address"},
		{[]string{"pcap", "decode", cleanPcap}, exitOK, "RC READ_REQUEST qpn 0x18", ""},
		{[]string{"pcap", "decode", "--all", cleanPcap}, exitOK, "other traffic, ", ""},
		{[]string{"pcap", "decode"}, exitUsage, "", "an argument is missing"},
		{[]string{"pcap", "decode", "no-such-file"}, exitFailed, "", "no-such-file"},
		{[]string{"pcap", "check", cleanPcap}, exitOK, "rping.pcap: ok, 86 packets", ""},
		{[]string{"pcap", "check", cleanPcap, forgedPcap}, exitFailed, "wrong ICRC: frame 90", "1 of 2 captures have wrong packets"},
		{[]string{"pcap", "check", "main.go"}, exitFailed, "", "main.go"},
		{[]string{"pcap", "ladder", "--op", "read", cleanPcap}, exitOK, "|-- READ_REQUEST", ""},
		{[]string{"pcap", "ladder", "--limit", "3", cleanPcap}, exitOK, "packets more", ""},
		{[]string{"pcap", "ladder", "--qpn", "zero", cleanPcap}, exitUsage, "", "not a queue pair number"},
		{[]string{"pcap", "wireshark"}, exitOK, `[0x1c] = { name = "RC FLUSH"`, ""},
		{[]string{"pcap", "wireshark", "file"}, exitUsage, "", "rocectl: "},
		{[]string{"pcap", "verify", "--at", "10.77.0.3", cleanPcap}, exitOK, "rping.pcap: right, 7 known departures, 85 packets\n", ""},
		{[]string{"pcap", "verify", "--strict", "--ignore", "bth-migreq", cleanPcap}, exitWarnings, "5 warnings, 5 known departures among them", "the captures give warnings"},
		{[]string{"pcap", "verify", judgedPcap}, exitFailed, "error order-message (IBTA 9.7.4.1.2), frame 304, 307, ", "the captures break rules"},
		{[]string{"pcap", "verify", "--json", "--rule", "length-write", judgedPcap}, exitFailed, `"rule":"length-write","section":"9.7.4.1.6","severity":"error"`, "the captures break rules"},
		{[]string{"pcap", "verify", "--junit", cleanPcap}, exitOK, `<testcase classname="headers" name="icrc"></testcase>`, ""},
		{[]string{"pcap", "verify", "--rules"}, exitOK, "| `icrc` | A17.3.3 | error | The ICRC is right. |", ""},
		{[]string{"pcap", "verify", damaged, cleanPcap}, exitFailed, "known departures, 91 packets, 6 captured twice", "inside a packet"},
		{[]string{"pcap", "verify", "main.go"}, exitFailed, "", "main.go"},
		{[]string{"pcap", "verify"}, exitUsage, "", "a capture is missing"},
		{[]string{"pcap", "verify", "--rule", "psn-gab", cleanPcap}, exitUsage, "", "similar: psn-gap"},
		{[]string{"pcap", "verify", "--at", "there", cleanPcap}, exitUsage, "", "not an address"},
		{[]string{"pcap", "verify", "--cnp-scope", "all", cleanPcap}, exitUsage, "", "none of [qp addresses destination port]"},
		{[]string{"pcap", "verify", "--rule=", cleanPcap}, exitUsage, "", "--rule names nothing"},
		{[]string{"pcap", "verify", "--cnp-interval", "-1s", cleanPcap}, exitUsage, "", "is negative"},
		{[]string{"pcap", "verify", "--json", "--junit", cleanPcap}, exitUsage, "", "exclude each other"},
		{[]string{"pcap", "verify", "--complete", "--dropped", cleanPcap}, exitUsage, "", "exclude each other"},
		{[]string{"pcap", "bogus"}, exitUsage, "", `no command "bogus"`},
		{[]string{"pcap", "check", hostPcap}, exitOK, "udp4-client.pcap: ok, 25 packets, 25 RoCE, ICRC 25 good 0 bad\n  captured as super-packets: 8 packets in 2 frames\n  UDP checksum left to the card: 19 frames\n", ""},
		{[]string{"pcap", "decode", hostPcap}, exitOK, "ICRC ok  [2 of 4]  [UDP checksum partial]\n", ""},
		{[]string{"pcap", "decode", "--json", hostPcap}, exitOK, `"kind":"roce","segment":2,"segments":4,"marks":["UDP checksum partial"],`, ""},
		{[]string{"pcap", "ladder", hostPcap}, exitOK, "|  [2 of 4]\n", ""},
		{[]string{"pcap", "check", packed}, exitOK, "packed.pcap.gz: ok, 86 packets", ""},
		{[]string{"pcap", "check", damaged, cleanPcap}, exitFailed, "damaged.pcap: damaged file, 7 packets", "inside a packet"},
		{[]string{"pcap", "check", t.TempDir(), cleanPcap}, exitFailed, "rping.pcap: ok, 86 packets", "is a directory"},
		{[]string{"pcap", "check", "--json", damaged}, exitFailed, `"error":"`, "inside a packet"},
		{[]string{"pcap", "decode", damaged}, exitFailed, "CM REP", "inside a packet"},
		{[]string{"pcap", "ladder", damaged}, exitFailed, "|<-- CM REP", "inside a packet"},
	} {
		code, stdout, stderr := rocectl(t, tt.args...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("rocectl %v: exit %d, want %d\nstdout %.300s\nstderr %s", tt.args, code, tt.code, stdout, stderr)
		}
	}
}

func TestPcapJSON(t *testing.T) {
	_, stdout, _ := rocectl(t, "pcap", "decode", "--json", cleanPcap)
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if len(lines) != 85 {
		t.Errorf("decode: %d objects, want 85", len(lines))
	}
	for _, line := range lines {
		var p struct {
			Name   string
			ICRCOK bool `json:"icrc_ok"`
		}
		if err := json.Unmarshal([]byte(line), &p); err != nil || p.Name == "" || !p.ICRCOK {
			t.Fatalf("decode: %s: %v", line, err)
		}
	}

	code, stdout, _ := rocectl(t, "pcap", "check", "--json", forgedPcap)
	var r struct {
		ICRCBad   int   `json:"icrc_bad"`
		BadFrames []int `json:"bad_frames"`
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitFailed || r.ICRCBad != 1 || r.BadFrames[0] != 90 {
		t.Errorf("check: exit %d, %+v, %v", code, r, err)
	}
}

package main

import (
	"encoding/json"
	"strings"
	"testing"
)

const (
	cleanPcap  = "../../testdata/pcaps/rping.pcap"
	forgedPcap = "../../testdata/pcaps/rxe612_run3_flush.pcap" // has one wrong ICRC on purpose
)

func TestPcapCommands(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string // parts of them
	}{
		{[]string{"pcap", "decode", cleanPcap}, exitOK, "RC READ_REQUEST qpn 0x18", ""},
		{[]string{"pcap", "decode", "--all", cleanPcap}, exitOK, "other traffic, ", ""},
		{[]string{"pcap", "decode"}, exitUsage, "", "accepts 1 arg"},
		{[]string{"pcap", "decode", "no-such-file"}, exitFailed, "", "no-such-file"},
		{[]string{"pcap", "check", cleanPcap}, exitOK, "rping.pcap: ok, 86 packets", ""},
		{[]string{"pcap", "check", cleanPcap, forgedPcap}, exitFailed, "wrong ICRC: frame 90", "1 of 2 captures have wrong packets"},
		{[]string{"pcap", "check", "main.go"}, exitFailed, "", "main.go"},
		{[]string{"pcap", "ladder", "--op", "read", cleanPcap}, exitOK, "|-- READ_REQUEST", ""},
		{[]string{"pcap", "ladder", "--limit", "3", cleanPcap}, exitOK, "packets more", ""},
		{[]string{"pcap", "ladder", "--qpn", "zero", cleanPcap}, exitUsage, "", "not a queue pair number"},
		{[]string{"pcap", "bogus"}, exitUsage, "", `no command "bogus"`},
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

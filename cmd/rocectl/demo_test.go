package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDemo(t *testing.T) {
	file := filepath.Join(t.TempDir(), "demo.pcapng")
	code, stdout, stderr := rocectl(t, "demo", "--rounds", "5", "--capture", file)
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "verified") || strings.Contains(stdout, "\x1b") {
		t.Errorf("exit %d\n%s\n%s", code, stdout, stderr)
	}
	if code, _, stderr := rocectl(t, "pcap", "check", file); code != exitOK {
		t.Errorf("its capture: %s", stderr)
	}

	code, stdout, _ = rocectl(t, "demo", "--rounds", "2", "--json", "--capture", "")
	var r struct {
		Phases []struct{ Operations []any }
	}
	if err := json.Unmarshal([]byte(stdout), &r); err != nil || code != exitOK || len(r.Phases) != 2 || len(r.Phases[0].Operations) == 0 {
		t.Errorf("JSON: exit %d, %v\n%s", code, err, stdout)
	}

	code, stdout, stderr = rocectl(t, "demo", "--rounds", "3", "--capture", file, "--link", "udp")
	if code != exitOK || stderr != "" || !strings.Contains(stdout, "UDP sockets") || !strings.Contains(stdout, "127.0.0.") {
		t.Errorf("on UDP sockets: exit %d\n%s\n%s", code, stdout, stderr)
	}
	if code, _, stderr := rocectl(t, "pcap", "check", file); code != exitOK {
		t.Errorf("the capture of UDP sockets: %s", stderr)
	}

	for _, args := range [][]string{{"demo", "--link", "raw"}, {"demo", "--loss", "0.9"}, {"demo", "--rounds", "0"}, {"demo", "x"}} {
		if code, _, _ := rocectl(t, args...); code != exitUsage {
			t.Errorf("%v: exit %d", args, code)
		}
	}
}

func TestDemoFindsAPlaceForItsCapture(t *testing.T) {
	here, tmp := t.TempDir(), t.TempDir()
	t.Chdir(here)
	t.Setenv("TMPDIR", tmp)
	const name = "demo.pcapng"
	if got := writable(name); got != name {
		t.Errorf("writable folder: %q", got)
	}
	// Nobody can open a folder for writing, not even root.
	os.Remove(name)
	if err := os.Mkdir(name, 0o700); err != nil {
		t.Fatal(err)
	}
	if got := writable(name); got != filepath.Join(tmp, name) {
		t.Errorf("name taken here: %q", got)
	}
	os.Remove(filepath.Join(tmp, name))
	if err := os.Mkdir(filepath.Join(tmp, name), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := writable(name); !strings.HasPrefix(got, filepath.Join(tmp, "demo-")) || filepath.Ext(got) != ".pcapng" {
		t.Errorf("name taken in both: %q", got)
	}
	t.Setenv("TMPDIR", filepath.Join(tmp, "none"))
	if got := writable(name); got != "" {
		t.Errorf("nowhere: %q", got)
	}
}

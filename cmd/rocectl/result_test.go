package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestJSONResults: with --json standard output holds nothing but one object
// for each end.
func TestJSONResults(t *testing.T) {
	for _, args := range [][]string{
		{"rping", "-c", "-C", "3", "-v", "--link", "mem", "--json"},
		{"pingpong", "rc", "-n", "5", "-p", "0", "--link", "mem", "--json"},
	} {
		var out, log bytes.Buffer
		if code := run(t.Context(), args, &out, &log); code != 0 {
			t.Errorf("%v: exit %d: %s", args, code, log.String())
			continue
		}
		roles := map[string]bool{}
		for dec := json.NewDecoder(&out); dec.More(); {
			var r struct {
				Role   string
				Result map[string]float64
			}
			if err := dec.Decode(&r); err != nil || r.Result["bytes"] == 0 {
				t.Fatalf("%v: %v, %+v", args, err, r)
			}
			roles[r.Role] = true
		}
		if !roles["client"] || !roles["server"] || len(roles) != 2 {
			t.Errorf("%v: roles %v", args, roles)
		}
	}
}

// TestResultFile: with --out the objects are appended to a file, one a line.
func TestResultFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x.json")
	for _, args := range [][]string{{"perf", "write_bw", "-n", "5", "-a"}, {"perf", "send_lat", "-n", "5"}} {
		if code, _, stderr := rocectl(t, append(args, "-p", "0", "--link", "mem", "--out", file)...); code != exitOK {
			t.Fatalf("exit %d: %s", code, stderr)
		}
	}
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for line := range bytes.Lines(b) {
		var r struct {
			Role   string
			Result map[string]float64
		}
		if err := json.Unmarshal(line, &r); err != nil || r.Result["MsgSize"] == 0 || r.Result["n_iterations"] != 5 {
			t.Errorf("%v: %s", err, line)
		}
		kind := "lat"
		if r.Result["MsgRate"] > 0 {
			kind = "bw"
		}
		rows[r.Role+" "+kind]++
	}
	if want := map[string]int{"client bw": 23, "server bw": 1, "client lat": 1, "server lat": 1}; !maps.Equal(rows, want) {
		t.Errorf("%v, want %v", rows, want)
	}
	if code, _, _ := rocectl(t, "perf", "write_bw", "-n", "5", "-p", "0", "--link", "mem", "--out", "/no/such/folder/x"); code != exitFailed {
		t.Errorf("exit %d", code)
	}
}

package main

import (
	"bytes"
	"encoding/json"
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

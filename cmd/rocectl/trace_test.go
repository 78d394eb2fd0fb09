package main

import (
	"strings"
	"testing"
)

func TestTrace(t *testing.T) {
	for _, flag := range []string{"--trace", "-d"} {
		code, _, stderr := rocectl(t, "rping", "-c", "-C", "1", "--link", "mem", flag)
		lines := strings.Split(strings.TrimSpace(stderr), "\n")
		if code != exitOK || !strings.Contains(lines[0], "CM REQ") || !strings.Contains(lines[len(lines)-1], "CM DREP") {
			t.Errorf("%s: exit %d\n%s", flag, code, stderr)
		}
		if !strings.Contains(stderr, "RC READ_REQUEST") {
			t.Errorf("%s: no READ in\n%s", flag, stderr)
		}
	}
}

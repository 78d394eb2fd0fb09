//go:build linux

package main

import (
	"strings"
	"testing"
)

// TestHostNames: the names of host cases differ from each other and from the names of other cases.
func TestHostNames(t *testing.T) {
	seen := make(map[string]bool)
	for _, c := range allCases() {
		seen[c.name()] = true
	}
	for _, c := range hostCases() {
		if seen[c.name()] || len(c.tests) == 0 {
			t.Errorf("case %s: %d tests", c.name(), len(c.tests))
		}
		seen[c.name()] = true
	}
}

// TestAllRan: a case passes if tests ran and none was skipped.
func TestAllRan(t *testing.T) {
	for _, test := range []struct{ name, output, want string }{
		{"passed", "=== RUN   TestA\n--- PASS: TestA (0.01s)\n    --- PASS: TestA/x (0.01s)\nPASS\n", ""},
		{"skipped", "=== RUN   TestA\n--- PASS: TestA (0.01s)\n    a_test.go:1: the kernel has no such thing\n    --- SKIP: TestA/x (0.00s)\nPASS\n", "no such thing"},
		{"none", "testing: warning: no tests to run\nPASS\n", "no such tests"},
	} {
		err := allRan(test.output)
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

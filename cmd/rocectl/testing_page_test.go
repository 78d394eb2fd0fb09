package main

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// The commands in docs/testing.md that begin with $ print what the page shows, and have the exit status of the page: 0, or N of "(exit status N)".
// A line … in the page stands for the rest of the output.
func TestTestingPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/testing.md")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	const indent, prompt = "    ", "    $ rocectl "
	status := regexp.MustCompile(`^\(exit status (\d+)\)$`)
	ran := 0
	lines := strings.Split(string(page), "\n")
	for i := 0; i < len(lines); i++ {
		command, ok := strings.CutPrefix(lines[i], prompt)
		if !ok {
			continue
		}
		ran++
		var shown []string
		for i+1 < len(lines) && strings.HasPrefix(lines[i+1], indent) {
			i++
			shown = append(shown, strings.TrimPrefix(lines[i], indent))
		}
		code, stdout, stderr := rocectl(t, strings.Fields(command)...)
		wantCode := exitOK
		if m := status.FindStringSubmatch(shown[len(shown)-1]); m != nil {
			wantCode, _ = strconv.Atoi(m[1])
			shown = shown[:len(shown)-1]
		}
		var printed []string
		for line := range strings.Lines(stdout) {
			printed = append(printed, strings.TrimRight(line, " \n"))
		}
		if n := len(shown) - 1; shown[n] == "…" { // the rest is left out
			shown = shown[:n]
			printed = printed[:min(n, len(printed))]
		}
		if got, want := strings.Join(printed, "\n"), strings.Join(shown, "\n"); code != wantCode || got != want {
			t.Errorf("rocectl %s: exit status %d, %s\nit prints\n%s\nand the page says %d and\n%s", command, code, stderr, got, wantCode, want)
		}
	}
	if ran < 3 {
		t.Errorf("the page has %d commands", ran)
	}
}

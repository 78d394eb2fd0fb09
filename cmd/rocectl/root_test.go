package main

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// rocectl runs a command line and returns what it printed.
func rocectl(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args   []string
		code   int
		stderr string // part of it
	}{
		{[]string{"--help"}, exitOK, ""},
		{[]string{"bogus"}, exitUsage, `rocectl has no command "bogus"`},
		{[]string{"--bogus"}, exitUsage, "unknown flag"},
		{[]string{"help", "perf", "send_bw"}, exitOK, ""},
		{[]string{"help", "bogus"}, exitUsage, `rocectl has no command "bogus"`},
		{[]string{"help", "perf", "bogus"}, exitUsage, `rocectl perf has no command "bogus"`},
		{[]string{"rping", "-c", "--link", "mem", "--delay-time", "-5s"}, exitUsage, "--delay-time -5s: want 0 or more"},
		{[]string{"rping", "-c", "--link", "mem", "--reorder-by", "-5"}, exitUsage, "--reorder-by -5: want 0 or more"},
		{[]string{"rping", "-c", "--dev", "bogus", "-a", "192.0.2.1"}, exitFailed, "no such network interface: bogus: choose one of "},
		{[]string{"rping", "-c", "--link", "mem", "--dcqcn"}, exitFailed, "give the speed of the line, --dcqcn=25 for 25 Gb/s"},
	} {
		code, _, stderr := rocectl(t, tt.args...)
		if code != tt.code || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("rocectl %v: exit %d, %q; want %d, %q", tt.args, code, stderr, tt.code, tt.stderr)
		}
		if strings.Count(stderr, "\n") > 1 {
			t.Errorf("rocectl %v: more than one line: %q", tt.args, stderr)
		}
	}
}

// A command line without a command is a usage error: the help goes to standard error.
func TestNoCommand(t *testing.T) {
	for _, args := range [][]string{nil, {"perf"}, {"pingpong"}, {"cm"}, {"pcap"}} {
		code, stdout, stderr := rocectl(t, args...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, "Available Commands:") || strings.Contains(stderr, "rocectl: ") {
			t.Errorf("rocectl %v: exit %d, %q, %q; want %d and the help on standard error", args, code, stdout, stderr, exitUsage)
		}
	}
}

// Each command has a one-line description, and each command without subcommands has an example.
func TestHelpTexts(t *testing.T) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		switch {
		case c.Name() == "help":
			return
		case c.Short == "" || strings.HasSuffix(c.Short, "."):
			t.Errorf("%s: bad short description %q", c.CommandPath(), c.Short)
		case !c.HasSubCommands() && c.HasParent() && c.Example == "":
			t.Errorf("%s: no example", c.CommandPath())
		}
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

func TestOneLine(t *testing.T) {
	if got := oneLine(errors.Join(errors.New("a"), errors.New("b"))); got != "a; b" {
		t.Errorf("oneLine = %q", got)
	}
}

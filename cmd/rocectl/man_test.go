package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/goroce/roce/internal/machine"
)

// everyCommand calls visit for each command that a user can give, also for groups. It does
// not use documented, which the pages are made with.
func everyCommand(visit func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Name() == "help" {
			return
		}
		visit(c)
		for _, sub := range c.Commands() {
			walk(sub)
		}
	}
	walk(newRoot())
}

// Each command has a page, and the page has each flag and each subcommand.
func TestManPages(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man1")
	if code, _, stderr := rocectl(t, "man", "--dir", dir); code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	pages := 0
	everyCommand(func(c *cobra.Command) {
		pages++
		name := filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1")
		page, err := os.ReadFile(name)
		if err != nil {
			t.Error(err)
			return
		}
		args := append([]string{"man"}, strings.Fields(c.CommandPath())[1:]...)
		if _, printed, _ := rocectl(t, args...); printed != string(page) {
			t.Errorf("rocectl %v prints another page than --dir writes", args)
		}
		text := plain(string(page))
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			_, usage := pflag.UnquoteUsage(f)
			if !strings.Contains(text, "--"+f.Name) || !strings.Contains(text, usage) {
				t.Errorf("%s says nothing of --%s", name, f.Name)
			}
		})
		for _, sub := range c.Commands() {
			if sub.Name() != "help" && !strings.Contains(text, sub.Short) {
				t.Errorf("%s says nothing of %s", name, sub.Name())
			}
		}
		if !strings.Contains(text, c.Long) || !strings.Contains(text, c.Example) {
			t.Errorf("%s has not the whole help", name)
		}
	})
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != pages {
		t.Errorf("%d pages for %d commands: %v", len(entries), pages, err)
	}
}

// plain removes the formatting from a page.
func plain(page string) string {
	return strings.NewReplacer(`\fB`, "", `\fI`, "", `\fR`, "", `\&`, "", `\-`, "-", `\e`, `\`, `\(aq`, "'", `\(ga`, "`", `\(ha`, "^", `\(ti`, "~").Replace(page)
}

// groff, if it is installed, reports no error in any page.
func TestManPagesFormat(t *testing.T) {
	groff, err := exec.LookPath("groff")
	if err != nil {
		t.Skip("no groff")
	}
	everyCommand(func(c *cobra.Command) {
		cmd := exec.Command(groff, "-man", "-Kutf8", "-Tutf8", "-ww", "-z")
		cmd.Stdin = bytes.NewReader(manPage(c))
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", c.CommandPath(), err, out)
		}
	})
}

// roff escapes text so that no line is a request.
func TestRoff(t *testing.T) {
	for in, want := range map[string]string{
		".TH": `\&.TH`, "'x": `\(aqx`, `a\n`: `a\en`, "--x": `\-\-x`,
	} {
		if got := roff(in); got != want {
			t.Errorf("roff(%q) = %q, want %q", in, got, want)
		}
	}
}

// The completions that the shell scripts ask rocectl for have each command and each flag.
func TestCompletion(t *testing.T) {
	complete := func(args ...string) []string {
		code, stdout, stderr := rocectl(t, append([]string{"__completeNoDesc"}, args...)...)
		if code != exitOK {
			t.Fatalf("%v: exit %d, %s", args, code, stderr)
		}
		return strings.Fields(stdout)
	}
	everyCommand(func(c *cobra.Command) {
		path := strings.Fields(c.CommandPath())[1:]
		offers := complete(append(slices.Clone(path), "")...)
		for _, sub := range c.Commands() {
			if !slices.Contains(offers, sub.Name()) {
				t.Errorf("%s: %s is not offered", c.CommandPath(), sub.Name())
			}
		}
		c.LocalFlags().VisitAll(func(f *pflag.Flag) {
			if offers := complete(append(slices.Clone(path), "--"+f.Name)...); !slices.Contains(offers, "--"+f.Name) {
				t.Errorf("%s: --%s is not offered, but %q", c.CommandPath(), f.Name, offers)
			}
		})
	})
	for _, tt := range []struct {
		args []string
		want []string // the offers, and the directive: 0 for files, 4 for no files
	}{
		{[]string{"rping", "--link", ""}, []string{"raw", "udp", "xdp", "mem", ":4"}},
		{[]string{"dev", "--zero-copy", ""}, []string{"auto", "on", "off", ":4"}},
		{[]string{"rping", "--capture", ""}, []string{":0"}},
		{[]string{"rping", "--dev", ""}, append(machine.InterfaceNames(), ":4")},
		{[]string{"dev", ""}, append(machine.InterfaceNames(), "watch", ":4")},
		{[]string{"perf", "send_bw", "-c", ""}, []string{"RC", "UC", "UD", ":4"}},
		{[]string{"perf", "send_bw", ""}, []string{":4"}},
		{[]string{"pcap", "decode", ""}, []string{":0"}},
		{[]string{"completion", "f"}, []string{"fish"}},
	} {
		got := complete(tt.args...)
		for _, w := range tt.want {
			if !slices.Contains(got, w) {
				t.Errorf("%q completes to %q, want %q", tt.args, got, w)
			}
		}
	}
}

// Each shell gets a script, and bash, if it is installed, can parse its script.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range shells {
		code, script, stderr := rocectl(t, "completion", shell)
		if code != exitOK || !strings.Contains(script, "__complete") {
			t.Errorf("%s: exit %d, %d bytes, %s", shell, code, len(script), stderr)
		}
	}
	if code, _, stderr := rocectl(t, "completion", "tcsh"); code != exitUsage || !strings.Contains(stderr, "want bash") {
		t.Errorf("tcsh: exit %d, %s", code, stderr)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("no bash")
	}
	_, script, _ := rocectl(t, "completion", "bash")
	cmd := exec.Command(bash, "-n")
	cmd.Stdin = strings.NewReader(script)
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Errorf("bash: %v\n%s", err, out)
	}
}

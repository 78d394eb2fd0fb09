package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/goroce/roce/internal/tools/usage"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

func manCommand() *cobra.Command {
	var dir string
	c := &cobra.Command{
		Use:   "man [COMMAND...]",
		Short: "Print a manual page, or write the pages of all commands to a folder",
		Long: `Print the manual page of a command of rocectl, in the format that man reads. Without
COMMAND print the page of rocectl itself. With --dir write the pages of all commands to a
folder, as rocectl.1, rocectl-perf-write_bw.1 and so on. The folder is created if needed.`,
		Example: `  rocectl man perf write_bw | man -l -
  rocectl man --dir ~/.local/share/man/man1`,
	}
	c.Flags().StringVar(&dir, "dir", "", "write all pages to the folder `DIR`")
	c.RunE = func(c *cobra.Command, args []string) error {
		if dir != "" {
			if len(args) > 0 {
				return usage.Errorf("either --dir, for the pages of all commands, or one command")
			}
			return writeManPages(dir, c.Root())
		}
		of, rest, err := c.Root().Find(args)
		if err != nil || len(rest) > 0 {
			return usage.Errorf("rocectl has no command %q", strings.Join(args, " "))
		}
		_, err = c.OutOrStdout().Write(manPage(of))
		return err
	}
	return c
}

// writeManPages writes the pages of c and of all its subcommands.
func writeManPages(dir string, c *cobra.Command) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, of := range documented(c) {
		if err := os.WriteFile(filepath.Join(dir, manName(of)+".1"), manPage(of), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// documented returns c and all its subcommands, without cobra's help and hidden commands.
func documented(c *cobra.Command) []*cobra.Command {
	all := []*cobra.Command{c}
	for _, sub := range c.Commands() {
		if sub.Name() != "help" && !sub.Hidden {
			all = append(all, documented(sub)...)
		}
	}
	return all
}

// manName returns the name of a command's page.
func manName(c *cobra.Command) string { return strings.ReplaceAll(c.CommandPath(), " ", "-") }

// manPage returns the page of a command, in the macros of man(7).
func manPage(c *cobra.Command) []byte {
	var b bytes.Buffer
	c.InitDefaultHelpFlag()
	c.InitDefaultVersionFlag()
	fmt.Fprintf(&b, ".TH %s 1 \"\" \"rocectl %s\" \"roce\"\n", roffWord(strings.ToUpper(manName(c))), roff(c.Root().Version))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", roff(manName(c)), roff(c.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n\\fB%s\\fR%s\n", roff(c.CommandPath()), roff(strings.TrimPrefix(c.UseLine(), c.CommandPath())))
	b.WriteString(".SH DESCRIPTION\n")
	verbatim(&b, c.Long)
	if subs := documented(c)[1:]; c.HasSubCommands() && len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			if sub.Parent() == c {
				fmt.Fprintf(&b, ".TP\n\\fB%s\\fR\n%s\n", roff(sub.Name()), roff(sub.Short))
			}
		}
	}
	b.WriteString(".SH OPTIONS\n")
	c.Flags().VisitAll(func(f *pflag.Flag) { manFlag(&b, f) })
	if c.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		verbatim(&b, c.Example)
	}
	b.WriteString(".SH EXIT STATUS\n0: success; 1: the operation failed; 2: wrong usage.\n")
	if c.HasParent() {
		fmt.Fprintf(&b, ".SH SEE ALSO\n\\fB%s\\fR(1)\n", roff(manName(c.Parent())))
	}
	return b.Bytes()
}

// manFlag writes the help text of a flag.
func manFlag(b *bytes.Buffer, f *pflag.Flag) {
	if f.Hidden {
		return
	}
	value, usage := pflag.UnquoteUsage(f)
	name := "\\fB\\-\\-" + roff(f.Name) + "\\fR"
	if f.Shorthand != "" {
		name = "\\fB\\-" + roff(f.Shorthand) + "\\fR, " + name
	}
	if value != "" {
		name += " \\fI" + roff(value) + "\\fR"
	}
	switch f.DefValue {
	case "", "0", "false", "[]":
	default:
		usage += " (default " + f.DefValue + ")"
	}
	fmt.Fprintf(b, ".TP\n%s\n%s\n", name, roff(usage))
}

// verbatim writes text and keeps its lines.
func verbatim(b *bytes.Buffer, text string) {
	b.WriteString(".nf\n")
	for line := range strings.Lines(strings.Trim(text, "\n")) {
		b.WriteString(roff(strings.TrimSuffix(line, "\n")) + "\n")
	}
	b.WriteString(".fi\n")
}

// roff escapes a line of text: backslashes, dashes, quotes, and a dot at its
// beginning, which would make the line a request.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, "'", `\(aq`, "`", "\\(ga", "^", `\(ha`, "~", `\(ti`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}

// roffWord quotes one argument of a macro.
func roffWord(s string) string { return `"` + strings.ReplaceAll(roff(s), `"`, `\(dq`) + `"` }

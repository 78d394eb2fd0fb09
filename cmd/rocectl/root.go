package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/usage"
)

// Exit codes.
const (
	exitOK     = 0
	exitFailed = 1 // the operation failed
	exitUsage  = 2 // wrong command, flag or argument
)

const rootHelp = `rocectl runs, shows and checks software RDMA NICs (RoCEv2).

Start here, without any privilege:
  rocectl demo

Talk to a Linux peer (needs CAP_NET_RAW on the interface):
  rocectl rping -c -a 10.0.0.2 -C 5 -v --dev eth0

Read a capture:
  rocectl pcap decode file.pcap

Exit codes: 0 success, 1 the operation failed, 2 wrong usage.`

// run executes one command line and returns the exit code. It writes results to stdout and
// errors, one line each, to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(append([]string{}, args...)) // nil would mean os.Args
	// Tools write from several goroutines.
	var mu sync.Mutex
	stderr = &lockedWriter{&mu, stderr}
	root.SetOut(&lockedWriter{&mu, stdout})
	root.SetErr(stderr)
	started := false // cobra has accepted the command line
	root.PersistentPreRun = func(*cobra.Command, []string) { started = true }
	cmd, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	_, wrong := errors.AsType[usage.Error](err)
	switch {
	case err == errNoCommand:
		return exitUsage
	case wrong || !started:
		fmt.Fprintf(stderr, "rocectl: %s; see %s --help\n", oneLine(err), cmd.CommandPath())
		return exitUsage
	case err != errNotAccepted:
		fmt.Fprintf(stderr, "rocectl: %s\n", oneLine(err))
	}
	if e, ok := errors.AsType[exitError](err); ok {
		return e.code
	}
	return exitFailed
}

// errNoCommand sets the exit code to 2 without an error line, because standard error has the help.
var errNoCommand = errors.New("a command is missing")

// exitError is an error of a command that has its own exit codes.
type exitError struct {
	error
	code int
}

func newRoot() *cobra.Command {
	root := group("rocectl", "Software RDMA NICs: run, show, check", rootHelp,
		demoCommand(), rpingCommand(), pingpongCommand(), perfCommand(),
		rstreamCommand(), riostreamCommand(), fiPingpongCommand(),
		runCommand(), topCommand(), impairCommand(), scriptCommand(), conformCommand(),
		cmCommand(), devCommand(), nicCommand(), pcapCommand(),
		completionCommand(), manCommand(), versionCommand())
	root.Version = thisVersion().Version
	root.SetVersionTemplate("rocectl {{.Version}}\n")
	root.SilenceErrors = true
	root.SilenceUsage = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return machine.FlagError(err) })
	addCompletions(root)
	root.InitDefaultHelpCmd()
	strictHelp(root)
	return root
}

// strictHelp changes "help" so that a command that does not exist is a usage error. The help command of cobra prints
// the help of the nearest command and succeeds.
func strictHelp(root *cobra.Command) {
	help, _, _ := root.Find([]string{"help"})
	help.Run, help.RunE = nil, func(_ *cobra.Command, args []string) error {
		of, rest, err := root.Find(args)
		if err == nil && len(rest) > 0 {
			err = usage.Errorf("%s has no command %q", of.CommandPath(), rest[0])
		}
		if err != nil {
			return err
		}
		of.InitDefaultHelpFlag()
		return of.Help()
	}
}

// group returns a command that only has subcommands. A command line without a subcommand is a usage error.
func group(name, short, long string, subs ...*cobra.Command) *cobra.Command {
	c := &cobra.Command{Use: name, Short: short, Long: long, Args: cobra.ArbitraryArgs,
		RunE: func(c *cobra.Command, args []string) error {
			if len(args) > 0 {
				return usage.Errorf("%s has no command %q", c.CommandPath(), args[0])
			}
			c.SetOut(c.ErrOrStderr())
			if err := c.Help(); err != nil {
				return err
			}
			return errNoCommand
		}}
	c.AddCommand(subs...)
	return c
}

// lockedWriter lets several goroutines write, one at a time.
type lockedWriter struct {
	mu *sync.Mutex
	io.Writer
}

func (w *lockedWriter) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.Writer.Write(b)
}

// oneLine returns the text of an error on one line. The error may be several joined errors.
func oneLine(err error) string {
	return strings.Join(strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' }), "; ")
}

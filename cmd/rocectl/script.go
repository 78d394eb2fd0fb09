package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/scripted"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

func scriptCommand() *cobra.Command {
	return group("script", "Play one end of RoCE connections, packet by packet, as a script says",
		`Play one end of RoCE connections. A script says packet by packet what this end sends,
with which fields, and which packets the peer must send. docs/script.md describes scripts.
The program contains a library of scripts.`,
		scriptRunCommand(), scriptListCommand(), scriptShowCommand(), scriptCheckCommand())
}

// scriptFlags are the flags of "script run".
type scriptFlags struct {
	peer, local, kind, capture string
	wire                       scripted.WireConfig
	port                       uint16
	timeout                    time.Duration
	asJSON, junit, deadly      bool
	verbose                    bool
}

func scriptRunCommand() *cobra.Command {
	var f scriptFlags
	c := &cobra.Command{
		Use:   "run [flags] SCRIPT...",
		Short: "Play scripts against a peer, or against a NIC in this process",
		Long: `Play scripts against the peer at an address. The peer runs the program that the script
names (peer "…", see "script list"). Without --peer play them against a software NIC in
this process. A script is a file, a name of the library, or a pattern of names.

Some expectations depend on the kind of peer, which --kind gives. If a script fails, the
command prints its packets, each with the line of the script that sent or expected it.

Scripts with "connect verbs" control their peer: only the NIC in this process and make
conformance can play them.

Exits with 0 if all packets are as expected, and with 1 if not.`,
		Example: `  rocectl script run 'sequence/*'
  rocectl script run --peer 10.0.0.2 --kind rxe-6.12 rping/server-ping
  rocectl script run --peer 10.0.0.2 --link udp mine.script`,
		Args: arguments(1, 1<<20),
		RunE: func(c *cobra.Command, args []string) error {
			return f.run(c.Context(), c.OutOrStdout(), c.ErrOrStderr(), args)
		},
	}
	fl := c.Flags()
	fl.StringVarP(&f.peer, "peer", "a", "", "address of the peer; without it the peer is a NIC in this process")
	fl.StringVar(&f.local, "local", "", "own address, if the interface has several")
	fl.StringVar(&f.wire.Dev, "dev", "", "network `interface` (default: the one with the route to the peer)")
	fl.StringVar(&f.wire.Link, "link", scripted.Links[0], "driver: raw, or udp, which needs no privilege")
	fl.Uint16VarP(&f.port, "port", "p", 0, "port of the peer's program, or of the script if it is the server (0: the program's default)")
	fl.StringVar(&f.kind, "kind", "adapter", "kind of the peer: us, rxe-6.1, rxe-6.12, rxe-7, or another word")
	fl.DurationVar(&f.timeout, "timeout", 10*time.Second, "how long to wait for each packet")
	fl.StringVar(&f.capture, "capture", "", "write all packets to this `file` (pcapng)")
	fl.BoolVar(&f.asJSON, "json", false, "print one JSON object for each script")
	fl.BoolVar(&f.junit, "junit", false, "print JUnit XML")
	fl.BoolVar(&f.deadly, "deadly", false, "also play scripts that this kind of peer does not survive")
	fl.BoolVarP(&f.verbose, "verbose", "v", false, "also print the packets of scripts that pass")
	return c
}

// validate checks the flags and returns the options of the scripts.
func (f *scriptFlags) validate(ctx context.Context) (o script.Options, err error) {
	if f.asJSON && f.junit {
		return o, usage.Errorf("--json and --junit exclude each other")
	}
	if err := usage.OneOf("--link", f.wire.Link, scripted.Links...); err != nil {
		return o, err
	}
	if f.timeout <= 0 {
		return o, usage.Errorf("--timeout %v: want more than 0", f.timeout)
	}
	if o.Peer, err = script.ParsePeer(f.kind); err != nil {
		return o, usage.Errorf("--kind: %v", err)
	}
	if f.peer == "" && (f.capture != "" || f.local != "" || f.wire.Dev != "" || f.port != 0) {
		return o, usage.Errorf("--capture, --local, --dev and --port need a peer on a network: give --peer")
	}
	o.Timeout, o.Port = f.timeout, f.port
	if f.wire.Peer, err = resolve(ctx, f.peer); err == nil {
		f.wire.Local, err = resolve(ctx, f.local)
	}
	return o, err
}

func (f *scriptFlags) run(ctx context.Context, out, notes io.Writer, args []string) (err error) {
	o, err := f.validate(ctx)
	if err != nil {
		return err
	}
	scripts, err := findScripts(args)
	if err != nil {
		return err
	}
	play := func(s *script.Script) *script.Result { return scripted.RunSelf(ctx, s, o) }
	if f.wire.Peer.IsValid() {
		if f.capture != "" {
			w, err := createTrace(f.capture)
			if err != nil {
				return err
			}
			defer func() {
				if cerr := w.Close(); err == nil && cerr != nil {
					err = fmt.Errorf("%s: %w", f.capture, cerr)
				}
			}()
			f.wire.Capture = w
		}
		o.Listening = func(a netip.AddrPort) { announce(notes, a) }
		wire, err := scripted.OpenWire(ctx, f.wire)
		if err != nil {
			return err
		}
		defer wire.Port.Close()
		play = func(s *script.Script) *script.Result {
			switch {
			case s.Controlled():
				return &script.Result{Name: s.Name, Skipped: "it controls its peer (connect verbs): leave --peer out"}
			case s.Kills(o.Peer) && !f.deadly:
				return &script.Result{Name: s.Name, Skipped: fmt.Sprintf("%v does not survive it; --deadly plays it anyway", o.Peer)}
			}
			return script.Run(ctx, s, wire, o)
		}
	}
	return f.report(ctx, out, scripts, play)
}

// report plays the scripts and prints the results.
func (f *scriptFlags) report(ctx context.Context, out io.Writer, scripts []*script.Script, play func(*script.Script) *script.Result) error {
	var results []*script.Result
	verdicts := map[string]int{}
	for _, s := range scripts {
		r := &script.Result{Name: s.Name, Skipped: "interrupted"}
		if ctx.Err() == nil {
			r = play(s)
		}
		results = append(results, r)
		verdicts[r.Verdict()]++
		var err error
		switch {
		case f.junit: // follows behind the last script
		case f.asJSON:
			err = json.NewEncoder(out).Encode(r)
		default:
			err = r.WriteText(out)
			if err == nil && f.verbose && r.Verdict() == "pass" {
				err = r.Ladder(out)
			}
		}
		if err != nil {
			return err
		}
	}
	if f.junit {
		if err := script.WriteJUnit(out, "rocectl script", results); err != nil {
			return err
		}
	}
	switch {
	case ctx.Err() != nil:
		return errors.New("interrupted")
	case verdicts["fail"] > 0:
		return fmt.Errorf("%d of %d scripts failed", verdicts["fail"], len(scripts))
	case verdicts["skip"] == len(scripts):
		return errors.New("no script was played")
	}
	return nil
}

// findScripts returns the scripts that the arguments name: scripts of the library by name or pattern, or files.
func findScripts(args []string) (list []*script.Script, err error) {
	for _, a := range args {
		if s := library.Find(a); s != nil {
			list = append(list, s)
			continue
		}
		if strings.ContainsAny(a, "*?[") {
			before := len(list)
			for _, s := range library.All() {
				if ok, err := path.Match(a, s.Name); err != nil {
					return nil, usage.Errorf("%q is no pattern of names", a)
				} else if ok {
					list = append(list, s)
				}
			}
			if len(list) == before {
				return nil, usage.Errorf("no script of the library matches %q: see rocectl script list", a)
			}
			continue
		}
		s, err := readScript(a)
		if errors.Is(err, os.ErrNotExist) {
			return nil, usage.Errorf("%q is neither a file nor a script of the library: see rocectl script list", a)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	return list, nil
}

// maxScript bounds the size of a script file, because the file may be a device without an end.
const maxScript = 4 << 20

// readScript reads a script file.
func readScript(name string) (*script.Script, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxScript+1))
	switch {
	case err != nil:
		return nil, err
	case len(text) > maxScript:
		return nil, fmt.Errorf("%s: more than %d bytes are no script", name, maxScript)
	}
	return script.Parse(name, string(text))
}

func scriptListCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "list [PATTERN]",
		Short: "List the scripts of the library, and what their peers have to run",
		Example: `  rocectl script list
  rocectl script list 'rping/*'`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			list := library.All()
			if len(args) > 0 {
				var err error
				if list, err = findScripts(args); err != nil {
					return err
				}
			}
			return listScripts(c.OutOrStdout(), list, asJSON)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object for each")
	return c
}

func listScripts(out io.Writer, list []*script.Script, asJSON bool) error {
	for _, s := range list {
		if asJSON {
			if err := json.NewEncoder(out).Encode(map[string]string{"name": s.Name, "about": s.About, "rule": s.Rule, "peer": s.Peer}); err != nil {
				return err
			}
			continue
		}
		peer := s.Peer
		if s.Controlled() {
			peer = "verbs"
		}
		if _, err := fmt.Fprintf(out, "%-46s %-30s %s\n", s.Name, peer, s.About); err != nil {
			return err
		}
	}
	return nil
}

func scriptShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "show SCRIPT",
		Short:   "Print a script of the library",
		Example: `  rocectl script show sequence/a-gap >mine.script`,
		Args:    arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			text, err := library.Text(args[0])
			if err != nil {
				return usage.Errorf("the library has no script %q: see rocectl script list", args[0])
			}
			_, err = io.WriteString(c.OutOrStdout(), text)
			return err
		},
	}
}

func scriptCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "check FILE...",
		Short:   "Check that scripts can be read",
		Example: `  rocectl script check mine.script`,
		Args:    arguments(1, 1<<20),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := findScripts(args)
			if err != nil {
				return err
			}
			for _, s := range list {
				if _, err := fmt.Fprintf(c.OutOrStdout(), "%s: right, steps: %d\n", s.Name, len(s.Steps)); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

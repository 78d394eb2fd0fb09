package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/conform"
	"github.com/goroce/roce/internal/tools/scripted"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/udp"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/verify"
)

const conformHelp = `Test a live RoCE peer, and print a report card. The test has operations of all kinds
without faults, the same operations with faults in the path, and scripts. It judges each packet
of the peer by the rules of the standard, as "rocectl pcap verify". The card has the verdicts,
sequence diagrams of the failures, the response times of the peer, and what could not be judged
and why.

The peer can be an adapter or a kernel with common programs: with --peer perftest the servers of
perftest, with --peer rping one server of rping. --commands prints the commands for the peer's
host. "rocectl conform --serve" is a peer for all steps: this stack on another host, or any
program with its control protocol (docs/conform.md). This end of the connection makes the faults,
so the test needs no host in between and changes nothing on either host. --rules adds
experiments: rule files of "rocectl impair".

--self needs no other host: it tests this stack, in this process, over UDP sockets of the
loopback interface.

Exits with 0 if the peer passes, with 3 if there are only warnings, and with 1 if the peer fails
or the test does not come to its end.`

// conformFlags are the flags of "conform".
type conformFlags struct {
	cfg                                   conform.Config
	dev                                   *deviceFlags
	serve, self, list, commands, asJSON   bool
	html, junit, only, peerArgs, cnpScope string
	rules, scripts                        []string
}

func conformCommand() *cobra.Command {
	var f conformFlags
	c := &cobra.Command{
		Use:   "conform [flags] [HOST]",
		Short: "Test a live peer by the standard, and print a report card",
		Long:  conformHelp + "\n" + deviceHelp,
		Example: `  rocectl conform --self --only clean/
  rocectl conform --serve --dev eth0                               # on the peer's host
  rocectl conform 10.0.0.2 --html card.html --captures card
  rocectl conform --peer perftest --commands 10.0.0.2 | ssh 10.0.0.2 sh
  rocectl conform --peer perftest --wait 60s 10.0.0.2
  rocectl conform --list`,
		Args: arguments(0, 1),
	}
	fl := c.Flags()
	fl.BoolVar(&f.serve, "serve", false, "be the peer; HOST is the address to listen on")
	fl.BoolVar(&f.self, "self", false, "test this stack, in this process")
	fl.StringVar(&f.cfg.Peer, "peer", conform.PeerServe, "program that the peer runs: "+usage.OrList(conform.Peers))
	fl.Uint16VarP(&f.cfg.Port, "port", "p", 0, "port of the peer's control server, of perftest's first server, or of rping (0: "+fmt.Sprint(conform.DefaultPort)+", 18600, 7174)")
	fl.BoolVar(&f.commands, "commands", false, "print the commands for the peer's host")
	fl.StringVar(&f.peerArgs, "peer-args", "", "more `ARGUMENTS` for these commands, for example \"-x 1\" for the GID index of perftest")
	fl.BoolVar(&f.list, "list", false, "list the steps")
	fl.StringVar(&f.only, "only", "", "only steps whose names match this `REGEXP`")
	fl.StringArrayVar(&f.rules, "rules", nil, "add the rule `FILE` of rocectl impair as an experiment (repeatable)")
	fl.StringVar(&f.cfg.Kind, "kind", "", "kind of the peer for scripts: us, rxe-6.12 or another word (default: what the peer reports, or adapter)")
	fl.StringArrayVar(&f.scripts, "script", nil, "add the script `FILE` of rocectl script (repeatable)")
	fl.IntVar(&f.cfg.MTU, "mtu", 0, "path MTU (0: the largest that both ends support)")
	fl.DurationVar(&f.cfg.Limit, "limit", 30*time.Second, "longest time of a step")
	fl.DurationVar(&f.cfg.Wait, "wait", 5*time.Second, "how long to wait until the peer's server is started")
	fl.StringVar(&f.cfg.Captures, "captures", "", "write the packets of each step to the folder `DIR`")
	fl.StringVar(&f.html, "html", "", "write the card as an HTML page to `FILE`")
	fl.StringVar(&f.junit, "junit", "", "write the card as JUnit's XML to `FILE`")
	fl.BoolVar(&f.asJSON, "json", false, "print the card as one JSON object")
	fl.BoolVar(&f.cfg.Strict, "strict", false, "count known departures like other findings")
	fl.DurationVar(&f.cfg.CNP, "cnp-interval", 0, "least time between two CNPs (0: any)")
	fl.StringVar(&f.cnpScope, "cnp-scope", string(verify.ByQueuePair), "CNPs are paced per: qp, addresses, destination or port")
	f.dev = addDeviceFlags(c)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := f.validate(); err != nil {
			return err
		}
		switch {
		case f.serve:
			return f.runServe(c, args)
		case f.list:
			return f.runList(c.OutOrStdout())
		}
		return f.run(c, args)
	}
	return c
}

// validate checks what does not depend on the command's argument.
func (f *conformFlags) validate() (err error) {
	if err := f.dev.Validate(); err != nil {
		return err
	}
	switch {
	case f.dev.Link == machine.LinkMem:
		return usage.Errorf("--link mem: the peer must be another process; --self tests this stack in this process")
	case f.dev.Polled:
		return usage.Errorf("--poll: the device must answer while nobody polls it")
	case f.dev.Capture != "" && !f.serve:
		return usage.Errorf("--capture: each step has its own capture, see --captures")
	case f.serve && (f.self || f.list || f.commands):
		return usage.Errorf("--serve excludes --self, --list and --commands")
	case f.cfg.Limit <= 0 || f.cfg.Wait < 0 || f.cfg.CNP < 0:
		return usage.Errorf("--limit %v, --wait %v and --cnp-interval %v: want positive times", f.cfg.Limit, f.cfg.Wait, f.cfg.CNP)
	}
	if f.only != "" {
		if f.cfg.Only, err = regexp.Compile(f.only); err != nil {
			return usage.Errorf("--only: %v", err)
		}
	}
	f.cfg.CNPScope = verify.Scope(f.cnpScope)
	if !slices.Contains(verify.Scopes, f.cfg.CNPScope) {
		return usage.Errorf("--cnp-scope: %q is none of %v", f.cnpScope, verify.Scopes)
	}
	for _, name := range f.rules {
		file, err := impair.Load(name)
		if err != nil {
			return err
		}
		f.cfg.Rules = append(f.cfg.Rules, file)
	}
	for _, name := range f.scripts {
		s, err := readScript(name)
		if err != nil {
			return err
		}
		s.Name = strings.TrimSuffix(filepath.Base(name), script.Extension)
		f.cfg.Scripts = append(f.cfg.Scripts, s)
	}
	f.cfg.PeerArgs = strings.Fields(f.peerArgs)
	f.cfg.Tester = software()
	return usage.OneOf("--peer", f.cfg.Peer, conform.Peers...)
}

// software returns the name and version of this program.
func software() string { return "rocectl " + thisVersion().Version }

// runServe runs the peer's server.
func (f *conformFlags) runServe(c *cobra.Command, args []string) error {
	port := f.cfg.Port
	if port == 0 {
		port = conform.DefaultPort
	}
	t := tool{overTCP: true, server: func(ctx context.Context, d *roce.Device, addr string, listening func(netip.AddrPort)) error {
		return conform.Serve(ctx, d, addr, conform.ServeConfig{Software: software(), Log: func(line string) { fmt.Fprintln(c.ErrOrStderr(), line) }}, listening)
	}}
	return f.dev.run(c, endpoint{server: true, host: strings.Join(args, ""), port: port}, t)
}

func (f *conformFlags) runList(out io.Writer) error {
	list, err := conform.List(f.cfg)
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%s\n", s.Name, s.About)
	}
	return w.Flush()
}

// run tests a peer.
func (f *conformFlags) run(c *cobra.Command, args []string) error {
	ctx := c.Context()
	switch {
	case f.self && len(args) > 0:
		return usage.Errorf("--self needs no HOST")
	case f.self && f.cfg.Peer != conform.PeerServe:
		return usage.Errorf("--self: the peer is this stack, not %s", f.cfg.Peer)
	case f.self:
		stop, err := f.startSelf(ctx)
		if err != nil {
			return err
		}
		defer stop()
	case len(args) == 0:
		return usage.Errorf("the address of the peer is missing: give HOST or --self")
	default:
		var err error
		if f.cfg.Host, err = resolve(ctx, args[0]); err != nil {
			return err
		}
	}
	f.cfg.Open = func(wrap func(link.Port) (link.Port, error), notify bool) (conform.Device, error) {
		flags := f.dev.Flags
		if notify && flags.DCQCN == "" {
			flags.DCQCN = fmt.Sprint(lineRate)
		}
		flags.Wrap = wrap
		d, err := flags.Open(netip.Addr{}, f.cfg.Host, c.ErrOrStderr())
		if err != nil {
			return conform.Device{}, err
		}
		return conform.Device{Device: d.Device, Close: d.Close}, nil
	}
	f.cfg.Wire = f.wire
	if f.commands {
		lines, err := conform.Commands(ctx, f.cfg)
		if err != nil {
			return err
		}
		for _, line := range lines {
			fmt.Fprintf(c.OutOrStdout(), "%s &\n", line)
		}
		_, err = fmt.Fprintln(c.OutOrStdout(), "wait")
		return err
	}
	f.cfg.Stepped = func(s conform.StepResult) {
		fmt.Fprintf(c.ErrOrStderr(), "%-7s %s\n", s.Status, s.Name)
	}
	card, err := conform.Run(ctx, f.cfg)
	if card == nil {
		return advise(err)
	}
	return errors.Join(f.write(c.OutOrStdout(), card), outcome(card, err))
}

// wire opens a wire to the peer for scripts.
func (f *conformFlags) wire(ctx context.Context, quiet time.Duration) (*script.Wire, error) {
	w := scripted.WireConfig{Dev: f.dev.Dev, Link: f.dev.Link, Peer: f.cfg.Host, Quiet: quiet}
	switch {
	case f.cfg.Host.IsLoopback() && f.cfg.Host.Is4(): // no Ethernet interface leads there, so scripts use a UDP socket
		p, own, err := openFree(1, func(a netip.Addr) (link.Port, error) { return udp.Open(udp.Config{Addr: a}) })
		if err != nil {
			return nil, err
		}
		return &script.Wire{Port: p, Own: bth.GIDFrom(own), Peer: bth.GIDFrom(f.cfg.Host), Quiet: quiet}, nil
	case !slices.Contains(scripted.Links, w.Link):
		w.Link = scripted.Links[0]
	}
	return scripted.OpenWire(ctx, w)
}

// outcome returns the error of a command that has printed a card. err is the error of the test.
func outcome(card *conform.Card, err error) error {
	switch {
	case err != nil:
		return fmt.Errorf("the test is not complete: %w", err)
	case card.Verdict == conform.Pass:
		return nil
	case card.Verdict == conform.Warn:
		return exitError{errors.New("the peer passes with warnings"), exitWarnings}
	case card.Verdict == conform.Unknown:
		return errors.New("nothing could be judged")
	}
	return errors.New("the peer fails")
}

// write prints the card, and writes the files that the flags name.
func (f *conformFlags) write(out io.Writer, card *conform.Card) error {
	for _, file := range []struct {
		name  string
		write func(io.Writer) error
	}{{f.html, card.WriteHTML}, {f.junit, card.WriteJUnit}} {
		if file.name == "" {
			continue
		}
		w, err := os.Create(file.name)
		if err != nil {
			return err
		}
		if err := errors.Join(file.write(w), w.Close()); err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
	}
	if f.asJSON {
		return card.WriteJSON(out)
	}
	return card.WriteText(out)
}

// lineRate is the line rate in Gb/s for congestion control that is on only because the test needs congestion notification packets.
const lineRate = 10

// openFree calls open with the addresses of 127.0.third.0/24 until one is free, because open needs an address exclusively. It starts
// at .2, because other programs use 127.0.0.1.
func openFree[T any](third byte, open func(netip.Addr) (T, error)) (v T, at netip.Addr, err error) {
	for last := byte(2); last < 32; last++ {
		at = netip.AddrFrom4([4]byte{127, 0, third, last})
		if v, err = open(at); err == nil {
			return v, at, nil
		}
	}
	return v, at, fmt.Errorf("no address of the loopback is free: %w", err)
}

// startSelf starts a peer in this process.
func (f *conformFlags) startSelf(ctx context.Context) (stop func(), err error) {
	options := roce.Options{Congestion: &roce.DCQCN{LineRate: lineRate * qp.Gbps}} // the peer sends CNPs only with congestion control
	d, host, err := openFree(0, func(a netip.Addr) (*roce.Device, error) {
		return roce.OpenAddr(a, roce.InterfaceConfig{Options: options, Exclusive: true})
	})
	if err != nil {
		return nil, err
	}
	f.cfg.Host = host
	f.dev.Link, f.dev.Dev = "udp", ""
	ctx, cancel := context.WithCancel(ctx)
	at, ended := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		ended <- conform.Serve(ctx, d, netip.AddrPortFrom(f.cfg.Host, 0).String(), conform.ServeConfig{Software: software()}, func(a netip.AddrPort) { at <- a })
	}()
	stop = func() {
		cancel()
		<-ended
		d.Close()
	}
	select {
	case a := <-at:
		f.cfg.Port = a.Port()
		return stop, nil
	case err := <-ended:
		cancel()
		return nil, errors.Join(err, d.Close())
	}
}

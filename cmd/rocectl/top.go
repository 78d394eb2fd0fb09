package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/gdamore/tcell/v2"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/internal/tools/live"
	"github.com/goroce/roce/internal/tools/top"
	"github.com/goroce/roce/internal/tools/usage"
)

func topCommand() *cobra.Command {
	var asJSON, reverse bool
	var file, sort string
	o := top.Options{}
	c := &cobra.Command{
		Use:   "top [IFACE]",
		Short: "Watch connections: rates, retransmissions, NAKs, round trips",
		Long: `Watch connections in a table: packets per second, retransmissions, NAKs, congestion
notification packets, round trip time, state.

Without an argument it shows the queue pairs of all devices in this network namespace, with
--link udp, raw and xdp, shared or not ("rocectl nic"). It needs no privilege, but does not
show the queue pairs of processes of other users. It counts packets of requests, not of
answers. A READ counts as the packets that it asks for.

With the name of an interface it shows the connections of the packets on this interface, of
any RoCE program or adapter. It sends nothing and needs CAP_NET_RAW. It does not see packets
that --link xdp sends and receives, and packets that --link raw sends. --read does the same
with a capture.

On a terminal the keys are: q quit, left and right select the column to sort by, r reverse
the order, up and down scroll, p pause, ? help. If the output is no terminal, it prints a
table for each sample. With --json it prints an object on a line for each sample.`,
		Example: `  rocectl top
  sudo rocectl top eth0 --sort retx/s
  rocectl top --json | jq '.connections[] | select(.per_second.retransmitted > 0)'
  rocectl top --read rping.pcap --interval 100ms`,
		Args: arguments(0, 1),
		RunE: func(c *cobra.Command, args []string) error {
			o.Column, o.Reverse = top.FindColumn(sort), reverse
			switch {
			case o.Column < 0:
				return usage.Errorf("--sort %s: there are %s", sort, strings.Join(top.Names(), ", "))
			case o.Interval < 10*time.Millisecond:
				return usage.Errorf("--interval %v is less than 10ms", o.Interval)
			case o.Count < 0:
				return usage.Errorf("--count %d is negative", o.Count)
			case file != "" && len(args) > 0:
				return usage.Errorf("an interface and --read exclude one another")
			}
			src, end, err := topSource(c, args, file, o.Interval)
			if err != nil {
				return err
			}
			defer end()
			return watch(c, src, o, asJSON)
		},
	}
	f := c.Flags()
	f.BoolVar(&asJSON, "json", false, "print one JSON object per sample")
	f.StringVar(&file, "read", "", "read the packets of a capture `FILE`")
	f.DurationVar(&o.Interval, "interval", time.Second, "time between samples")
	f.IntVar(&o.Count, "count", 0, "end after this many samples (0: no limit)")
	f.StringVar(&sort, "sort", "sent/s", "sort by this `COLUMN`: "+strings.Join(top.Names(), ", "))
	f.BoolVar(&reverse, "reverse", false, "sort in the other order")
	return c
}

// topSource opens the source that the command line names. The caller calls end to close it.
func topSource(c *cobra.Command, args []string, file string, interval time.Duration) (src top.Source, end func(), err error) {
	switch {
	case file != "":
		in, err := os.Open(file)
		if err != nil {
			return nil, nil, err
		}
		return top.NewCapture(c.Context(), file, in, interval), func() { in.Close() }, nil
	case len(args) == 0:
		return top.NewStack(), func() {}, nil
	}
	if err := machine.Exists(args[0]); err != nil {
		return nil, nil, err
	}
	tap, err := live.Open(args[0])
	if err != nil {
		return nil, nil, err
	}
	passive := top.NewPassive("interface "+args[0], tap.Lost)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := tap.Run(passive.Add)
		if err == nil {
			err = io.EOF
		}
		passive.End(err)
	}()
	return passive, func() { tap.Close(); <-ended }, nil
}

// watch shows the samples on the terminal, or prints them.
func watch(c *cobra.Command, src top.Source, o top.Options, asJSON bool) error {
	if asJSON {
		return top.Stream(c.Context(), src, o, top.PrintJSON(c.OutOrStdout(), src.Title()))
	}
	if !term.IsTerminal(int(os.Stdin.Fd())) || !term.IsTerminal(int(os.Stdout.Fd())) {
		return top.Stream(c.Context(), src, o, top.PrintText(c.OutOrStdout()))
	}
	screen, err := tcell.NewScreen()
	if err == nil {
		err = screen.Init()
	}
	if err != nil {
		return fmt.Errorf("the terminal cannot show the table (TERM=%s): %w; use --json", os.Getenv("TERM"), err)
	}
	defer screen.Fini()
	return top.Show(c.Context(), screen, src, o)
}

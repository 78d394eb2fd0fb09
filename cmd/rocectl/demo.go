package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/internal/tools/demo"
	"github.com/goroce/roce/internal/tools/usage"
)

func demoCommand() *cobra.Command {
	cfg := demo.DefaultConfig
	var asJSON bool
	c := &cobra.Command{
		Use:   "demo",
		Short: "See two software NICs at work; needs no privilege",
		Long: `Two software NICs on a wire in this process, or with --link udp on UDP sockets
of this host, connect through the connection manager, do every operation, and do it
all again while packets get lost. The demo verifies all data, measures latencies,
shows a READ packet by packet, and writes a capture. It takes a second or two and
needs no privilege.`,
		Example: `  rocectl demo
  rocectl demo --link udp
  rocectl demo --loss 0.2 --rounds 20 --capture /tmp/bad.pcapng`,
		Args: arguments(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			if !(cfg.Loss >= 0 && cfg.Loss <= 0.5) || cfg.Rounds < 1 {
				return usage.Errorf("--loss %v --rounds %d: want a loss of 0 to 0.5, and at least one round", cfg.Loss, cfg.Rounds)
			}
			if err := usage.OneOf("--link", cfg.Link, demo.Links()...); err != nil {
				return err
			}
			if !c.Flags().Changed("capture") {
				cfg.Capture = writable(cfg.Capture)
			}
			r, err := demo.Run(c.Context(), cfg)
			if err != nil {
				return err
			}
			if asJSON {
				enc := json.NewEncoder(c.OutOrStdout())
				enc.SetIndent("", "  ")
				return enc.Encode(r)
			}
			return r.WriteText(c.OutOrStdout(), headings())
		},
	}
	f := c.Flags()
	f.SortFlags = false
	f.IntVar(&cfg.Rounds, "rounds", cfg.Rounds, "rounds of each operation")
	f.Float64Var(&cfg.Loss, "loss", cfg.Loss, "share of packets lost each way in the second part")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the losses")
	f.StringVar(&cfg.Capture, "capture", cfg.Capture, "write all packets to `FILE`, .pcap or .pcapng (\"\": none)")
	f.StringVar(&cfg.Link, "link", demo.LinkMem, "mem: a wire in this process; udp: UDP sockets of this host")
	f.BoolVar(&asJSON, "json", false, "print the results as a JSON object")
	return c
}

// writable returns a file that can be written: name, or name in the folder for temporary files, or a new
// name there, or "" if none can be written.
func writable(name string) string {
	for _, path := range []string{name, filepath.Join(os.TempDir(), name)} {
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o644); err == nil {
			f.Close()
			return path
		}
	}
	ext := filepath.Ext(name)
	f, err := os.CreateTemp("", strings.TrimSuffix(name, ext)+"-*"+ext)
	if err != nil {
		return ""
	}
	f.Close()
	return f.Name()
}

// headings returns a function for headings on standard output: it makes them bold on a terminal,
// unless NO_COLOR is set (https://no-color.org). Elsewhere it returns its argument.
func headings() func(string) string {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	if !terminal || os.Getenv("NO_COLOR") != "" {
		return func(s string) string { return s }
	}
	return func(s string) string { return "\x1b[1m" + s + "\x1b[0m" }
}

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
		Long: `Connect two software NICs in this process through the connection manager, over a
simulated wire or with --link udp over UDP sockets of this host. The demo executes each
operation, and executes it again while packets get lost. It verifies all data, measures
latencies, shows a READ packet by packet, and writes a capture. It takes a few seconds
and needs no privilege.`,
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
	f.Float64Var(&cfg.Loss, "loss", cfg.Loss, "share of packets lost in each direction in the second part")
	f.Uint64Var(&cfg.Seed, "seed", cfg.Seed, "seed of the losses")
	f.StringVar(&cfg.Capture, "capture", cfg.Capture, "write all packets to `FILE`, .pcap or .pcapng (\"\": none)")
	f.StringVar(&cfg.Link, "link", demo.LinkMem, "mem: a wire in this process; udp: UDP sockets of this host")
	f.BoolVar(&asJSON, "json", false, "print the results as a JSON object")
	return c
}

// writable returns the name of a file that can be written: name, or name in the folder for temporary files, or a new name in that
// folder. It returns "" if none can be written.
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

// headings returns a function for headings on standard output. On a terminal the function makes them bold, unless NO_COLOR is set
// (https://no-color.org). Otherwise it returns its argument.
func headings() func(string) string {
	info, err := os.Stdout.Stat()
	terminal := err == nil && info.Mode()&os.ModeCharDevice != 0 && os.Getenv("TERM") != "dumb"
	if !terminal || os.Getenv("NO_COLOR") != "" {
		return func(s string) string { return s }
	}
	return func(s string) string { return "\x1b[1m" + s + "\x1b[0m" }
}

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/capcheck"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/ladder"
)

func pcapCommand() *cobra.Command {
	return group("pcap", "Read captures: decode, check, judge, draw",
		`Read captures (pcap or pcapng, also packed with gzip) of RoCEv2 traffic of any program.
"-" is standard input:
  tcpdump -i eth0 -U -w - udp port 4791 | rocectl pcap decode -

A capture that was made on one of the two hosts can have super-packets: frames before the
NIC's driver divided them (GSO), or after the kernel joined them (GRO). All commands show the
packets on the wire: they divide a super-packet by the ICRCs in it and mark its packets
"[2 of 18]". They accept a UDP checksum that the kernel left to the NIC.`,
		pcapDecodeCommand(), pcapCheckCommand(), pcapVerifyCommand(), pcapLadderCommand(), pcapWiresharkCommand())
}

func pcapDecodeCommand() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print each RoCE packet of a capture on a line",
		Long: `Print each RoCE packet of a capture on a line: number, seconds since the first
frame, addresses, opcode, destination QPN, PSN, flags (A acknowledge request, SE
solicited event, M migration state, F FECN, B BECN), the fields of the extended
headers, payload length, and whether the ICRC is right. Messages of the
connection manager are decoded. The number is that of the frame in the file; the
packets of a super-packet have the same number. Marks in brackets name what differs
from the packets on the wire.

Exits with 0 if it can read the file, even if packets are wrong. "rocectl pcap check"
exits with 1 if packets are wrong.`,
		Example: `  rocectl pcap decode rping.pcap
  rocectl pcap decode --json rping.pcap | jq 'select(.ack == "RNR 640µs")'`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			print := dissect.LinePrinter(c.OutOrStdout())
			if asJSON {
				enc := encoder(c.OutOrStdout())
				print = func(p *dissect.Packet) error { return enc.Encode(p.JSON()) }
			}
			return dissect.ReadFile(c.Context(), args[0], func(p *dissect.Packet) error {
				if p.Kind == dissect.Other && !all {
					return nil
				}
				return print(p)
			})
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	c.Flags().BoolVar(&all, "all", false, "also print frames that are not RoCE")
	return c
}

// encoder returns an encoder that writes one JSON object a line and does not escape "<", ">" and "&".
func encoder(w io.Writer) *json.Encoder {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return enc
}

func pcapCheckCommand() *cobra.Command {
	var asJSON, quirk bool
	c := &cobra.Command{
		Use:   "check FILE...",
		Short: "Verify the ICRCs of captures and report gaps, retransmissions and NAKs",
		Long: `Verify the ICRC of each RoCE packet of captures, and count what happened to the packets
of each queue pair: retransmissions, gaps in the PSNs, NAKs by kind. It does not judge
whether the ends kept to the standard: "rocectl pcap verify" does.

Exits with 1 if a packet has a wrong ICRC or is malformed, and names such frames. Exits with
1 if a file cannot be read to its end. Losses and NAKs are no failure. A wrong UDP checksum
is no failure if the ICRC is right. A packet that the capture cut short is no failure, and
its headers count. "nothing to verify" means that no packet has a complete ICRC. The ICRC
that rxe of Linux 6.12 computes for a FLUSH counts as wrong, except with --flush-quirk.`,
		Example: `  rocectl pcap check testdata/pcaps/*.pcap
  rocectl pcap check --json rping.pcap | jq .flows`,
		Args: arguments(1, math.MaxInt),
		RunE: func(c *cobra.Command, args []string) error {
			print := func(r *capcheck.Report) error { return r.WriteText(c.OutOrStdout()) }
			if asJSON {
				enc := encoder(c.OutOrStdout())
				print = func(r *capcheck.Report) error { return enc.Encode(r) }
			}
			return checkFiles(c.Context(), args, quirk, print)
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per file")
	c.Flags().BoolVar(&quirk, "flush-quirk", false, "accept the ICRC that rxe computes for a FLUSH")
	return c
}

// checkFiles reports on each file. If a file cannot be read, it continues with the next one.
func checkFiles(ctx context.Context, files []string, quirk bool, print func(*capcheck.Report) error) error {
	var unread []error
	bad := 0
	for _, file := range files {
		r := capcheck.New(file)
		r.FlushQuirk = quirk
		err := r.Read(ctx)
		if err != nil {
			unread = append(unread, err)
		}
		if r.ICRCBad+r.Malformed > 0 {
			bad++
		}
		if err != nil && r.Frames == 0 {
			continue
		}
		if err := print(r); err != nil {
			return err
		}
	}
	if bad > 0 {
		unread = append(unread, fmt.Errorf("%d of %d captures have wrong packets", bad, len(files)))
	}
	return errors.Join(unread...)
}

func pcapLadderCommand() *cobra.Command {
	var sel dissect.Selection
	c := &cobra.Command{
		Use:   "ladder FILE",
		Short: "Draw the packets of a capture as a sequence diagram",
		Long: `Draw the packets of a capture as a sequence diagram with a column for each host and an
arrow for each packet. Retransmissions are marked "again", wrong ICRCs "ICRC BAD", and the
packets of a super-packet "[1 of 18]" and so on.`,
		Example: `  rocectl pcap ladder --from 1 --to 40 rping.pcap
  rocectl pcap ladder --qpn 0x11,0x12 --op READ rping.pcap`,
		Args: arguments(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return drawLadder(c.Context(), c.OutOrStdout(), args[0], &sel)
		},
	}
	f := c.Flags()
	f.IntVar(&sel.From, "from", 1, "number of the first frame")
	f.IntVar(&sel.To, "to", 0, "number of the last frame (0: no limit)")
	f.IntVar(&sel.Limit, "limit", 200, "draw at most this many packets (0: no limit)")
	f.Func("qpn", "only packets to these queue pairs: `QPN,…`", parseQPNs(&sel.QPNs))
	f.StringVar(&sel.Op, "op", "", "only opcodes whose name contains this text, like READ or ATOMIC")
	f.BoolVar(&sel.NoCM, "no-cm", false, "do not draw the messages of the connection manager")
	return c
}

// drawLadder draws the selected packets of a capture. If the capture is damaged, it draws the packets before the damage and returns
// an error.
func drawLadder(ctx context.Context, w io.Writer, file string, sel *dissect.Selection) error {
	d := capcheck.NewDrawing(sel)
	damage := dissect.ReadFile(ctx, file, d.Add)
	if err := ladder.Draw(w, d.Steps); err != nil {
		return err
	}
	if d.Left > 0 {
		if _, err := fmt.Fprintf(w, "… and %d packets more; see --limit, --from and --to\n", d.Left); err != nil {
			return err
		}
	}
	return damage
}

// parseQPNs returns a function that reads queue pair numbers, separated by commas.
func parseQPNs(to *[]bth.QPN) func(string) error {
	return func(s string) error {
		for part := range strings.SplitSeq(s, ",") {
			n, err := strconv.ParseUint(part, 0, 24)
			if err != nil {
				return fmt.Errorf("%q is not a queue pair number like 0x12", part)
			}
			*to = append(*to, bth.QPN(n))
		}
		return nil
	}
}

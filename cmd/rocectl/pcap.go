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

Captures made on a host that sends or receives have some frames as they were before the
card divided them, or after the kernel joined them. All commands show the packets on the
wire: they divide a super-packet by the ICRCs in it, mark its packets "[2 of 18]", and do
not complain of a UDP checksum that was left to the card.`,
		pcapDecodeCommand(), pcapCheckCommand(), pcapVerifyCommand(), pcapLadderCommand(), pcapWiresharkCommand())
}

func pcapDecodeCommand() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print every RoCE packet of a capture on a line",
		Long: `Print every RoCE packet of a capture on a line: number, seconds since the first
frame, addresses, opcode, destination QPN, PSN, flags (A acknowledge request, SE
solicited event, M migration state, F FECN, B BECN), the fields of the extended
headers, payload length, and whether the ICRC is right. Messages of the
connection manager are decoded. The number is that of the frame in the file; the
packets of a super-packet share it. Marks in brackets say what was not as on the wire.

Exits with 0 if it can read the file. "rocectl pcap check" exits with 1 if packets are
wrong.`,
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

// encoder returns an encoder of JSON objects, one a line, that leaves "<", ">" and "&" as they are.
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
		Long: `Verify the ICRC of every RoCE packet of captures, and report what happened to the
packets of each queue pair: retransmissions, gaps in the PSNs, NAKs by kind. It counts and does not judge: whether
the ends kept to the standard says "rocectl pcap verify".

Exits with 1 if a packet has a wrong ICRC or is malformed, and names such frames, and if a
file cannot be read to its end. Losses and NAKs are reported, but are no failure. Neither
is a wrong UDP checksum where the ICRC is right, nor a packet that the capture cut short;
its headers count. "nothing to verify" means that no packet has a whole ICRC. The ICRC
that rxe of Linux 6.12 gives a FLUSH is wrong, except with --flush-quirk.`,
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
	c.Flags().BoolVar(&quirk, "flush-quirk", false, "accept the ICRC that rxe gives a FLUSH")
	return c
}

// checkFiles reports on every file, even after one that cannot be read.
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
		Long: `Draw the packets of a capture as a sequence diagram: a column per host, an arrow
per packet. Retransmissions are marked "again", wrong ICRCs "ICRC BAD", the packets of a
super-packet "[1 of 18]" and so on.`,
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
	f.IntVar(&sel.Limit, "limit", 200, "most packets drawn (0: no limit)")
	f.Func("qpn", "only packets to these queue pairs: `QPN,…`", parseQPNs(&sel.QPNs))
	f.StringVar(&sel.Op, "op", "", "only opcodes whose name contains this, like READ or ATOMIC")
	f.BoolVar(&sel.NoCM, "no-cm", false, "without the messages of the connection manager")
	return c
}

// drawLadder draws the selected packets of a capture. Of a damaged one it draws those before the
// damage.
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

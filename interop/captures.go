//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// Two programs check the captures of rocectl: `rocectl pcap check` after each case, and
// tshark after a batch of cases, because tshark takes longer to start than to read a capture.

// capturesOfBatch is how many captures tshark reads at a time.
const capturesOfBatch = 32

// tsharkUsual is how long tshark takes for a batch.
const tsharkUsual = 2 * time.Second

// tshark is the command without heuristics for payload. By the first bytes of a payload tshark
// could take it for RPC over RDMA, Ethernet or Fibre Channel over InfiniBand, and report it as
// truncated.
var tshark = []string{"tshark", "-o", "infiniband.identify_payload:FALSE",
	"--disable-protocol", "rpcordma", "--disable-protocol", "infiniband.eoib", "--disable-protocol", "fcoib"}

// packets returns the first packets of a capture that a filter of tshark selects.
func packets(ctx context.Context, capture, filter string) ([]string, error) {
	out, err := proc.Run(ctx, append(slices.Clone(tshark), "-r", capture, "-Y", filter, "-T", "fields", "-e", "frame.number", "-e", "_ws.col.Info")...)
	// As root tshark prints a warning about that on standard error.
	return regexp.MustCompile(`(?m)^\d+\t.*$`).FindAllString(out, 3), err
}

// checkCaptures checks the captures of a case, except for tshark's search for malformed packets.
func (r *caseRun) checkCaptures() error {
	var errs []error
	for _, capture := range r.captures() {
		if r.tool.absent != "" {
			sent, err := packets(r.ctx, capture, "ip.src == "+ourIP4+" && "+r.tool.absent)
			if sent != nil {
				err = errors.Join(err, fmt.Errorf("rocectl has sent what it should not: %s", strings.Join(sent, "; ")))
			}
			errs = append(errs, err)
		}
		_, err := proc.Run(r.ctx, r.bed.o.rocectl, "pcap", "check", capture)
		errs = append(errs, err)
	}
	if r.tool.present != "" {
		from := "ip.src == "
		ends := []string{ourIP4, guestIP4}
		if r.v6 {
			from, ends = "ipv6.src == ", []string{ourIP6, guestIP6}
		}
		for _, end := range ends {
			errs = append(errs, r.sent(from+end+" && "+r.tool.present))
		}
	}
	return errors.Join(errs...)
}

// sent checks that the captures have packets that match a filter of tshark.
func (r *caseRun) sent(filter string) error {
	for _, capture := range r.captures() {
		if sent, err := packets(r.ctx, capture, filter); sent != nil || err != nil {
			return err
		}
	}
	return fmt.Errorf("no packet was sent with %s", filter)
}

func (r *caseRun) captures() (files []string) {
	for _, s := range r.procs {
		if s.capture != "" && !s.cut {
			files = append(files, s.capture)
		}
	}
	return files
}

func (r *caseRun) keepCaptures() error {
	for _, capture := range r.captures() {
		r.bed.kept++
		to := filepath.Join(r.bed.dir, fmt.Sprintf("capture-%d-%s.pcap", r.bed.kept, strings.ReplaceAll(r.name(), "/", "_")))
		if err := os.Link(capture, to); err != nil {
			return err
		}
		r.bed.captures = append(r.bed.captures, to)
	}
	return nil
}

// malformed is a separate case: tshark finds no malformed packet in the captures of the last
// cases, merged into one. If it finds some, it reads each capture separately, because in the merged
// capture the packets of one case may influence how tshark decodes those of another.
func (b *bed) malformed(ctx context.Context) result {
	start := time.Now()
	r := result{kernel: b.kernel, name: fmt.Sprintf("tshark/captures-to-%d", b.kept), usual: tsharkUsual}
	all := filepath.Join(b.dir, "captures.pcapng")
	_, err := proc.Run(ctx, append([]string{"mergecap", "-a", "-w", all}, b.captures...)...)
	var bad []string
	if err == nil {
		bad, err = packets(ctx, all, "_ws.malformed")
	}
	if bad != nil {
		for _, capture := range b.captures {
			bad, e := packets(ctx, capture, "_ws.malformed")
			if bad != nil {
				e = errors.Join(e, fmt.Errorf("malformed packets in %s: %s", capture, strings.Join(bad, "; ")))
			}
			err = errors.Join(err, e)
		}
	}
	os.Remove(all)
	if err == nil {
		for _, capture := range b.captures {
			os.Remove(capture)
		}
	}
	b.captures = nil
	r.err, r.took = err, time.Since(start)
	return r
}

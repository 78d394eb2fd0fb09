//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm"
	"github.com/goroce/roce/link/pcap"
)

// Cases with two guests with rxe and rocectl impair in the path between them; neither end runs this stack. rocectl
// impair either forwards between their two tap devices, or runs on the interface of the first guest while a kernel
// bridge joins the tap devices. The second guest is booted for the first such case.

const (
	secondIP4, secondIP6 = "10.77.0.3", "fd77::3"
	secondTap            = "tap1"

	joint      = "br2"                // the bridge of both tap devices
	guestTrace = "/tmp/impair.pcapng" // in the guest
)

// between is a fault in the path between two guests.
type between struct {
	rules  string   // file in examples/impair, without its extension; empty: the case has one guest
	fired  []uint64 // how often each rule acts; 0: at least once
	naks   int      // the largest number of NAKs for a gap
	repair bool     // the dropped packets arrive later
	brief  bool     // the case runs without -between, too
	inside bool     // rocectl impair runs on the interface of the first guest
}

// file is the rule file.
func (b *between) file(root string) string {
	return filepath.Join(root, "examples", "impair", b.rules+".yaml")
}

// guestFile is the rule file in the guest.
func (b *between) guestFile() string { return "/etc/impair/" + b.rules + ".yaml" }

// betweenCases are the rows of rocectl impair.
func betweenCases() []testCase {
	var all []testCase
	add := func(t *tool, b between) {
		// Dropped packets need the same time limits as a lossy link.
		imp := impairment{name: b.rules, lossy: true}
		all = append(all, testCase{tool: t, linux: server, impair: imp, scenario: scenario{run: (*caseRun).between}, mtu: defaultMTU, between: b})
	}
	once, twice := []uint64{1}, []uint64{1, 1}
	add(writeBW, between{rules: "drop-write-twice", fired: twice, naks: 2, repair: true, brief: true})
	add(writeBW, between{rules: "drop-write", fired: once, naks: 1, repair: true})
	add(writeBW, between{rules: "drop-last", fired: once, naks: 1, repair: true})
	add(writeBW, between{rules: "corrupt", fired: once, naks: 1})
	add(writeBW, between{rules: "reorder", fired: once, naks: 2}) // the late packet closes the gap, and the next packet shows another gap
	add(writeBW, between{rules: "drop-ack", fired: []uint64{0}})
	add(writeBW, between{rules: "ecn", fired: []uint64{0}})
	add(sendBW, between{rules: "drop-send", fired: once, naks: 1, repair: true})
	add(readBW, between{rules: "drop-read-response", fired: once, repair: true})
	add(readBW, between{rules: "drop-read-response-twice", fired: twice, repair: true})
	add(readBW, between{rules: "drop-read-request", fired: once, naks: 1, repair: true})
	add(fetchAdd, between{rules: "duplicate", fired: []uint64{0}})
	add(rping, between{rules: "drop-last", fired: once, naks: 1, repair: true})
	add(rping, between{rules: "drop-read-response", fired: once, repair: true})
	add(rping, between{rules: "duplicate", fired: []uint64{0}})
	// On the interface of the guest. The dropped packets are incoming with rping, whose server READs, and outgoing with
	// ib_read_bw. An emulated guest is too slow for the packets of ib_write_bw, and loses some itself.
	add(rping, between{rules: "drop-read-response", fired: once, repair: true, brief: true, inside: true})
	add(readBW, between{rules: "drop-read-response", fired: once, repair: true, inside: true})
	return all
}

// boots is how often the second guest is booted at most: on a busy machine an emulated kernel may find that its timer
// does not work, and panic.
const boots = 3

// secondGuest returns the guest at the second tap device. It boots the guest if it is not running.
func (b *bed) secondGuest(ctx context.Context) (*guest, error) {
	if b.second != nil {
		if _, why := b.second.vm.Gone(); why == nil {
			return b.second, nil
		}
		b.second.vm.Close()
		b.second = nil
	}
	if !b.secondTap {
		if err := b.ns.IP(ctx, "tuntap add dev "+secondTap+" mode tap", "link set "+secondTap+" addrgenmode none up"); err != nil {
			return nil, err
		}
		b.secondTap = true
	}
	limited, stop := context.WithTimeout(ctx, bootLimit)
	defer stop()
	var err error
	for range boots {
		if b.second, err = b.boot(limited, "second", addresses{secondIP4, secondIP6}, vm.Config{Tap: secondTap, MAC: "52:54:00:77:00:03"}); err == nil {
			return b.second, nil
		}
	}
	return nil, fmt.Errorf("the second guest: %w", err)
}

// between runs a transfer with rocectl impair in the path, and checks its report.
func (r *caseRun) between() error {
	other, ok := r.sides[client].(*guest)
	if !ok {
		return errors.New("the case is not one of two guests")
	}
	if err := other.prepare(r.ctx, r.testCase); err != nil {
		return err
	}
	trace := filepath.Join(r.dir, "impair.pcapng")
	start := r.startImpair
	if r.testCase.between.inside {
		start = r.startInside
		apart, err := r.bed.join(r.ctx)
		if err != nil {
			return err
		}
		defer apart()
	}
	bridge, err := start(trace)
	if err != nil {
		return err
	}
	defer bridge.Signal(syscall.SIGKILL)
	if _, err := other.vm.Run(r.ctx, "ping", "-c", "1", "-w", "10", r.sides[server].addr(false)); err != nil {
		return err
	}
	watch, err := r.startTop()
	if err != nil {
		return err
	}
	defer watch.Signal(syscall.SIGKILL)
	if err := r.transfer(); err != nil {
		return err
	}
	if err := r.interrupt("rocectl impair", bridge); err != nil {
		return err
	}
	if err := r.interrupt("rocectl top", watch); err != nil {
		return err
	}
	if err := r.judgeImpair(bridge.Output()); err != nil {
		return err
	}
	if err := r.judgeTop(watch.Output()); err != nil {
		return err
	}
	if r.testCase.between.inside {
		text, err := r.bed.linux.vm.Run(r.ctx, "cat", guestTrace)
		if err == nil {
			err = os.WriteFile(trace, []byte(text), 0o644)
		}
		if err != nil {
			return err
		}
	}
	if err := r.verify(trace); err != nil {
		return err
	}
	return r.judgeTrace(trace)
}

// interrupt ends a command as Ctrl-C does.
func (r *caseRun) interrupt(name string, p *proc.Proc) error {
	p.Signal(syscall.SIGINT)
	ctx, stop := context.WithTimeout(r.ctx, 10*time.Second)
	defer stop()
	if _, err := p.Finish(ctx); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// verify checks the packets of both kernels with rocectl pcap verify. The bridge has lost no packet, so the trace is
// complete.
func (r *caseRun) verify(trace string) error {
	if _, err := proc.Run(r.ctx, r.bed.o.rocectl, "pcap", "verify", "--complete", trace); err != nil {
		return fmt.Errorf("rocectl pcap verify: %w", err)
	}
	return nil
}

// startTop starts rocectl top on the tap device of the first guest.
func (r *caseRun) startTop() (*proc.Proc, error) {
	b := r.bed
	p, err := proc.Start(r.ctx, b.ns.Argv(b.o.rocectl, "top", "--json", "--interval", "200ms", b.peer.tap)...)
	return r.prints(p, b.peer, err, sampled)
}

// judgeTop checks that rocectl top has counted packets of a connection between the two guests.
func (r *caseRun) judgeTop(output string) error {
	var most uint64
	for line := range strings.Lines(output) {
		var sample struct {
			Connections []struct {
				Local, Peer struct{ Address string }
				Total       struct{ Sent, Received uint64 }
			}
		}
		if json.Unmarshal([]byte(line), &sample) != nil {
			continue // the interrupt may have cut the last line
		}
		for _, c := range sample.Connections {
			if ends := []string{c.Local.Address, c.Peer.Address}; slices.Contains(ends, r.bed.linux.ip4) && slices.Contains(ends, secondIP4) {
				most = max(most, c.Total.Sent+c.Total.Received)
			}
		}
	}
	if most == 0 {
		return fmt.Errorf("rocectl top has seen no packet between the guests:\n%s", output)
	}
	r.notes = append(r.notes, fmt.Sprintf("rocectl top counted %d packets", most))
	return nil
}

// join joins both tap devices by a bridge; apart removes it.
func (b *bed) join(ctx context.Context) (apart func(), err error) {
	apart = func() { b.ns.IP(context.WithoutCancel(ctx), "link del "+joint) }
	if err = b.ns.IP(ctx, "link add "+joint+" type bridge mcast_snooping 0", "link set "+joint+" addrgenmode none up",
		"link set "+b.peer.tap+" master "+joint, "link set "+secondTap+" master "+joint); err != nil {
		apart()
	}
	return apart, err
}

// What rocectl impair prints when it forwards, and rocectl top in each sample.
var (
	forwarding = regexp.MustCompile(`(?m)^forwarding between `)
	sampled    = regexp.MustCompile(`"connections"`)
)

// startImpair starts the command between the tap devices, startInside in the interface of the guest.
func (r *caseRun) startImpair(trace string) (*proc.Proc, error) {
	b := r.bed
	p, err := proc.Start(r.ctx, b.ns.Argv(b.o.rocectl, "impair", "--json", "--trace", trace, "--rules", r.testCase.between.file(b.o.root), b.peer.tap, secondTap)...)
	return r.prints(p, b.peer, err, forwarding)
}

func (r *caseRun) startInside(string) (*proc.Proc, error) {
	g := r.bed.linux
	if _, err := g.vm.Run(r.ctx, "modprobe", "tun"); err != nil {
		return nil, err
	}
	p, err := g.vm.Start(r.limit(), "rocectl", "impair", "--json", "--trace", guestTrace, "--rules", r.testCase.between.guestFile(), "eth0")
	return r.prints(p, g, err, forwarding)
}

// prints waits until a command, which was started unless err is not nil, prints a line that shows that it works.
func (r *caseRun) prints(p *proc.Proc, side endpoint, err error, line *regexp.Regexp) (*proc.Proc, error) {
	if err != nil {
		return nil, err
	}
	r.procs = append(r.procs, &started{Proc: p, side: side})
	ctx, stop := context.WithTimeout(r.ctx, 20*time.Second)
	defer stop()
	return p, p.WaitFor(ctx, line)
}

// judgeImpair checks the counters: each rule has acted as often as expected, and rocectl impair has lost no other
// packet.
func (r *caseRun) judgeImpair(output string) error {
	type side struct{ Received, Overrun, Unsent, Unusable uint64 }
	var report struct {
		A, B        side
		Rules       []struct{ Fired uint64 }
		Connections int
	}
	at := strings.LastIndex(output, "\n{")
	if at < 0 {
		return fmt.Errorf("rocectl impair has printed no counters: %s", output)
	}
	if err := json.NewDecoder(strings.NewReader(output[at:])).Decode(&report); err != nil {
		return fmt.Errorf("the counters of rocectl impair: %w", err)
	}
	for i, want := range r.testCase.between.fired {
		if got := report.Rules[i].Fired; want != 0 && got != want || got == 0 {
			return fmt.Errorf("rule %d of %s acted %d times, want %d (0: at least once)", i+1, r.testCase.between.rules, got, want)
		}
	}
	for _, s := range []side{report.A, report.B} {
		if s.Received == 0 || s.Overrun+s.Unsent+s.Unusable != 0 {
			return fmt.Errorf("rocectl impair received %d frames at an interface, and lost frames not by a rule: %d overrun, %d unsent, %d unusable", s.Received, s.Overrun, s.Unsent, s.Unusable)
		}
	}
	if report.Connections == 0 {
		return errors.New("rocectl impair has seen no connection")
	}
	return nil
}

// judgeTrace checks in the trace that the ends have sent the dropped packets again.
func (r *caseRun) judgeTrace(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	in, err := pcap.NewReader(f)
	if err != nil {
		return err
	}
	type packet struct {
		dst bth.GID
		op  bth.Opcode
		qpn bth.QPN
		psn bth.PSN
	}
	missing := make(map[packet]bool)
	naks := 0
	var p frame.Packet
	for {
		rec, err := in.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
		if p.Parse(rec.Data, frame.LayoutEthernet) != nil {
			continue
		}
		key := packet{p.Dst, p.Op, p.DestQPN(), p.PSN()}
		if p.Info.Flags&bth.Read != 0 && p.Info.Flags&bth.Response != 0 {
			key.op = bth.RCReadResponseMiddle // a repeated READ may begin with FIRST at a PSN that was MIDDLE before
		}
		switch {
		case rec.Direction == pcap.Out:
			delete(missing, key)
			if p.Op == bth.RCAck && p.Syndrome() == bth.NAKSequence {
				naks++
			}
		case strings.Contains(rec.Comment, " drop "):
			missing[key] = true
		}
	}
	if r.testCase.between.repair && len(missing) > 0 {
		return fmt.Errorf("%d dropped packets were never repeated", len(missing))
	}
	if most := r.testCase.between.naks; most > 0 && naks > most {
		return fmt.Errorf("%d NAKs for a gap, want at most %d", naks, most)
	}
	r.notes = append(r.notes, fmt.Sprintf("%d NAKs for a gap", naks))
	return nil
}

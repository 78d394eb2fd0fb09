//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/internal/tools/scripted"
	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/script/library"
)

// plays has the results of the scripts whose peer is a program, on each kernel.
type plays struct {
	scripts []*script.Script
	meter   *progress.Meter

	mu      sync.Mutex
	results []played
}

// played is the result of a script on a kernel.
type played struct {
	kernel string
	*script.Result
}

// newPlays selects scripts by name.
func newPlays(run *regexp.Regexp) *plays {
	p := &plays{}
	for _, s := range library.All() {
		if !s.Controlled() && run.MatchString("script/"+s.Name) {
			p.scripts = append(p.scripts, s)
		}
	}
	return p
}

// The time limit of a script, and the time it usually takes.
const (
	playLimit = 2 * time.Minute
	playUsual = 2 * time.Second
)

// wants reports whether a script runs on a kernel: the last kernel runs all, another one only the scripts in which its
// rxe departs from the expectation.
func (p *plays) wants(kernel string, whole bool, s *script.Script) bool {
	departs, _ := s.Departs(script.Peer{Kind: "rxe", Series: []string{kernel}})
	return whole || departs
}

// run plays the scripts against a guest.
func (p *plays) run(ctx context.Context, b *vmBed, whole bool) {
	for i, s := range p.scripts {
		if ctx.Err() != nil {
			return
		}
		if !p.wants(b.kernel, whole, s) {
			p.meter.Plan(-1, playUsual)
			continue
		}
		end := p.meter.Begin("rxe " + b.kernel + " script/" + s.Name)
		r := b.play(ctx, s, uint16(7300+i))
		end()
		if ctx.Err() != nil {
			return
		}
		p.mu.Lock()
		p.results = append(p.results, played{b.kernel, r})
		p.mu.Unlock()
		word := map[string]string{"pass": "pass", "fail": "FAIL", "skip": "none"}[r.Verdict()]
		var notes []string
		if r.Err != nil {
			var ladder strings.Builder
			r.Ladder(&ladder)
			notes = []string{strings.TrimRight(r.Err.Error()+"\n"+ladder.String(), "\n")}
		}
		p.meter.Step(playUsual, row(word, rxeName(b.kernel), 60, "script/"+s.Name, r.Took, notes...))
	}
}

// play starts the program of a script in the guest and plays the script against it.
func (b *vmBed) play(ctx context.Context, s *script.Script, port uint16) *script.Result {
	fail := func(err error) *script.Result { return &script.Result{Name: s.Name, Err: err} }
	p, err := scripted.ParseProgram(s.Peer)
	if err != nil {
		return fail(err)
	}
	ctx, stop := context.WithTimeout(ctx, playLimit)
	defer stop()
	argv := p.Command(guestAddr, ourAddr, port)
	o := script.Options{Peer: script.Peer{Kind: "rxe", Series: []string{b.kernel}}, Port: port}
	var program *proc.Proc
	start := func() error {
		var err error
		program, err = b.vm.Start(playLimit, argv...)
		return err
	}
	started := make(chan error, 1)
	if p.Client {
		var once sync.Once
		o.Listening = func(netip.AddrPort) { once.Do(func() { started <- start() }) }
	} else {
		if err := start(); err != nil {
			return fail(err)
		}
		w, err := b.vm.Await(time.Minute, int(port), p.TCP)
		if err != nil {
			return fail(err)
		}
		if e, err := w.Wait(ctx); err != nil || !e.OK() {
			return fail(fmt.Errorf("%s does not listen on port %d: %s", strings.Join(argv, " "), port, program.Output()))
		}
	}
	var r *script.Result
	err = b.ns.Do(func() error {
		w, err := scripted.OpenWire(ctx, scripted.WireConfig{Dev: "tap0", Link: "raw", Peer: netip.MustParseAddr(guestAddr), Quiet: quietRXE})
		if err != nil {
			return err
		}
		defer w.Port.Close()
		r = script.Run(ctx, s, w, o)
		return nil
	})
	if err != nil {
		return fail(err)
	}
	if program == nil {
		select {
		case err := <-started:
			if err != nil {
				return fail(err)
			}
		default:
			return r
		}
	}
	program.Signal(syscall.SIGKILL) // the script may have left it in any state
	program.Wait(ctx)
	if r.Err != nil {
		r.Err = fmt.Errorf("%w\n%s printed: %s", r.Err, strings.Join(argv, " "), strconv.Quote(program.Output()))
	}
	return r
}

func (p *plays) failed() (n int) {
	for _, r := range p.results {
		if r.Err != nil {
			n++
		}
	}
	return n
}

func (p *plays) summary(w io.Writer) {
	if len(p.results) == 0 {
		return
	}
	fmt.Fprintf(w, "scripts: %d passed, %d failed\n", len(p.results)-p.failed(), p.failed())
	for _, r := range p.results {
		if r.Err != nil {
			fmt.Fprintf(w, "failed: script/%s, %s\n", r.Name, rxeName(r.kernel))
		}
	}
}

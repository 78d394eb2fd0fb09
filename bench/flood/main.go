//go:build linux

// Command flood measures how a flood affects a working connection. The attacker sends as fast as one core can, from a
// separate network namespace and process, on a processor that the server does not use.
//
//	go run ./bench/flood                     # every attack over every link
//	go run ./bench/flood -quick              # the same, shorter
//	go run ./bench/flood -links udp -run REQ
//
// The server, its client and the attacker are connected to one Ethernet switch (a bridge):
//
//	namespace s                 namespace b             namespace e
//	  server  10.90.0.1  <--->    bridge    <--->  10.90.0.66 attacker
//	  (core 0)                      ^                (core 1)
//	                                +-----> 10.90.0.2 client, namespace c (core 0)
//
// The client sends messages over one connection all the time; the server checks each. The exit
// code is 1 if the server executed a packet of the attacker, used over 64 MiB more memory than before, or kept
// goroutines or descriptors, or if the connection ended or did not recover.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/internal/progress"
	"github.com/goroce/roce/interop/netns"
)

// Limits that decide about the exit code.
const (
	maxMemory = 64 << 20 // bytes more than before
	recovered = 0.7      // of the goodput before

	// The server may keep a few goroutines and descriptors, for caches and the runtime. It must release all
	// others that it made for a stranger within restLimit.
	moreGoroutines, moreDescriptors = 4, 4
	restLimit                       = 15 * time.Second
)

// links are the drivers, with xdp twice: once with one queue of the server's interface, once with two. With one queue
// the attacker's packets and the client's are in the same queue of the kernel before any program sees them.
var links = []string{"udp", "raw", "xdp", "xdp" + ownQueues}

type options struct {
	links    []string
	run      *regexp.Regexp
	flood    time.Duration // of each attack
	measure  time.Duration // before and after it
	recovery time.Duration // within which the connection must recover
	json, md string
	meter    *progress.Meter
}

func main() {
	if role := os.Getenv(roleVariable); role != "" {
		if err := serve(role); err != nil {
			fmt.Fprintf(os.Stderr, "flood: %s: %v\n", role, err)
			os.Exit(1)
		}
		return
	}
	code, err := realMain()
	if err != nil {
		fmt.Fprintln(os.Stderr, "flood:", err)
	}
	os.Exit(code)
}

// usualLinks returns the links of a run without -links: with one processor attacker and client cannot have a queue each.
func usualLinks() []string {
	if cores, err := lab.ChooseCores(); err == nil && cores[0] == cores[1] {
		return slices.DeleteFunc(slices.Clone(links), func(l string) bool { return strings.HasSuffix(l, ownQueues) })
	}
	return links
}

func parse() (*options, error) {
	o := &options{}
	chosen := flag.String("links", strings.Join(usualLinks(), ","), "`drivers` of the server, separated by commas; xdp-queues: xdp, with one queue of the server's interface for\neach processor that sends to it")
	run := flag.String("run", "", "only attacks whose name matches this `regexp`")
	quick := flag.Bool("quick", false, "run every attack for a fraction of a second only")
	flag.DurationVar(&o.flood, "time", 3*time.Second, "how long each attack lasts")
	flag.StringVar(&o.json, "json", "", "write the results to this `file`")
	flag.StringVar(&o.md, "md", "", "write the table to this Markdown `file`")
	flag.Parse()
	if flag.NArg() > 0 {
		return nil, fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	o.measure, o.recovery = time.Second, time.Second
	if *quick { // for busy machines
		o.flood, o.measure, o.recovery = 250*time.Millisecond, 100*time.Millisecond, 10*time.Second
	}
	o.links = strings.Split(*chosen, ",")
	for _, link := range o.links {
		if !slices.Contains(links, link) {
			return nil, fmt.Errorf("-links: %q is not one of %s", link, strings.Join(links, ", "))
		}
	}
	var err error
	if o.run, err = regexp.Compile(*run); err != nil {
		return nil, fmt.Errorf("-run: %w", err)
	}
	if !slices.ContainsFunc(attacks, func(a attack) bool { return o.run.MatchString(a.name) }) {
		return nil, fmt.Errorf("-run: no attack matches %q", *run)
	}
	return o, nil
}

func realMain() (int, error) {
	o, err := parse()
	if err != nil {
		return 2, err
	}
	if os.Geteuid() != 0 {
		return 2, errors.New("root is needed for network namespaces")
	}
	ctx, stop := progress.Context(context.Background(), "flood")
	defer stop()
	netns.Sweep(ctx)
	o.meter = progress.New("flood", os.Stdout)
	for _, a := range attacks {
		if o.run.MatchString(a.name) {
			o.meter.Plan(len(o.links), time.Second)
		}
	}
	var all []row
	failed := false
	for _, link := range o.links {
		rows, err := o.runLink(ctx, link)
		all = append(all, rows...)
		if err != nil {
			failed = true
		}
		if ctx.Err() != nil {
			break
		}
		if err != nil {
			fmt.Fprintf(o.meter, "--- FAIL: flood over %s: %v\n", link, err)
		}
	}
	o.meter.Close(context.Cause(ctx))
	for _, r := range all {
		failed = failed || len(r.Failed) > 0
	}
	fmt.Println()
	os.Stdout.Write(table(all, false))
	if ctx.Err() != nil {
		return 1, nil // only complete runs write the files
	}
	if o.json != "" {
		b, err := json.MarshalIndent(all, "", "  ")
		if err != nil {
			return 1, err
		}
		if err := os.WriteFile(o.json, append(b, '\n'), 0o644); err != nil {
			return 1, err
		}
	}
	if o.md != "" {
		if err := os.WriteFile(o.md, table(all, true), 0o644); err != nil {
			return 1, err
		}
	}
	if failed {
		return 1, nil
	}
	return 0, nil
}

// row is the result of one attack.
type row struct {
	Link     string   `json:"link"`
	Attack   string   `json:"attack"`
	Sent     uint64   `json:"sent"`     // packets of the attacker
	Rate     float64  `json:"rate"`     // packets per second
	Before   Window   `json:"before"`   // of the connection
	During   Window   `json:"during"`   //
	After    Window   `json:"after"`    //
	Ratio    float64  `json:"ratio"`    // of goodput, during to before
	Recovery float64  `json:"recovery"` // seconds until the connection recovered; -1: it did not
	Idle     Usage    `json:"idle"`     // of the server, before
	Peak     Usage    `json:"peak"`     // the highest
	Rest     Usage    `json:"rest"`     // after
	Executed uint64   `json:"executed"` // messages that the client had not sent
	Failed   []string `json:"failed,omitempty"`
}

// runLink runs all attacks against one driver.
func (o *options) runLink(ctx context.Context, link string) (rows []row, err error) {
	var b *testbed
	defer func() {
		if b != nil {
			b.close()
		}
	}()
	for _, a := range attacks {
		if !o.run.MatchString(a.name) {
			continue
		}
		if b == nil { // the previous attack may have broken the testbed
			if b, err = newTestbed(ctx, link); err != nil {
				return rows, err
			}
		}
		end := o.meter.Begin(link + " " + a.name)
		r, err := o.attack(ctx, b, a)
		end()
		if ctx.Err() != nil {
			return rows, ctx.Err()
		}
		if err != nil {
			r.Failed = append(r.Failed, err.Error())
		}
		word := "pass"
		if len(r.Failed) > 0 {
			word = "FAIL"
			b.close()
			b = nil
		}
		rows = append(rows, r)
		o.meter.Step(time.Second, fmt.Sprintf("%s  flood  %-10s %-45s %6.2f Mpps  goodput %3.0f %%  p99 %6.0f → %6.0f µs  %s\n", word, link, a.name, r.Rate/1e6, 100*r.Ratio,
			r.Before.P99, r.During.P99, strings.Join(r.Failed, "; ")))
	}
	return rows, nil
}

// attack measures the connection and the server before, during and after one attack.
func (o *options) attack(ctx context.Context, b *testbed, a attack) (r row, err error) {
	r = row{Link: b.link, Attack: a.name, Recovery: -1}
	rest := func(d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	// measure measures the connection for a while.
	measure := func(d time.Duration) (w Window, err error) {
		if err = call(ctx, b.client, "Window", nil, &w); err == nil {
			if err = rest(d); err == nil {
				err = call(ctx, b.client, "Window", nil, &w)
			}
		}
		return w, err
	}
	if err := call(ctx, b.server, "Usage", nil, &r.Idle); err != nil {
		return r, err
	}
	r.Peak = r.Idle
	if r.Before, err = measure(o.measure); err != nil {
		return r, fmt.Errorf("before: %w", err)
	}
	var target Target
	if err := call(ctx, b.server, "Target", nil, &target); err != nil {
		return r, err
	}
	if err := call(ctx, b.client, "GUID", nil, &target.GUID); err != nil {
		return r, err
	}
	target.Client, target.ServerMAC, target.ClientMAC = clientIP, b.macs[0], b.macs[1]
	done := make(chan error, 1)
	go func() { done <- call(ctx, b.attacker, "Attack", Attack{a.name, o.flood, target}, &r.Sent) }()
	r.During, err = measure(o.flood)
	if err != nil {
		<-done
		return r, fmt.Errorf("during: %w", err)
	}
	var now Usage
	if err := call(ctx, b.server, "Usage", nil, &now); err != nil {
		return r, err
	}
	r.Peak.most(now)
	if err := <-done; err != nil {
		return r, err
	}
	over := time.Now()
	r.Rate = float64(r.Sent) / o.flood.Seconds()
	if r.Before.Goodput > 0 {
		r.Ratio = r.During.Goodput / r.Before.Goodput
	}
	for r.Recovery < 0 && time.Since(over) < o.recovery {
		if r.After, err = measure(min(o.measure, o.recovery/4, 250*time.Millisecond)); err != nil {
			return r, fmt.Errorf("after: %w", err)
		}
		if r.After.Goodput >= recovered*r.Before.Goodput {
			r.Recovery = time.Since(over).Seconds()
		}
	}
	for limit := time.Now().Add(restLimit); ; {
		if err := call(ctx, b.server, "Usage", nil, &r.Rest); err != nil {
			return r, err
		}
		r.Peak.most(r.Rest)
		if r.Rest.Goroutines <= r.Idle.Goroutines+moreGoroutines && r.Rest.Descriptors <= r.Idle.Descriptors+moreDescriptors {
			break
		}
		if time.Now().After(limit) {
			r.Failed = append(r.Failed, fmt.Sprintf("goroutines %d → %d, descriptors %d → %d after %v", r.Idle.Goroutines, r.Rest.Goroutines,
				r.Idle.Descriptors, r.Rest.Descriptors, restLimit))
			break
		}
		if err := rest(100 * time.Millisecond); err != nil {
			return r, err
		}
	}
	// The server's device counts packets of an attack with a body; the kernel gets the others.
	same := a.same
	if same == 0 {
		same = maxSame
	}
	// The server counts a super-packet that finds a queue full as one packet. Over raw the kernel does not count
	// packets that the driver drops early in a flood.
	if met := r.Rest.Met - r.Idle.Met + uint64(same)*(r.Rest.Lost-r.Idle.Lost); a.size > 0 && r.Sent == 0 || a.body != nil && met < r.Sent/2 && (b.link != "raw" || r.Rest.Floods == 0) {
		r.Failed = append(r.Failed, fmt.Sprintf("the server has counted only %d of %d packets", met, r.Sent))
	}
	r.Executed = r.Rest.Strange - r.Idle.Strange
	if r.Executed > 0 {
		r.Failed = append(r.Failed, fmt.Sprintf("%d messages were received that the client had not sent", r.Executed))
	}
	if r.Peak.RSS > r.Idle.RSS+maxMemory {
		r.Failed = append(r.Failed, fmt.Sprintf("%d MiB more memory", (r.Peak.RSS-r.Idle.RSS)>>20))
	}
	if r.Recovery < 0 {
		r.Failed = append(r.Failed, fmt.Sprintf("goodput is %.0f %% of what it was, %v after the attack", 100*r.After.Goodput/max(r.Before.Goodput, 1), o.recovery))
	}
	return r, nil
}

// table renders the rows for a terminal or for Markdown.
func table(rows []row, markdown bool) []byte {
	var b bytes.Buffer
	line := func(cells ...any) {
		if markdown {
			fmt.Fprintf(&b, "| %v | %v | %v | %v | %v | %v | %v | %v | %v | %v |\n", cells...)
		} else {
			fmt.Fprintf(&b, "%-10v %-45v %8v %10v %8v %16v %9v %20v %12v %v\n", cells...)
		}
	}
	line("link", "attack", "Mpps", "packets", "goodput", "p99 µs", "recovery", "MiB", "goroutines", "descriptors")
	if markdown {
		b.WriteString("|---|---|---|---|---|---|---|---|---|---|\n")
	}
	for _, r := range rows {
		line(r.Link, r.Attack, fmt.Sprintf("%.2f", r.Rate/1e6), r.Sent, fmt.Sprintf("%.0f %%", 100*r.Ratio), fmt.Sprintf("%.0f → %.0f", r.Before.P99, r.During.P99),
			fmt.Sprintf("%.2f s", r.Recovery), fmt.Sprintf("%d → %d → %d", r.Idle.RSS>>20, r.Peak.RSS>>20, r.Rest.RSS>>20),
			fmt.Sprintf("%d → %d", r.Idle.Goroutines, r.Rest.Goroutines), fmt.Sprintf("%d → %d", r.Idle.Descriptors, r.Rest.Descriptors))
	}
	return b.Bytes()
}

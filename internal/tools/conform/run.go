package conform

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/verify"
)

// The kinds of peers.
const (
	PeerServe    = "serve"    // rocectl conform --serve
	PeerPerftest = "perftest" // perftest's servers
	PeerRping    = "rping"    // rping -s -P
)

// Peers lists the kinds of peers.
var Peers = []string{PeerServe, PeerPerftest, PeerRping}

// Config configures a test.
type Config struct {
	Peer     string     // one of Peers; empty: PeerServe
	Host     netip.Addr // address of the peer
	Port     uint16     // of the control connection, of the first server of perftest, or of rping; 0: DefaultPort
	PeerArgs []string   // more arguments of the commands that start the peer
	Open     Open
	Tester   string           // name and version of the tester
	MTU      int              // path MTU; 0: the largest that both ends support
	Only     *regexp.Regexp   // run the steps whose names match; nil: all
	Limit    time.Duration    // the longest time of a step; 0: half a minute
	Wait     time.Duration    // how long to wait for a server that does not listen yet
	Rules    []*impair.File   // more experiments
	Scripts  []*script.Script // scripts in addition to those of the library
	Wire     OpenWire         // nil: no scripts are played
	Quiet    time.Duration    // script.Wire.Quiet; 0: 40 ms
	Kind     string           // the kind of peer for scripts: "us", "rxe-6.12", "adapter"; empty: "us" if the peer says so, else "adapter"
	Captures string           // folder for the packets of each step; empty: they are not saved
	Strict   bool             // known departures count as failures
	CNP      time.Duration    // least time between two CNPs; 0: any time is permitted
	CNPScope verify.Scope     // scope of CNP; empty: a queue pair
	Stepped  func(StepResult) // called after each step; may be nil
}

const defaultLimit = 30 * time.Second

// complete checks the configuration and sets the defaults.
func (c *Config) complete() error {
	if c.Peer == "" {
		c.Peer = PeerServe
	}
	if err := usage.OneOf("--peer", c.Peer, Peers...); err != nil {
		return err
	}
	if c.Port == 0 {
		c.Port = map[string]uint16{PeerServe: DefaultPort, PeerPerftest: perftestPort, PeerRping: rpingPort}[c.Peer]
	}
	if c.Quiet == 0 {
		c.Quiet = quiet
	}
	if c.Kind != "" {
		if _, err := script.ParsePeer(c.Kind); err != nil {
			return usage.Errorf("--kind: %v", err)
		}
	}
	if c.Limit == 0 {
		c.Limit = defaultLimit
	}
	if c.MTU != 0 && dissect.MTUOf(c.MTU) == 0 {
		return usage.Errorf("--mtu %d: want 256, 512, 1024, 2048 or 4096", c.MTU)
	}
	if !c.Host.IsValid() {
		return usage.Errorf("the address of the peer is missing")
	}
	return nil
}

// The ports of perftest's first server, and of rping.
const (
	perftestPort = 18600
	rpingPort    = 7174
)

func (c *Config) peer() peer {
	switch c.Peer {
	case PeerPerftest:
		return &perftestPeer{cfg: c}
	case PeerRping:
		return &rpingPeer{cfg: c}
	}
	return &servingPeer{cfg: c, addr: c.control()}
}

// Commands returns the commands that have to run on the peer's host, one for each element: the programs of the steps in their order, or
// rocectl conform --serve. If c.MTU is 0, it opens the tester's device to find out the path MTU.
func Commands(ctx context.Context, c Config) ([]string, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	p := c.peer()
	if c.Peer == PeerServe {
		return []string{fmt.Sprintf("rocectl conform --serve --port %d", c.Port)}, nil
	}
	if _, err := identify(ctx, p, &c); err != nil {
		return nil, err
	}
	steps, err := c.steps(p)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, s := range steps {
		if len(list) == 0 || list[len(list)-1] != s.server {
			list = append(list, s.server)
		}
	}
	return list, nil
}

// steps returns the steps that are possible with a peer and that were chosen.
func (c *Config) steps(p peer) ([]step, error) {
	steps, err := p.plan()
	if err != nil {
		return nil, err
	}
	steps = append(steps, scriptSteps(c, c.Port+uint16(len(steps)))...)
	return slices.DeleteFunc(steps, func(s step) bool { return c.Only != nil && !c.Only.MatchString(s.name) }), nil
}

// identify asks the peer for its identity, within a limit.
func identify(ctx context.Context, p peer, c *Config) (Identity, error) {
	limit := c.Limit + c.Wait
	ctx, stop := context.WithTimeoutCause(ctx, limit, &LimitError{limit})
	defer stop()
	return p.identify(ctx)
}

// List returns the steps with a kind of peer. Their results have only the name, the description and the command of the peer's end.
func List(c Config) ([]StepResult, error) {
	c.Host = netip.IPv6Unspecified()
	if err := c.complete(); err != nil {
		return nil, err
	}
	c.MTU = max(c.MTU, 1024)
	c.Wire = func(context.Context, time.Duration) (*script.Wire, error) { return nil, nil } // so that scripts are listed
	p := c.peer()
	switch p := p.(type) {
	case *servingPeer:
		p.mtu, p.cm = c.MTU, netip.AddrPortFrom(c.Host, c.Port)
	case *perftestPeer:
		p.mtu = c.MTU
	case *rpingPeer:
		p.mtu = c.MTU
	}
	steps, err := c.steps(p)
	if err != nil {
		return nil, err
	}
	var list []StepResult
	for _, s := range steps {
		list = append(list, StepResult{Section: s.section, Name: s.name, About: s.about, Server: s.server})
	}
	return list, nil
}

// tooManyGone is the number of successive steps without an answer of the peer after which the test ends.
const tooManyGone = 3

// Run tests a peer. If the test ends early, Run returns both a card and an error that says why. If the peer was not found, the card is nil.
func Run(ctx context.Context, c Config) (*Card, error) {
	if err := c.complete(); err != nil {
		return nil, err
	}
	p := c.peer()
	began := time.Now()
	id, err := identify(ctx, p, &c)
	if err != nil {
		return nil, err
	}
	steps, err := c.steps(p)
	if err != nil {
		return nil, err
	}
	if len(steps) == 0 {
		return nil, usage.Errorf("--only %v: no step has such a name; --list shows them", c.Only)
	}
	r := &runner{cfg: &c, card: &Card{Tester: c.Tester, Began: began, Peer: id, Strict: c.Strict}}
	var ended error
	gone := 0
	for i := range steps {
		st := &steps[i]
		if ended == nil && ctx.Err() != nil {
			ended = context.Cause(ctx)
		}
		if ended != nil {
			r.add(&StepResult{Section: st.section, Name: st.name, About: st.about, Status: Unknown, Why: []string{"not run: " + ended.Error()}})
			continue
		}
		res, err := r.step(ctx, st)
		_, lost := errors.AsType[*GoneError](err)
		if lost = lost || errors.Is(err, context.DeadlineExceeded); lost {
			if oerr := r.ownDevice(); oerr != nil { // the tester's device is gone, not the peer
				err, res.Status, res.Why = oerr, Unknown, append(res.Why, oerr.Error())
			}
		}
		r.add(res)
		var own *DeviceError
		switch {
		case errors.As(err, &own):
			ended = err
		case lost:
			if gone++; gone == tooManyGone {
				ended = fmt.Errorf("the peer is gone, or hangs: %d steps in a row: %w", gone, err)
			}
		default:
			gone = 0
		}
	}
	if why := p.unable(); why != "" {
		r.card.Notes = append(r.card.Notes, why)
	}
	if c.Kind == "" && c.Peer != PeerServe && r.hints.likeRxe() && r.card.count(sectionScripts, "") > 0 {
		r.card.Notes = append(r.card.Notes, "The scripts took the peer for an adapter. If it is Linux rxe, give --kind rxe-6.12 or the like: then they know its departures.")
	}
	r.card.Took = time.Since(began)
	r.card.Peer.Hints = r.hints.list()
	r.card.summarize()
	return r.card, ended
}

// ownDevice returns an error if the tester's device cannot be opened any more.
func (r *runner) ownDevice() error {
	s, err := newStage(r.cfg.Open, fault.Config{}, false)
	if err != nil {
		return &DeviceError{err}
	}
	return s.dev.Close()
}

// DeviceError says that the tester's own device cannot be opened or used.
type DeviceError struct{ Err error }

func (e *DeviceError) Error() string { return "the tester's own device: " + e.Err.Error() }

// Unwrap returns the cause.
func (e *DeviceError) Unwrap() error { return e.Err }

// runner is the state of a test.
type runner struct {
	cfg   *Config
	card  *Card
	lossy bool          // the network loses packets by itself
	slow  time.Duration // the longest time that the peer has taken to answer
	hints hints
}

func (r *runner) add(res *StepResult) {
	r.card.Steps = append(r.card.Steps, res)
	if r.cfg.Stepped != nil {
		r.cfg.Stepped(*res)
	}
}

// step runs a step. The error is from the workload, or from the tester's own device.
func (r *runner) step(ctx context.Context, st *step) (*StepResult, error) {
	res := &StepResult{Section: st.section, Name: st.name, About: st.about, Status: Pass, Server: st.server}
	began := time.Now()
	defer func() { res.Took = time.Since(began) }()
	if st.script != nil {
		return res, r.script(ctx, st, res)
	}
	ctx, stop := context.WithTimeoutCause(ctx, r.cfg.Limit, &LimitError{r.cfg.Limit})
	defer stop()
	var before map[string]uint64
	if st.counters != nil {
		var err error
		if before, err = st.counters(ctx); err != nil {
			return res, res.fail(err)
		}
	}
	var faults fault.Config
	if st.file != nil {
		faults = fault.Config{Seed: st.file.Seed, Rules: aimed(st.file.FaultRules(), st.tester)}
	}
	s, err := newStage(r.cfg.Open, faults, st.marks && !st.tester)
	if err != nil {
		res.Status, res.Why = Unknown, []string{err.Error()}
		return res, &DeviceError{err}
	}
	r.card.Driver = s.driver
	err = st.run(ctx, s)
	if cause := context.Cause(ctx); err != nil && cause != nil && errors.Is(err, ctx.Err()) {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	res.Faults = s.fired()
	if err == nil && st.counters != nil {
		res.counters, err = r.compareCounters(ctx, st, s, before)
	}
	drops, lost := s.dev.Counters().Link, s.lost()
	s.dev.Close()
	if drops.RxDrops+drops.RxErrors > 0 {
		r.suffer(fmt.Sprintf("this host dropped %d packets of the peer before the tap saw them: what is missing is no gap of the peer's", drops.RxDrops+drops.RxErrors))
	}
	if jerr := r.judge(st, s, res); jerr != nil {
		return res, res.fail(jerr)
	}
	if err != nil && lost {
		res.Status, res.Why = Unknown, append(res.Why, errInterfaceGone.Error())
		return res, &DeviceError{errInterfaceGone}
	}
	if err != nil {
		records, _ := s.rec.all()
		res.Ladder = draw(records, []int{len(records)}, drawEnd)
		return res, res.fail(err)
	}
	return res, nil
}

// fail sets the result of a step that ended with err, and returns err. An error of the tester's own device is no failure of the peer.
func (res *StepResult) fail(err error) error {
	res.Status, res.Why = Fail, append(res.Why, err.Error())
	if _, own := errors.AsType[*DeviceError](err); own {
		res.Status = Unknown
	}
	return err
}

var errInterfaceGone = errors.New("its interface was removed")

// LimitError says that a step has taken too long.
type LimitError struct{ Limit time.Duration }

func (e *LimitError) Error() string {
	return fmt.Sprintf("the step did not end within %v: the peer hangs, or needs more time (--limit)", e.Limit)
}

// suffer notes that the network or the host loses packets by itself.
func (r *runner) suffer(why string) {
	if !r.lossy {
		r.card.Notes = append(r.card.Notes, why+". Rules that need to know what arrives at the peer are not judged from then on.")
	}
	r.lossy = true
}

// judge judges the packets of a step.
func (r *runner) judge(st *step, s *stage, res *StepResult) error {
	records, over := s.rec.all()
	v := view{conns: s.conns, lossy: r.lossy || over, over: over, udp: s.driver == "udp", strict: r.cfg.Strict, slack: r.slack(), cnpInterval: r.cfg.CNP, cnpScope: r.cfg.CNPScope}
	j, err := judge(records, v)
	if err != nil {
		return err
	}
	if naks := j.situations[sentNAK] + j.situations[gotNAK]; st.file == nil && naks > 0 && !v.lossy {
		r.suffer(fmt.Sprintf("the network between lost %d packets in the step %s, in which nothing was to be lost", naks, st.name))
		v.lossy = true
		if j, err = judge(records, v); err != nil {
			return err
		}
	}
	for _, t := range j.times {
		if answers[t.Kind] {
			r.slow = max(r.slow, t.Time)
		}
	}
	r.hints.see(records)
	res.fill(j, st)
	if over {
		res.unknown("the peer sent more packets than are kept")
	}
	if r.cfg.Captures != "" {
		if res.Capture, err = save(r.cfg.Captures, st.name, records); err != nil {
			return &DeviceError{err}
		}
	}
	return nil
}

// answers are the kinds of times from which slack estimates how long the peer takes to act on a packet.
var answers = map[verify.LatencyKind]bool{verify.AckLatency: true, verify.ReadLatency: true, verify.AtomicLatency: true}

// Bounds of the slack.
const (
	leastSlack = time.Millisecond
	mostSlack  = 200 * time.Millisecond
)

// slack returns how long the peer may take until it acts on a packet, see [verify.Config.Slack].
func (r *runner) slack() time.Duration { return min(max(2*r.slow, leastSlack), mostSlack) }

// fill sets the result of a step from its packets.
func (res *StepResult) fill(j *judged, st *step) {
	res.Packets, res.Findings, res.known, res.samples, res.seen = j.packets, j.findings, j.known, j.times, j.situations
	res.Repeats = j.repeated()
	for i := range res.Findings {
		f := &res.Findings[i]
		if !f.failure() {
			continue
		}
		if f.Severity == verify.Error {
			res.Status = Fail
		} else if res.Status == Pass {
			res.Status = Warn
		}
	}
	if st.file != nil && res.Faults == 0 {
		res.unknown("no packet matched the rules: the fault did not happen")
	}
	if st.needs != "" && j.situations[st.needs] == 0 {
		res.unknown(string(st.needs))
	}
}

// unknown adds a reason why a step has shown nothing. A step that has not failed is then not judged.
func (res *StepResult) unknown(why string) {
	if res.Status == Pass {
		res.Status = Unknown
	}
	res.Why = append(res.Why, why)
}

// repeated describes how often the peer repeated requests, and why.
func (j *judged) repeated() string {
	var s []string
	for _, c := range []struct {
		n    int
		what string
	}{{j.repeats.NAK, "after NAKs"}, {j.repeats.RNR, "after RNR NAKs"}, {j.repeats.Implied, "after later responses"}, {j.repeats.Timeout, "after timeouts"}, {j.repeats.Early, "before the timeout"}} {
		if c.n > 0 {
			s = append(s, fmt.Sprintf("%d %s", c.n, c.what))
		}
	}
	return strings.Join(s, ", ")
}

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce/interop/proc"
)

// caseRun is a running case.
type caseRun struct {
	testCase
	bed    *bed
	ctx    context.Context
	dir    string // logs and captures
	par    params
	second bool        // attempt, because the server was not ready
	sides  [2]endpoint // by role
	procs  []*started
	notes  []string // printed even if the case passes
}

// started is a started command of the case.
type started struct {
	*proc.Proc
	role    role
	side    endpoint
	capture string
	cut     bool // the harness has killed it, so its capture may end anywhere
}

// run runs one case, and leaves nothing of it running.
func (c testCase) run(ctx context.Context, b *bed) (res result) {
	start := time.Now()
	res = result{kernel: b.kernel, name: c.name(), usual: c.usual()}
	dir := filepath.Join(b.dir, strings.ReplaceAll(c.name(), "/", "_"))
	r := &caseRun{testCase: c, bed: b, ctx: ctx, dir: dir}
	defer func() { res.took = time.Since(start) }()
	if res.err = os.MkdirAll(dir, 0o755); res.err != nil {
		return res
	}

	b.port++
	r.sides[c.linux], r.sides[1-c.linux] = b.linux, b.peer
	switch {
	case c.link == zeroCopy:
		r.sides[1-c.linux] = b.card
	case c.link == zeroCopyHost:
		r.sides[c.linux], r.sides[1-c.linux] = b.peer, b.card
	case c.between.rules != "":
		if r.sides[1-c.linux], res.err = b.secondGuest(ctx); res.err != nil {
			return res
		}
	case c.program:
		r.sides[1-c.linux] = &programs{b.peer, b.o.libs, b.o.files}
	case c.inGo:
		r.sides[1-c.linux] = &goExamples{&programs{ours: b.peer}, b.o.out}
	}
	port := b.port
	if c.tool.port > 0 {
		port = c.tool.port
	}
	r.par = params{port: port, count: c.tool.count, size: c.tool.size, conns: c.tool.conns, mtu: c.mtu}
	if c.impair.name != clean.name && c.between.rules == "" {
		r.par.count = c.tool.impairedCount
	}
	tap := "tap0"
	if c.onCard() {
		tap = cardTap
	}
	sniffer, err := b.sniff(ctx, tap, filepath.Join(dir, "wire.pcap"))
	if err != nil {
		res.err = err
		return res
	}
	err = b.prepare(ctx, c)
	if err == nil {
		err = c.scenario.run(r)
	}
	err = errors.Join(err, r.killAll())
	sniffer.Signal(syscall.SIGTERM)
	sniffer.Wait(ctx)
	if err == nil {
		err = r.checkCaptures()
	}
	if err == nil {
		err = r.keepCaptures()
	}
	if err != nil && c.onCard() {
		os.WriteFile(filepath.Join(dir, "counters"), []byte(b.card.counters(ctx)), 0o644)
	}
	res.log, res.notes = r.transcript(), r.notes
	os.WriteFile(filepath.Join(dir, "log"), []byte(res.log), 0o644)
	res.err = err
	if err == nil && !b.o.keep {
		os.RemoveAll(dir)
	}
	return res
}

// sniff starts tcpdump on a tap.
func (b *bed) sniff(ctx context.Context, tap, file string) (*proc.Proc, error) {
	p, err := proc.Start(ctx, b.ns.Argv("tcpdump", "-i", tap, "-Z", "root", "--immediate-mode", "-U", "-s", "0", "-w", file)...)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	return p, p.WaitFor(ctx, regexp.MustCompile("listening on"))
}

// limit is how long a command of this case may take.
func (r *caseRun) limit() time.Duration {
	switch {
	case r.scenario.limit > 0:
		return r.scenario.limit
	case r.impair.name == clean.name:
		return cleanLimit
	}
	return impairedLimit
}

// start starts the tool in a role with the case's parameters.
func (r *caseRun) start(as role, p params) (*started, error) {
	side := r.sides[as]
	v6 := r.v6 && !r.tool.oob
	p.self, p.peer = side.addr(v6), r.sides[1-as].addr(v6)
	s := &started{role: as, side: side}
	if _, ok := side.(*guest); !ok && r.link != inPlace && side != endpoint(r.bed.card) && !r.inGo {
		s.capture = filepath.Join(r.dir, fmt.Sprintf("rocectl-%d.pcap", len(r.procs)))
	}
	cmd := command{tool: r.tool, role: as, v6: r.v6, args: p.expand(r.tool.args[as])}
	var err error
	if s.Proc, err = side.start(r.ctx, cmd, s.capture, r.limit()); err != nil {
		return nil, err
	}
	r.procs = append(r.procs, s)
	return s, nil
}

// listen starts the server and waits until it can be connected to.
func (r *caseRun) listen(p params) (*started, error) {
	s, err := r.start(server, p)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithTimeout(r.ctx, cleanLimit)
	defer stop()
	return s, s.side.listening(ctx, s.Proc, r.tool, p.port)
}

// wait waits for a command to end by itself.
func (r *caseRun) wait(s *started) (proc.Exit, error) {
	ctx, stop := context.WithTimeout(r.ctx, r.limit()+10*time.Second)
	defer stop()
	return s.Wait(ctx)
}

// succeeded waits for a command and checks that it was successful.
func (r *caseRun) succeeded(s *started) error {
	e, err := r.wait(s)
	if err != nil {
		return err
	}
	if err := s.Failed(e); err != nil && !r.ownMistake(s) {
		return fmt.Errorf("%s: %w", s.side.label(), err)
	}
	if re := r.tool.good[s.role]; s.side.linux() && !re.MatchString(s.Output()) {
		return fmt.Errorf("%s: %s: exit 0, but its output lacks %q", s.side.label(), s.Line, re)
	}
	if s.side == endpoint(r.bed.card) && strings.Contains(s.Output(), "no zero copy") {
		return fmt.Errorf("%s: %s: the card has no zero copy", s.side.label(), s.Line)
	}
	if r.link == inPlace && !s.side.linux() && !sentInPlace.MatchString(s.Output()) {
		return fmt.Errorf("%s: %s: no packet was sent in place", s.side.label(), s.Line)
	}
	return nil
}

// peerFailed adds to the failure of a command what its peer failed with, if that has ended, too. The
// peer's failure is often the cause.
func (r *caseRun) peerFailed(err error, peer *started) error {
	if peer.Running() {
		return err
	}
	e, waitErr := r.wait(peer)
	if waitErr != nil {
		return err
	}
	if failed := peer.Failed(e); failed != nil {
		return fmt.Errorf("%w\n%s: %w", err, peer.side.label(), failed)
	}
	return err
}

// sentInPlace is a counter of rocectl that is not zero.
var sentInPlace = regexp.MustCompile(`(?m)^link_tx_in_place +\d`)

// ownMistake reports whether rdma-core's program has failed by its known bug, after all data was
// exchanged.
func (r *caseRun) ownMistake(s *started) bool {
	out := s.Output()
	return s.side.linux() && r.tool.knownBug != nil && r.tool.knownBug.MatchString(out) &&
		r.tool.lastLine(r.par.count).MatchString(out)
}

// failed waits for a command and checks that it ended by itself with an error
// that it has printed.
func (r *caseRun) failed(s *started, says *regexp.Regexp) error {
	e, err := r.wait(s)
	switch {
	case err != nil:
		return err
	case e.TimedOut || e.Signal != "" || e.Err != nil:
		return fmt.Errorf("%s: %s: should have ended with an error by itself, but: %v", s.side.label(), s.Line, e)
	case e.Code == 0 && !(s.side.linux() && says != nil):
		// Some of rdma-core's programs print an error, but exit with 0.
		return fmt.Errorf("%s: %s: should have failed, but: exit 0", s.side.label(), s.Line)
	case says != nil && !says.MatchString(s.Output()):
		return fmt.Errorf("%s: %s: failed, but its output lacks %q", s.side.label(), s.Line, says)
	}
	return nil
}

// transfer starts both sides and checks that both end with success.
func (r *caseRun) transfer() error {
	srv, err := r.listen(r.par)
	if err != nil {
		return err
	}
	cl, err := r.start(client, r.par)
	if err != nil {
		return err
	}
	if cl, err = r.again(cl); err != nil {
		return err
	}
	if !r.second && r.unready(srv, cl) {
		r.second = true
		if err := r.killAll(); err != nil {
			return err
		}
		r.notes = append(r.notes, "second attempt: the server had not set its options")
		return r.transfer()
	}
	early := r.impair.lossy && r.tool.exitsEarly
	if early && srv.side.linux() && r.tool.lastLine == nil {
		return r.oneLeaves(srv, cl)
	}
	if err := r.succeeded(cl); err != nil {
		return r.peerFailed(err, srv)
	}
	if r.tool.endless {
		return nil
	}
	if early && cl.side.linux() {
		return r.abandoned(srv)
	}
	return r.succeeded(srv)
}

// again starts a client again if it has tried to connect before the server listened.
func (r *caseRun) again(cl *started) (*started, error) {
	if r.tool.notYet == nil || !cl.side.linux() {
		return cl, nil
	}
	for range 20 {
		e, err := r.wait(cl)
		if err != nil || e.OK() || !r.tool.notYet.MatchString(cl.Output()) {
			return cl, err
		}
		if cl, err = r.start(client, r.par); err != nil {
			return nil, err
		}
	}
	return cl, nil
}

// unready reports whether a client of ours has failed because the server was not ready.
func (r *caseRun) unready(srv, cl *started) bool {
	if r.tool.unready == nil || !srv.side.linux() {
		return false
	}
	e, err := r.wait(cl)
	return err == nil && !e.OK() && r.tool.unready.MatchString(cl.Output())
}

// oneLeaves checks two of rdma-core's programs, each of which exits as soon as it has all data. If
// the last acknowledgement is lost, the other one repeats its packet: rxe of Linux 6.12 does so for
// ever.
func (r *caseRun) oneLeaves(a, b *started) error {
	first := make(chan *started, 2)
	for _, s := range []*started{a, b} {
		go func() {
			r.wait(s)
			first <- s
		}()
	}
	left, other := <-first, b
	if left == b {
		other = a
	}
	if err := r.succeeded(left); err != nil {
		return err
	}
	return r.abandoned(other)
}

// abandoned checks a program whose peer has exited as soon as it had all data, without a
// confirmation that its last message has arrived. The program may then wait for ever.
func (r *caseRun) abandoned(srv *started) error {
	ctx, stop := context.WithTimeout(r.ctx, 5*time.Second)
	defer stop()
	e, err := srv.Wait(ctx)
	switch {
	case err != nil && r.tool.lastLine != nil:
		return srv.WaitFor(ctx, r.tool.lastLine(r.par.count))
	case err != nil && srv.side.linux():
		return nil
	case err == nil && !e.OK() && r.tool.timeout != nil && r.tool.timeout.MatchString(srv.Output()):
		return nil
	}
	return r.succeeded(srv)
}

// refusal returns a pattern for the output of a client whose connection was refused. Reason 8 is an
// invalid service ID (no listener), 28 a rejection by the application.
func refusal(s *started, reason int) *regexp.Regexp {
	if s.side.linux() {
		return regexp.MustCompile(fmt.Sprintf(`RDMA_CM_EVENT_REJECTED, error:? %d\b|rdma_connect: Connection refused`, reason))
	}
	return regexp.MustCompile(fmt.Sprintf(`(?i)reject.*\b%d\b`, reason))
}

// noListener: the client connects to another port than that of the server, and must report that
// there is no listener.
func (r *caseRun) noListener() error {
	if _, err := r.listen(r.par); err != nil {
		return err
	}
	r.bed.port++
	p := r.par
	p.port = r.bed.port
	cl, err := r.start(client, p)
	if err != nil {
		return err
	}
	return r.failed(cl, refusal(cl, 8))
}

// rejected: the server's application rejects the client. On Linux the server is a stream server,
// which requires its own private data; with rocectl it is one that rejects every client.
func (r *caseRun) rejected() error {
	other := rstream
	if r.linux == client {
		other = refuser
	}
	if err := r.listenAs(other); err != nil {
		return err
	}
	cl, err := r.start(client, r.par)
	if err != nil {
		return err
	}
	if r.tool.datagrams {
		return r.failed(cl, unresolved(2))
	}
	return r.failed(cl, refusal(cl, 28))
}

// serverKilled sends SIGKILL in mid-transfer. For a dead process of rdma-core the kernel
// disconnects; for a dead rocectl nothing does.
func (r *caseRun) serverKilled() error { return r.breakOff(syscall.SIGKILL) }

// serverStopped sends SIGTERM in mid-transfer; rocectl then disconnects.
func (r *caseRun) serverStopped() error { return r.breakOff(syscall.SIGTERM) }

// breakOff sends a signal to the server in mid-transfer; the client must notice the end, and exit.
func (r *caseRun) breakOff(sig syscall.Signal) error {
	p := r.par
	p.count = 1_000_000
	srv, err := r.listen(p)
	if err != nil {
		return err
	}
	cl, err := r.start(client, p)
	if err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(r.ctx, cleanLimit)
	defer stop()
	if err := cl.WaitFor(ctx, r.tool.busy); err != nil {
		return err
	}
	srv.cut = sig == syscall.SIGKILL
	if err := srv.Signal(sig); err != nil {
		return err
	}
	if srv.cut && !srv.side.linux() {
		return r.orphaned(cl)
	}
	if cl.side.linux() {
		return r.heeded(cl)
	}
	return r.failed(cl, nil)
}

// heeded checks a Linux client whose peer has disconnected: it prints that and exits. rping
// sometimes hangs after it has printed it, although no packet is missing; then it must end on a
// signal.
func (r *caseRun) heeded(cl *started) error {
	ctx, stop := context.WithTimeout(r.ctx, 20*time.Second)
	defer stop()
	if err := cl.WaitFor(ctx, r.tool.broken); err != nil {
		return err
	}
	if _, err := cl.Wait(ctx); err == nil {
		return r.failed(cl, r.tool.broken)
	}
	r.notes = append(r.notes, fmt.Sprintf("%s: %s: has noticed the end, but hangs", cl.side.label(), cl.Line))
	return r.terminated(cl)
}

// terminated checks that a command ends on SIGTERM.
func (r *caseRun) terminated(s *started) error {
	if err := s.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	_, err := r.wait(s)
	return err
}

// orphaned checks a Linux client whose peer has died without a disconnect. If the client had
// a request in flight, it ends after its retries. If it was waiting for a message of the server, it
// rightly waits for ever, but must end on a signal.
func (r *caseRun) orphaned(cl *started) error {
	ctx, stop := context.WithTimeout(r.ctx, 5*time.Second)
	defer stop()
	if _, err := cl.Wait(ctx); err == nil {
		return r.failed(cl, r.tool.broken)
	}
	return r.terminated(cl)
}

// unresolved returns a pattern for the output of a client of rdma-core whose request for a UD queue
// pair was refused. Status 1 means that there is no listener, 2 that the application refuses.
func unresolved(status int) *regexp.Regexp {
	return regexp.MustCompile(fmt.Sprintf(`RDMA_CM_EVENT_UNREACHABLE, error: %d\b`, status))
}

// resolve: the client resolves many UD queue pairs and sends no data. The server
// counts repeated requests as new ones, so it must expect more clients than there are.
func (r *caseRun) resolve() error {
	p := r.par
	p.conns, p.count = 500, 0
	if _, err := r.listen(p); err != nil {
		return err
	}
	p.conns = 8
	cl, err := r.start(client, p)
	if err != nil {
		return err
	}
	e, err := r.wait(cl)
	if err == nil {
		err = cl.Failed(e)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", cl.side.label(), err)
	}
	return nil
}

// repeated: the service does not repeat lost messages, so the sender is run again until the
// receiver has as many as it waits for. One run must not be enough, because some of its messages
// are lost.
func (r *caseRun) repeated() error {
	srv, err := r.listen(r.par)
	if err != nil {
		return err
	}
	const most = 10
	for n := 1; n <= most; n++ {
		cl, err := r.start(client, r.par)
		if err != nil {
			return err
		}
		if err := r.succeeded(cl); err != nil {
			return err
		}
		ctx, stop := context.WithTimeout(r.ctx, time.Second)
		_, err = srv.Wait(ctx)
		stop()
		if err != nil {
			continue // it waits for more
		}
		if n == 1 {
			return fmt.Errorf("%s: %s: has received all messages of the first run, so no message was lost", srv.side.label(), srv.Line)
		}
		return r.succeeded(srv)
	}
	return fmt.Errorf("%s: %s: still waits for messages after %d runs of the sender", srv.side.label(), srv.Line, most)
}

// noServer: there is no server, and the client must report that.
func (r *caseRun) noServer() error {
	// The client gets an answer only if there is a device at the address: a server for another
	// service.
	if r.linux == client {
		if err := r.listenAs(ucmatose); err != nil {
			return err
		}
	}
	cl, err := r.start(client, r.par)
	if err != nil {
		return err
	}
	return r.failed(cl, unresolved(1))
}

// listenAs starts the server of another tool.
func (r *caseRun) listenAs(other *tool) error {
	own := r.tool
	r.tool = other
	_, err := r.listen(r.par)
	r.tool = own
	return err
}

// killAll ends the commands that are still running. rocectl must end on SIGINT; if it does not,
// killAll makes it print its goroutines. After an interruption of the whole run killAll does
// nothing: rocectl was killed with the context, and the guest will be.
func (r *caseRun) killAll() error {
	if r.ctx.Err() != nil {
		return nil
	}
	var errs []error
	end := func(s *started, sig syscall.Signal, patience time.Duration) bool {
		if !s.Running() {
			return true
		}
		s.Signal(sig)
		ctx, stop := context.WithTimeout(context.WithoutCancel(r.ctx), patience)
		defer stop()
		_, err := s.Wait(ctx)
		return err == nil
	}
	for _, s := range r.procs {
		if end(s, syscall.SIGINT, 5*time.Second) {
			continue
		}
		s.cut = true
		if !s.side.linux() {
			errs = append(errs, fmt.Errorf("%s: %s: does not end on SIGINT", s.side.label(), s.Line))
			end(s, syscall.SIGQUIT, 2*time.Second)
		}
		end(s, syscall.SIGKILL, 5*time.Second)
	}
	return errors.Join(errs...)
}

const maxLine = 200

// transcript returns the output of the commands of the case.
func (r *caseRun) transcript() string {
	var b strings.Builder
	for _, s := range r.procs {
		end := "still running"
		if !s.Running() {
			e, _ := s.Wait(r.ctx)
			end = e.String()
		}
		fmt.Fprintf(&b, "# %s: %s\n", s.side.label(), s.Line)
		for line := range strings.Lines(s.Output()) {
			if len(line) > maxLine { // rping prints its whole buffer
				line = line[:maxLine] + "…\n"
			}
			b.WriteString(line)
		}
		fmt.Fprintf(&b, "# %s\n", end)
	}
	return b.String()
}

package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"runtime"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
)

// ErrMismatch is the error of a test whose operations left other data in memory, or returned
// other data, than they must.
var ErrMismatch = errors.New("perftest: data mismatch")

// Client connects to a server, does its part of the test and returns what was measured. addr
// is "host:port", of TCP or, with [Config.CM], of the connection manager.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (Result, error) {
	if err := c.check(d); err != nil {
		return Result{}, err
	}
	if c.CM {
		return c.managed(ctx, d, &manager{dev: d, addr: addr}, false)
	}
	tcp, err := oob.Dial(ctx, addr)
	if err != nil {
		return Result{}, err
	}
	return c.meet(ctx, d, overTCP{tcp}, nil, false)
}

// Server waits for one client, serves it, and returns what was measured. It calls listening
// when a client can connect. addr is "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (Result, error) {
	if err := c.check(d); err != nil {
		return Result{}, err
	}
	if c.CM {
		l, err := d.Listen(ctx, addr, roce.ListenConfig{})
		if err != nil {
			return Result{}, err
		}
		defer l.Close()
		listening(l.Addr())
		return c.managed(ctx, d, &manager{dev: d, listen: l}, true)
	}
	tcp, err := oob.Accept(ctx, addr, listening)
	if err != nil {
		return Result{}, err
	}
	return c.meet(ctx, d, overTCP{tcp}, nil, true)
}

// managed is meet with connections by the connection manager.
func (c *Config) managed(ctx context.Context, d *roce.Device, m *manager, server bool) (Result, error) {
	box, err := m.meet(ctx, c)
	if err != nil {
		return Result{}, err
	}
	return c.meet(ctx, d, box, m, server)
}

// meet does what both sides do: they negotiate, make their queue pairs, connect them and run
// the test. m connects the queue pairs; with nil each side connects its own.
func (c *Config) meet(ctx context.Context, d *roce.Device, ctl control, m *manager, server bool) (Result, error) {
	defer ctl.Close()
	conn := io.ReadWriter(ctl)
	if c.Poll && m == nil {
		conn = driven{ctl, d}
	}
	x := &session{ReadWriter: conn, server: server, flags: c.flags(), binary: m != nil}
	t, err := x.negotiate(c.MTU)
	if err != nil {
		return Result{}, err
	}
	s, err := newSide(d, c, t, ctl.Peer(), server)
	if err != nil {
		return Result{}, err
	}
	defer s.Close()
	s.announce()
	if m != nil {
		if err := s.connect(ctx, x, m); err != nil {
			return Result{}, err
		}
	}
	if err := s.introduce(ctx, x, m == nil); err != nil {
		return Result{}, err
	}
	var r Result
	if c.Test.Latency {
		r, err = s.latency(ctx, x, ctl)
	} else {
		r, err = s.bandwidth(ctx, x)
	}
	if err == nil {
		fmt.Fprintln(c.Out, rule)
	}
	return r, err
}

// connect connects the queue pairs by the connection manager. Before and after it the sides
// swap an empty address.
func (s *side) connect(ctx context.Context, x *session, m *manager) error {
	if _, err := x.handshake(Dest{}); err != nil {
		return err
	}
	for _, e := range s.lanes {
		conn, err := m.connect(ctx, e)
		if err != nil {
			return err
		}
		s.Add(conn)
	}
	_, err := x.handshake(Dest{})
	return err
}

// driven is a connection of a side whose device is polled: Read calls Progress while it waits.
type driven struct {
	io.ReadWriter
	dev *roce.Device
}

func (d driven) Read(b []byte) (n int, err error) {
	done := make(chan struct{})
	go func() {
		n, err = d.ReadWriter.Read(b)
		close(done)
	}()
	for {
		select {
		case <-done:
			return n, err
		default:
			d.dev.Progress()
			runtime.Gosched()
		}
	}
}

// once swaps the address of the first queue pair, to synchronise the sides.
func (s *side) once(x *session) error {
	_, err := x.handshake(s.lanes[0].local)
	return err
}

// each swaps the addresses of all queue pairs and returns the peer's.
func (s *side) each(x *session) ([]Dest, error) {
	remote := make([]Dest, len(s.lanes))
	for i, e := range s.lanes {
		var err error
		if remote[i], err = x.handshake(e.local); err != nil {
			return nil, err
		}
	}
	return remote, nil
}

// introduce swaps the addresses of the queue pairs, and connects them if connect is set.
// Latency tests whose messages are not received synchronise before.
func (s *side) introduce(ctx context.Context, x *session, connect bool) error {
	if s.cfg.Test.Latency && !s.cfg.Test.TwoSided {
		if err := s.once(x); err != nil {
			return err
		}
	}
	remote, err := s.each(x)
	if err != nil {
		return err
	}
	for i, e := range s.lanes {
		fmt.Fprintf(s.cfg.Out, " local address:  %v\n remote address: %v\n", e.local, remote[i])
		if !connect {
			e.remote = remote[i]
			continue
		}
		if err := e.connect(ctx, remote[i]); err != nil {
			return err
		}
		if s.cfg.Connected != nil {
			s.cfg.Connected(e.local, remote[i], s.terms.mtu)
		}
	}
	fmt.Fprintln(s.cfg.Out, rule)
	return nil
}

// confirm tells the peer that this side is connected and its memory is initialised: once for
// each queue pair, and once more. Programs that receive messages do it in the other order.
func (s *side) confirm(x *session) error {
	each := func() error {
		_, err := s.each(x)
		return err
	}
	return oob.InOrder(!s.cfg.Test.TwoSided, each, func() error { return s.once(x) })
}

// part has what a side does on each queue pair: send, serve, or both.
type part struct {
	work  []work
	serve []service
}

// parts makes the parts of this side.
func (s *side) parts() (p part, err error) {
	for _, e := range s.lanes {
		if !s.server || s.cfg.Both {
			w, err := s.cfg.Test.work(e, e.remote)
			if err != nil {
				return p, err
			}
			p.work = append(p.work, w)
		}
		if s.server || s.cfg.Both {
			v, err := s.cfg.Test.serve(e)
			if err != nil {
				return p, err
			}
			p.serve = append(p.serve, v)
		}
	}
	return p, nil
}

// bandwidth runs a bandwidth test on either side, once the queue pairs are connected.
func (s *side) bandwidth(ctx context.Context, x *session) (r Result, err error) {
	p, err := s.parts()
	if err != nil {
		return r, err
	}
	if err := s.confirm(x); err != nil {
		return r, err
	}
	if !s.cfg.Test.TwoSided && s.server && !s.cfg.Both {
		return s.exported(x, p)
	}
	fmt.Fprintln(s.cfg.Out, bandwidthHeader(s.cfg.Gbits))
	for _, s.size = range s.cfg.sizes(s.terms.mtu.Bytes()) {
		row, err := s.measure(ctx, x, p)
		if err != nil {
			return r, err
		}
		r.Bandwidth = append(r.Bandwidth, row)
		fmt.Fprintln(s.cfg.Out, row)
	}
	if !s.cfg.Test.TwoSided && !s.cfg.Both {
		if _, err := s.swapReports(x, r.Bandwidth[len(r.Bandwidth)-1]); err != nil {
			return r, err
		}
	}
	if s.cfg.Both {
		// The peer has written everything by now.
		if err := s.verify(p, r.Bandwidth[len(r.Bandwidth)-1]); err != nil {
			return r, err
		}
	}
	return r, x.finish(s.lanes[0].local)
}

func (s *side) measure(ctx context.Context, x *session, p part) (Report, error) {
	c := s.cfg
	t := &traffic{side: s, iters: c.Iters, hold: c.Both && c.Test.TwoSided && s.server}
	for i, w := range p.work {
		if err := w.prepare(ctx); err != nil {
			return Report{}, err
		}
		t.send = append(t.send, &sender{e: s.lanes[i], work: w})
	}
	if c.Test.TwoSided {
		for _, v := range p.serve {
			v := v.(*receives)
			if err := v.begin(); err != nil {
				return Report{}, err
			}
			t.recv = append(t.recv, v)
		}
	}
	// Receives are posted, so the peer may begin.
	if c.Test.TwoSided || c.Both {
		if err := s.once(x); err != nil {
			return Report{}, err
		}
	}
	row, err := t.run(ctx)
	if err != nil {
		return Report{}, err
	}
	for _, w := range p.work {
		if err := w.verify(ctx); err != nil {
			return Report{}, err
		}
	}
	// perftest's order with all sizes: one-sided tests synchronise before the reports, others
	// after them.
	if c.All && c.Both && !c.Test.TwoSided {
		if err := s.once(x); err != nil {
			return Report{}, err
		}
	}
	if c.Both && !(c.Test.TwoSided && c.Duration > 0) {
		theirs, err := x.report(row)
		if err != nil {
			return Report{}, err
		}
		row = row.plus(theirs)
	}
	if c.All && c.Test.TwoSided {
		return row, s.once(x)
	}
	return row, nil
}

// exported runs the server of a one-sided test. It gets the result from the client; with all
// sizes, that of the last size.
func (s *side) exported(x *session, p part) (r Result, err error) {
	sizes := s.cfg.sizes(s.terms.mtu.Bytes())
	s.size = sizes[len(sizes)-1]
	row, err := s.swapReports(x, Report{})
	if err != nil {
		return r, err
	}
	row.gbits = s.cfg.Gbits
	if err := s.verify(p, row); err != nil {
		return r, err
	}
	fmt.Fprintf(s.cfg.Out, "%s\n%s\n", bandwidthHeader(s.cfg.Gbits), row)
	r.Bandwidth = []Report{row}
	return r, x.finish(s.lanes[0].local)
}

// verify checks the memory of every queue pair. The report is about all of them.
func (s *side) verify(p part, r Report) error {
	if !s.cfg.Check || s.cfg.Duration > 0 {
		return nil
	}
	if r.Iters%len(s.lanes) == 0 {
		r.Iters /= len(s.lanes)
	}
	for _, v := range p.serve {
		if err := v.verify(r); err != nil {
			return err
		}
	}
	return nil
}

// swapReports synchronises the sides after a one-sided test, and exchanges their reports.
func (s *side) swapReports(x *session, mine Report) (Report, error) {
	if err := s.once(x); err != nil {
		return Report{}, err
	}
	return x.report(mine)
}

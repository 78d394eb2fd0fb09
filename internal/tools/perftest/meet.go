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

// ErrMismatch is memory that holds something else than the operations must have
// left there, or an operation that has returned something else than was there.
var ErrMismatch = errors.New("perftest: data mismatch")

// Client connects to a server and does its work. addr is "host:port", of TCP or, with
// [Config.CM], of the connection manager.
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

// Server waits for one client ("host:port", host may be empty), serves it, and returns
// what was measured. listening is called when it can be connected to.
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

// meet is what both sides do: they agree, make their queue pairs, connect them, do
// what is theirs, and part. m connects them; nil: they do so themselves.
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
	defer s.close()
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

// connect connects the queue pairs by the connection manager, with nothing said of them
// before and behind.
func (s *side) connect(ctx context.Context, x *session, m *manager) error {
	if _, err := x.handshake(Dest{}); err != nil {
		return err
	}
	for _, e := range s.lanes {
		conn, err := m.connect(ctx, e)
		if err != nil {
			return err
		}
		s.own(conn)
	}
	_, err := x.handshake(Dest{})
	return err
}

// driven is a connection of a side whose device does nothing by itself: while it is
// read from, the device is driven.
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

// once swaps the address of the first queue pair, which means "here I am".
func (s *side) once(x *session) error {
	_, err := x.handshake(s.lanes[0].local)
	return err
}

// each swaps all of them.
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

// introduce is the part of the exchange in which the queue pairs are told, and connected
// unless they are. Latency tests whose messages are not received say before all that
// they are here.
func (s *side) introduce(ctx context.Context, x *session, connect bool) error {
	if s.cfg.Test.Latency && !s.cfg.Test.twoSided {
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
	}
	fmt.Fprintln(s.cfg.Out, rule)
	return nil
}

// confirm tells the peer twice that this side is connected and its memory as it shall
// be: once, and for each queue pair. Programs that receive messages and those that do
// not differ in the order.
func (s *side) confirm(x *session) error {
	steps := [2]func() error{
		func() error {
			_, err := s.each(x)
			return err
		},
		func() error { return s.once(x) },
	}
	first := 0
	if s.cfg.Test.twoSided {
		first = 1
	}
	for i := range steps {
		if err := steps[i^first](); err != nil {
			return err
		}
	}
	return nil
}

// part is what a side has to do for its queue pairs: send, serve, or both.
type part struct {
	work  []work
	serve []service
}

// parts makes them.
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

// bandwidth is what is done, once connected, by either side of a bandwidth test.
func (s *side) bandwidth(ctx context.Context, x *session) (r Result, err error) {
	p, err := s.parts()
	if err != nil {
		return r, err
	}
	if err := s.confirm(x); err != nil {
		return r, err
	}
	if !s.cfg.Test.twoSided && s.server && !s.cfg.Both {
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
	if !s.cfg.Test.twoSided && !s.cfg.Both {
		if _, err := s.swapReports(x, r.Bandwidth[len(r.Bandwidth)-1]); err != nil {
			return r, err
		}
	}
	if s.cfg.Both {
		// What the peer has written is known to be all now.
		if err := s.verify(p, r.Bandwidth[len(r.Bandwidth)-1]); err != nil {
			return r, err
		}
	}
	return r, x.finish(s.lanes[0].local)
}

// measure does one size.
func (s *side) measure(ctx context.Context, x *session, p part) (Report, error) {
	c := s.cfg
	t := &traffic{side: s, iters: c.Iters, hold: c.Both && c.Test.twoSided && s.server}
	for i, w := range p.work {
		if err := w.prepare(ctx); err != nil {
			return Report{}, err
		}
		t.send = append(t.send, &sender{e: s.lanes[i], work: w})
	}
	if c.Test.twoSided {
		for _, v := range p.serve {
			v := v.(*receives)
			if err := v.begin(); err != nil {
				return Report{}, err
			}
			t.recv = append(t.recv, v)
		}
	}
	// Receives are posted, so the peer may begin.
	if c.Test.twoSided || c.Both {
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
	// perftest's order: of all sizes, operations are confirmed before the reports,
	// messages behind them.
	if c.All && c.Both && !c.Test.twoSided {
		if err := s.once(x); err != nil {
			return Report{}, err
		}
	}
	if c.Both && !(c.Test.twoSided && c.Duration > 0) {
		theirs, err := x.report(row)
		if err != nil {
			return Report{}, err
		}
		row = row.plus(theirs)
	}
	if c.All && c.Test.twoSided {
		return row, s.once(x)
	}
	return row, nil
}

// exported is the server of a test that it sees nothing of. Of all sizes it is told of
// the last.
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

// verify has every queue pair's memory looked at. The report is about all of them.
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

// swapReports ends the work of a test whose server sees nothing of it.
func (s *side) swapReports(x *session, mine Report) (Report, error) {
	if err := s.once(x); err != nil {
		return Report{}, err
	}
	return x.report(mine)
}

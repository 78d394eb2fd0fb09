//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/message"
	"github.com/goroce/roce/rsocket"
)

// patience is the time limit for each step. The machine may be suspended for some time.
const patience = 60 * time.Second

// live runs the tests that need a peer in a separate process.
func (s *soak) live(ctx context.Context, driver string) (err error) {
	d, err := open(s.pair[near], driver, false, s.rng.Uint64())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	p, err := startPeer(ctx, s.pair[far], driver)
	if err != nil {
		return err
	}
	defer func() {
		switch {
		case p == nil:
		case err != nil:
			p.Kill()
		default:
			if err = p.Close(); err != nil {
				err = fmt.Errorf("the peer has not ended properly: %w", err)
			}
		}
	}()
	for _, step := range []struct {
		name string
		do   func(context.Context, *roce.Device) error
	}{
		{"stream", s.stream}, {"messages", s.messages}, {"numbered SENDs", s.orderly}, {"link down and up", s.flap}, {"address change", s.readdress},
	} {
		done := s.meter.Begin(driver + " " + step.name)
		err := step.do(ctx, d)
		done()
		if err != nil {
			return fmt.Errorf("%s: %w", step.name, err)
		}
	}
	if err := rest(ctx, p); err != nil {
		return err
	}
	if err := s.killed(ctx, d, p); err != nil {
		p = nil
		return fmt.Errorf("killed peer: %w", err)
	}
	if p, err = startPeer(ctx, s.pair[far], driver); err != nil {
		return err
	}
	if err := s.messages(ctx, d); err != nil {
		return fmt.Errorf("after a killed peer: %w", err)
	}
	return rest(ctx, p)
}

func at(port string) string { return net.JoinHostPort(peerIP, port) }

// data returns n random bytes.
func (s *soak) data(n int) []byte {
	b := make([]byte, n+8)
	for i := 0; i < n; i += 8 {
		binary.NativeEndian.PutUint64(b[i:], s.rng.Uint64())
	}
	return b[:n]
}

// stream sends bytes through a socket and compares them with the bytes that come back.
func (s *soak) stream(ctx context.Context, d *roce.Device) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for range 4 {
		c, err := rsocket.Dial(ctx, d, at(streamPort), rsocket.Config{})
		if err != nil {
			return err
		}
		c.SetDeadline(time.Now().Add(patience))
		sent := s.data(1 + s.rng.IntN(512<<10))
		failed := make(chan error, 1)
		go func() {
			_, err := c.Write(sent)
			failed <- errors.Join(err, c.CloseWrite())
		}()
		got, err := io.ReadAll(c)
		err = errors.Join(err, <-failed, c.Close())
		if err != nil {
			return err
		}
		if !bytes.Equal(got, sent) {
			return fmt.Errorf("%d bytes came back, %d were sent, or the bytes differ", len(got), len(sent))
		}
		s.count.streams.Add(1)
		s.count.connections.Add(1)
		s.count.bytes.Add(int64(len(sent)))
	}
	return nil
}

// messages sends messages, several at a time, and compares them with those that come back.
func (s *soak) messages(ctx context.Context, d *roce.Device) error {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	for range 4 {
		c, err := message.Dial(ctx, d, at(messagePort), message.Config{})
		if err != nil {
			return err
		}
		var all [25][]byte
		for i := range all {
			all[i] = s.data(s.rng.IntN(32 << 10))
		}
		failed := make(chan error, 1)
		go func() {
			var err error
			for i := 0; i < len(all) && err == nil; i++ {
				err = c.Send(ctx, all[i])
			}
			failed <- err
		}()
		room := make([]byte, c.MaxRecv())
		for i, sent := range all {
			n, err := c.Recv(ctx, room)
			if err != nil {
				return err
			}
			if !bytes.Equal(room[:n], sent) {
				return fmt.Errorf("message %d has %d bytes, the one that came back has %d, or other contents", i, len(sent), n)
			}
			s.count.messages.Add(1)
			s.count.bytes.Add(int64(n))
		}
		if err := <-failed; err != nil {
			return err
		}
		if err := c.Close(); err != nil {
			return err
		}
		s.count.connections.Add(1)
	}
	return nil
}

// line is a connection on which numbered messages are sent and come back.
type line struct {
	conn       *roce.Conn
	done       *roce.CQ
	in, out    *roce.MR
	sent, back uint64
	completed  uint64
	free       int
}

func dialLine(ctx context.Context, d *roce.Device, addr string) (*line, error) {
	l := &line{free: numberedDeep}
	var err error
	if l.done, err = d.CreateCQ(4 * numberedDeep); err != nil {
		return nil, err
	}
	l.conn, err = d.Dial(ctx, addr, roce.DialConfig{QPConfig: roce.QPConfig{SendCQ: l.done}, Setup: func(q *roce.QP) (err error) {
		if l.in, err = receives(q); err == nil {
			l.out, err = q.PD().RegMR(make([]byte, numberedDeep*numberedSize), 0)
		}
		return err
	}})
	if err != nil {
		l.done.Close()
	}
	return l, err
}

func (l *line) close() error {
	return errors.Join(l.in.Close(), l.out.Close(), l.conn.Close(), l.done.Close())
}

// number writes message n.
func number(b []byte, n uint64) {
	for i := 0; i < len(b); i += 8 {
		binary.BigEndian.PutUint64(b[i:], n*0x9E3779B97F4A7C15+uint64(i))
	}
}

// run sends messages until over is closed and all messages have come back. It checks that each
// comes back once, in order, and that each send completes once.
func (l *line) run(ctx context.Context, over <-chan struct{}) error {
	want := make([]byte, numberedSize)
	q := l.conn.QP()
	for ended := false; ; {
		select {
		case <-over:
			ended = true
		default:
		}
		for !ended && l.free > 0 && l.sent-l.back < numberedDeep {
			at := int(l.sent%numberedDeep) * numberedSize
			number(l.out.Bytes()[at:][:numberedSize], l.sent)
			if err := q.PostSend(&roce.SendWR{ID: 1000 + l.sent, Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{l.out.SGE(at, numberedSize)}}); err != nil {
				return err
			}
			l.sent++
			l.free--
		}
		if ended && l.back == l.sent && l.completed == l.sent {
			return nil
		}
		wc, err := l.done.Next(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%d messages sent, %d completed, %d came back: %w", l.sent, l.completed, l.back, err)
		case wc.Status != cq.Success:
			return fmt.Errorf("message %d: %w", wc.ID, statusError(wc.Status))
		case !wc.Opcode.Recv():
			if wc.ID != 1000+l.completed {
				return fmt.Errorf("send %d completed, want %d", wc.ID, 1000+l.completed)
			}
			l.completed++
			l.free++
		default:
			got := l.in.Bytes()[int(wc.ID)*numberedSize:][:numberedSize]
			number(want, l.back)
			if wc.ByteLen != numberedSize || !bytes.Equal(got, want) {
				return fmt.Errorf("message %d of %d bytes came back wrong", l.back, wc.ByteLen)
			}
			l.back++
			if err := q.PostRecv(&roce.RecvWR{ID: wc.ID, SG: []roce.SGE{l.in.SGE(int(wc.ID)*numberedSize, numberedSize)}}); err != nil {
				return err
			}
		}
	}
}

// statusError is the status of a completion with an error.
type statusError cq.Status

func (e statusError) Error() string { return cq.Status(e).String() }

// lines runs several lines during meanwhile, and checks that all end without an error.
func (s *soak) lines(ctx context.Context, d *roce.Device, addr string, n int, meanwhile func() error) (err error) {
	ctx, stop := context.WithTimeout(ctx, patience)
	defer stop()
	over, failed := make(chan struct{}), make(chan error, n)
	var all []*line
	for range n {
		l, err := dialLine(ctx, d, addr)
		if err != nil {
			close(over)
			return err
		}
		all = append(all, l)
		go func() { failed <- l.run(ctx, over) }()
	}
	err = meanwhile()
	close(over)
	for range all {
		err = errors.Join(err, <-failed)
	}
	for _, l := range all {
		if n := l.done.Poll(make([]roce.WC, 1)); n > 0 && err == nil {
			err = errors.New("there is a completion after all work requests have completed")
		}
		s.count.messages.Add(int64(l.back))
		s.count.bytes.Add(int64(l.back) * numberedSize)
		s.count.connections.Add(1)
		err = errors.Join(err, l.close())
	}
	return err
}

// orderly runs lines for a while.
func (s *soak) orderly(ctx context.Context, d *roce.Device) error {
	return s.lines(ctx, d, at(verbsPort), 3, func() error { return pause(ctx, 500*time.Millisecond) })
}

// flap takes the link down while lines are running. The link is up again before their retries end.
func (s *soak) flap(ctx context.Context, d *roce.Device) error {
	return s.lines(ctx, d, at(verbsPort), 2, func() error {
		for range 2 {
			if err := pause(ctx, 100*time.Millisecond); err != nil {
				return err
			}
			if err := s.pair[near].IP(ctx, "link set "+device+" down"); err != nil {
				return err
			}
			if err := pause(ctx, 50*time.Millisecond); err != nil {
				return err
			}
			if err := s.pair[near].IP(ctx, "link set "+device+" up"); err != nil {
				return err
			}
			if err := s.pair.AwaitCarrier(ctx, device); err != nil {
				return err
			}
			s.count.flaps.Add(1)
		}
		return pause(ctx, 100*time.Millisecond)
	})
}

// readdress adds an address to each end, connects over the new addresses, and removes them
// again. The lines over the old addresses must not be affected.
func (s *soak) readdress(ctx context.Context, d *roce.Device) error {
	return s.lines(ctx, d, at(verbsPort), 1, func() error {
		const added = "10.79.2.2" // at the far end
		each := func(change string) error {
			for i, n := range s.pair {
				if err := n.IP(ctx, fmt.Sprintf("addr %s 10.79.2.%d/24 dev %s", change, i+1, device)); err != nil {
					return err
				}
			}
			return nil
		}
		if err := each("add"); err != nil {
			return err
		}
		addr := net.JoinHostPort(added, verbsPort)
		if err := s.awaitDial(ctx, d, addr); err != nil {
			return fmt.Errorf("over the new addresses: %w", err)
		}
		err := s.lines(ctx, d, addr, 1, func() error { return pause(ctx, 100*time.Millisecond) })
		if err != nil {
			return fmt.Errorf("over the new addresses: %w", err)
		}
		s.count.addresses.Add(1)
		return each("del")
	})
}

// awaitDial connects as soon as both devices know their new addresses.
func (s *soak) awaitDial(outer context.Context, d *roce.Device, addr string) error {
	for end := time.Now().Add(patience); ; {
		ctx, stop := context.WithTimeout(outer, 5*time.Second)
		l, err := dialLine(ctx, d, addr)
		stop()
		if err == nil {
			return l.close()
		}
		if time.Now().After(end) {
			return err
		}
		if pause(outer, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// killed kills the peer during a transfer. Each line must end with an error, in time.
func (s *soak) killed(ctx context.Context, d *roce.Device, p *child.Process) error {
	ctx, stop := context.WithTimeout(ctx, 2*patience)
	defer stop()
	l, err := dialLine(ctx, d, at(verbsPort))
	if err != nil {
		p.Kill()
		return err
	}
	failed := make(chan error, 1)
	go func() { failed <- l.run(ctx, nil) }()
	err = pause(ctx, 100*time.Millisecond)
	p.Kill()
	s.count.kills.Add(1)
	// All earlier requests may be acknowledged. Only a request in flight detects that the
	// peer is dead.
	l.conn.QP().PostSend(&roce.SendWR{Opcode: roce.Write})
	var status statusError
	if e := <-failed; !errors.As(e, &status) {
		err = errors.Join(err, fmt.Errorf("the line to it ended with %w", e))
	}
	s.count.connections.Add(1)
	return errors.Join(err, l.close())
}

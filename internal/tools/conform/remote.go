package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"
)

// actor is one end of a workload: an [end] of the tester, or one of the peer behind a control connection.
type actor interface {
	connect(ctx context.Context, peer address, t terms) error
	fill(seed uint64, at, size int) error
	sum(at, size int) (string, error)
	peek(at, size int) ([]byte, error)
	receive(at, size, step, count int) error
	post(w work) error
	wait(ctx context.Context, queue queueName, count int) ([]done, error)
}

// GoneError says that the peer does not answer any more: its control connection or its server has ended, or hangs.
type GoneError struct {
	What string
	Err  error
}

func (e *GoneError) Error() string { return "the peer is gone: " + e.What + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *GoneError) Unwrap() error { return e.Err }

// dialGap is how long the tester waits before it tries again to connect to a server that does not listen yet.
const dialGap = 250 * time.Millisecond

// patiently calls f until its error is not ECONNREFUSED, or the time wait has passed. It returns the last error of f.
func patiently(ctx context.Context, wait time.Duration, f func() error) (err error) {
	again(ctx, wait, dialGap, func() bool {
		err = f()
		return !errors.Is(err, syscall.ECONNREFUSED)
	})
	return err
}

// again calls f, every gap, until it returns true or the time limit has passed. It returns an error if ctx ends before.
func again(ctx context.Context, limit, gap time.Duration, f func() bool) error {
	for until := time.Now().Add(limit); !f() && !time.Now().After(until); {
		select {
		case <-time.After(gap):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// dialTime is how long the tester waits for a host that does not answer at all.
const dialTime = 5 * time.Second

// control is the tester's end of a control connection.
type control struct {
	*wire
	ctx  context.Context
	conn net.Conn
	stop func() bool
	hello
}

// dialControl connects to a peer that serves, and asks what it is.
func dialControl(ctx context.Context, addr string, wait time.Duration) (*control, error) {
	var conn net.Conn
	err := patiently(ctx, wait, func() (err error) {
		conn, err = (&net.Dialer{Timeout: dialTime}).DialContext(ctx, "tcp", addr)
		return err
	})
	for _, own := range []syscall.Errno{syscall.ENETUNREACH, syscall.ENETDOWN, syscall.EADDRNOTAVAIL} {
		if errors.Is(err, own) { // the tester's interface to the peer is gone
			return nil, &DeviceError{err}
		}
	}
	if err != nil {
		return nil, &GoneError{"connect to " + addr, err}
	}
	past := time.Unix(1, 0)
	c := &control{wire: newWire(conn), ctx: ctx, conn: conn, stop: context.AfterFunc(ctx, func() { conn.SetDeadline(past) })}
	r, err := c.call(command{Do: "hello"})
	switch {
	case err != nil:
	case r.Hello == nil || r.Hello.Version != protocolVersion:
		err = fmt.Errorf("%s speaks another version of the control protocol, or none: start `rocectl conform --serve` of the same version there", addr)
	default:
		c.hello = *r.Hello
		return c, nil
	}
	c.close()
	return nil, err
}

// close ends the connection. It sends "bye" before, so that the peer knows that the tester was not killed.
func (c *control) close() {
	if c.stop() {
		c.conn.SetWriteDeadline(time.Now().Add(replyTime))
		c.write(command{Do: "bye"})
	}
	c.conn.Close()
}

// call sends a command and waits for its reply.
func (c *control) call(m command) (r reply, err error) {
	if err = c.write(m); err == nil {
		err = c.read(&r)
	}
	switch {
	case err != nil && c.ctx.Err() != nil:
		return r, &GoneError{"no reply to " + m.Do, context.Cause(c.ctx)}
	case err != nil:
		return r, &GoneError{"no reply to " + m.Do, err}
	case r.Error != "":
		return r, fmt.Errorf("the peer cannot do %q: %.300s", m.Do, r.Error)
	}
	return r, nil
}

// explain checks after an error whether the peer is gone, and adds that to the error. A step often fails with an error completion before
// a command shows that the peer is gone.
func (c *control) explain(err error) error {
	if _, known := errors.AsType[*GoneError](err); known || err == nil {
		return err
	}
	_, gone := c.call(command{Do: "hello"})
	if errors.Is(gone, net.ErrClosed) { // the tester has closed the connection
		return err
	}
	return errors.Join(gone, err)
}

// addrs returns the peer's addresses.
func (c *control) addrs() (list []netip.Addr) {
	for _, s := range c.Addrs {
		if a, err := netip.ParseAddr(s); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// counters returns the counters of the peer.
func (c *control) counters() (map[string]uint64, error) {
	r, err := c.call(command{Do: "counters"})
	return r.Counters, err
}

// far is a queue pair of the peer.
type far struct {
	c     *control
	qp    int
	at    address
	token string
}

// create makes a queue pair at the peer.
func (c *control) create(s spec) (*far, error) {
	r, err := c.call(command{Do: "create", Spec: &s})
	if err == nil && r.Address == nil {
		err = errors.New("the peer has made a queue pair and does not say its address")
	}
	if err != nil {
		return nil, err
	}
	return &far{c: c, qp: r.QP, at: *r.Address, token: r.Token}, nil
}

func (f *far) connect(_ context.Context, peer address, t terms) error {
	_, err := f.c.call(command{Do: "connect", QP: f.qp, Peer: &peer, Terms: &t})
	return err
}

// accept tells the peer to accept the connection that the tester makes meanwhile.
func (f *far) accept() error {
	return f.meet(command{Do: "accept"})
}

// dial tells the peer to connect to a listener of the tester.
func (f *far) dial(addr string) error {
	return f.meet(command{Do: "dial", Addr: addr})
}

// meet tells the peer to connect the queue pair by the connection manager, and stores its address.
func (f *far) meet(m command) error {
	m.QP, m.MS = f.qp, int(maxWait/time.Millisecond)
	r, err := f.c.call(m)
	if err == nil && r.Address != nil {
		f.at = *r.Address
	}
	return err
}

func (f *far) fill(seed uint64, at, size int) error {
	_, err := f.c.call(command{Do: "fill", QP: f.qp, Seed: seed, At: at, Size: size})
	return err
}

func (f *far) sum(at, size int) (string, error) {
	r, err := f.c.call(command{Do: "sum", QP: f.qp, At: at, Size: size})
	return r.Sum, err
}

func (f *far) peek(at, size int) ([]byte, error) {
	r, err := f.c.call(command{Do: "peek", QP: f.qp, At: at, Size: size})
	if err == nil && len(r.Bytes) != size {
		err = fmt.Errorf("the peer shows %d bytes of its memory instead of %d", len(r.Bytes), size)
	}
	return r.Bytes, err
}

func (f *far) receive(at, size, step, count int) error {
	_, err := f.c.call(command{Do: "receive", QP: f.qp, At: at, Size: size, Step: step, Count: count})
	return err
}

func (f *far) post(w work) error {
	_, err := f.c.call(command{Do: "post", QP: f.qp, Work: &w})
	return err
}

func (f *far) wait(ctx context.Context, queue queueName, count int) ([]done, error) {
	ms := int(maxWait / time.Millisecond)
	if t, ok := ctx.Deadline(); ok {
		ms = int(max(time.Until(t)-replyTime, 0) / time.Millisecond)
	}
	r, err := f.c.call(command{Do: "wait", QP: f.qp, Queue: queue, Count: count, MS: ms})
	if err == nil && len(r.Done) != count {
		err = fmt.Errorf("the peer reports %d completions instead of %d", len(r.Done), count)
	}
	return r.Done, err
}

// replyTime is the part of a deadline that is kept for the reply.
const replyTime = 500 * time.Millisecond

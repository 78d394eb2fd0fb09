//go:build linux

// Package surfaces measures the interfaces that Go programs use: net.Conn and net/http over TCP and over rsocket, and
// package message. The programs at both ends are the same for TCP and for this stack; the Link of a Spec chooses between
// the two.
package surfaces

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/verbs"
	"github.com/goroce/roce/rsocket"
)

// linkTCP is the Link of a Spec whose programs use TCP.
const linkTCP = "tcp"

// role is one end. The passive end listens, and its offer is the address.
type role struct {
	spec     harness.Spec
	dev      *roce.Device // nil: TCP
	listener net.Listener // of the passive end
	peer     string       // the address of the peer's listener
	run      func(*role, context.Context) (harness.Measure, error)
}

// newRole makes the roles of programs that use net.Conn.
func newRole(run func(*role, context.Context) (harness.Measure, error)) func(harness.Spec) (harness.Role, error) {
	return func(s harness.Spec) (harness.Role, error) {
		s.Wait = true // such programs sleep until something comes
		return &role{spec: s, run: run}, nil
	}
}

func (r *role) Prepare() (_ any, err error) {
	if err = r.openDevice(); err != nil || r.spec.Active {
		return "", err
	}
	if r.listener, err = r.listen(); err != nil {
		return "", err
	}
	return r.listener.Addr().String(), nil
}

func (r *role) Connect(offer json.RawMessage) error { return json.Unmarshal(offer, &r.peer) }

func (r *role) Run(ctx context.Context) (harness.Measure, error) { return r.run(r, ctx) }

// measureProcessor starts to measure the processor time of this process. The returned function adds the time since then
// to m.
func measureProcessor(m *harness.Measure) (stop func()) {
	before := processorTime()
	return func() { m.Processor = (processorTime() - before).Seconds() }
}

func processorTime() time.Duration {
	var u unix.Rusage
	unix.Getrusage(unix.RUSAGE_SELF, &u) // it does not fail for this process
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (r *role) Close() error {
	var all []error
	if r.listener != nil {
		if err := r.listener.Close(); !errors.Is(err, net.ErrClosed) {
			all = append(all, err)
		}
	}
	if r.dev != nil {
		all = append(all, r.dev.Close())
	}
	return errors.Join(all...)
}

// openDevice opens the device, unless the Spec is about TCP.
func (r *role) openDevice() (err error) {
	if r.spec.Link != linkTCP {
		r.dev, err = verbs.OpenDevice(r.spec)
	}
	return err
}

func (r *role) listen() (net.Listener, error) {
	if r.dev == nil {
		return net.Listen("tcp", address(r.spec))
	}
	return rsocket.Listen(r.dev, address(r.spec), rsocket.Config{Backlog: r.connections()})
}

func (r *role) dial(ctx context.Context) (net.Conn, error) {
	if r.dev == nil {
		return new(net.Dialer).DialContext(ctx, "tcp", r.peer) // without Nagle's delay, as Go does by default
	}
	return rsocket.Dial(ctx, r.dev, r.peer, rsocket.Config{})
}

// address returns the listening address of the passive end, with any port.
func address(s harness.Spec) string { return fmt.Sprintf("%v:0", s.Local.IP) }

// connections returns the number of connections of the Spec.
func (r *role) connections() int { return max(r.spec.QPs, 1) }

// open dials the peer at the active end. At the other end it accepts a connection, until ctx is done.
func (r *role) open(ctx context.Context) (net.Conn, error) {
	if r.spec.Active {
		return r.dial(ctx)
	}
	defer context.AfterFunc(ctx, func() { r.listener.Close() })()
	return r.listener.Accept()
}

//go:build linux

package blast

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

// carrier sends and receives packets of one size.
type carrier interface {
	// send builds packets of src in its own buffers and sends as many as fit one call.
	send(src *source) error
	// receive passes the packets that have arrived to dst. It does not wait.
	receive(dst *sink) error
	mode() string
	close() error
}

// pinger sends one packet, and reports whether one has arrived; it does not wait.
type pinger interface {
	ping(b []byte) error
	pong() (bool, error)
	mode() string
	close() error
}

// The sockets that give the upper bounds of the links.
var (
	carriers = map[string]func(harness.Spec) (carrier, error){
		"udp": newUDP,
		"raw": newPacket,
		"xdp": func(s harness.Spec) (carrier, error) { return openXDP(s) },
	}
	pingers = map[string]func(harness.Spec) (pinger, error){
		"udp": newUDPPing,
		"raw": newPacketPing,
		"xdp": func(s harness.Spec) (pinger, error) { return openXDP(s) },
	}
)

// New makes the roles of a blast: the active end sends, the other measures.
func New(s harness.Spec) (harness.Role, error) {
	open := carriers[s.Link]
	if s.Port {
		open = func(s harness.Spec) (carrier, error) { return openDriver(s) }
	}
	return newRole(s, open, blast)
}

// NewPing makes the roles of a ping-pong of bare packets between ends that poll.
func NewPing(s harness.Spec) (harness.Role, error) {
	open := pingers[s.Link]
	if s.Port {
		open = func(s harness.Spec) (pinger, error) { return openDriver(s) }
	}
	return newRole(s, open, pingPong)
}

// role opens a socket or a driver and runs a measurement with it.
type role[T interface{ close() error }] struct {
	harness.Alone
	spec   harness.Spec
	open   func(harness.Spec) (T, error)
	run    func(context.Context, harness.Spec, T) (harness.Measure, error)
	socket T
	opened bool
}

func newRole[T interface{ close() error }](s harness.Spec, open func(harness.Spec) (T, error), run func(context.Context, harness.Spec, T) (harness.Measure, error)) (harness.Role, error) {
	if open == nil {
		return nil, fmt.Errorf("%s: there are no bare packets for link %q", s.Kind, s.Link)
	}
	return &role[T]{spec: s, open: open, run: run}, nil
}

func (r *role[T]) Prepare() (_ any, err error) {
	r.socket, err = r.open(r.spec)
	r.opened = err == nil
	return "", err
}

func (r *role[T]) Close() error {
	if !r.opened {
		return nil
	}
	return r.socket.close()
}

func (r *role[T]) Run(ctx context.Context) (harness.Measure, error) {
	return r.run(ctx, r.spec, r.socket)
}

func blast(ctx context.Context, s harness.Spec, c carrier) (m harness.Measure, err error) {
	if s.Active {
		src := newSource(s.Size)
		for calls := 0; calls%64 != 0 || ctx.Err() == nil; calls++ {
			if err := c.send(src); err != nil {
				return m, err
			}
		}
		m.Packets = uint64(src.seq)
		return m, nil
	}
	dst := newSink(s)
	for calls := 0; ; calls++ {
		before := dst.packets
		if err := c.receive(dst); err != nil {
			return m, err
		}
		if dst.packets == before && dst.bad == 0 {
			if calls%256 == 0 && ctx.Err() != nil {
				return m, ctx.Err()
			}
			continue
		}
		if over, err := dst.batch(); over || err != nil {
			dst.measure.Mode = c.mode()
			return dst.measure, err
		}
	}
}

// lost is the time after which a packet that was not answered is sent again.
const lost = 50 * time.Millisecond

func pingPong(ctx context.Context, s harness.Spec, p pinger) (m harness.Measure, err error) {
	b := make([]byte, s.Size+overhead)
	if s.Active {
		m, err = harness.RoundTrips(s, func() error { return roundTrip(ctx, p, b) }, nil)
		m.Mode = p.mode()
		return m, err
	}
	for polls := 0; polls%256 != 0 || ctx.Err() == nil; polls++ {
		got, err := p.pong()
		if err == nil && got {
			err = p.ping(b)
		}
		if err != nil {
			return m, err
		}
	}
	return m, nil
}

// roundTrip sends a packet and polls for the answer.
func roundTrip(ctx context.Context, p pinger, b []byte) error {
	if err := p.ping(b); err != nil {
		return err
	}
	sent := time.Now()
	for polls := 1; ; polls++ {
		if got, err := p.pong(); got || err != nil {
			return err
		}
		if polls%1024 != 0 || time.Since(sent) <= lost {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err := p.ping(b); err != nil {
			return err
		}
		sent = time.Now()
	}
}

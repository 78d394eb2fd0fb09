// Package udaddy is udaddy of librdmacm's examples: a client asks the connection manager for
// a number of UD queue pairs of a server. To each it SENDs a number of messages, and the
// server SENDs as many back.
package udaddy

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/messages"
)

// DefaultPort is the port that udaddy uses, always.
const DefaultPort = 7174

// Config are udaddy's options.
type Config struct {
	messages.Options
	TrafficClass uint8 // -t, of what the client sends
}

// end is a queue pair and its peer. udaddy calls it a connection, though UD has none.
type end struct {
	*messages.UD
	peer *roce.UDPeer
}

// run is one side of a test: all its queue pairs.
type run struct {
	Config
	dev  *roce.Device
	ends []*end
}

func (r *run) newEnd() (*end, error) {
	e, err := messages.NewUD(r.dev, &r.Options, true, false)
	if err != nil {
		return nil, err
	}
	r.ends = append(r.ends, &end{UD: e})
	return r.ends[len(r.ends)-1], nil
}

func (r *run) close() {
	for _, e := range r.ends {
		e.Close()
	}
}

// post posts all messages of all queue pairs.
func (r *run) post(flags roce.SendFlags) error {
	return messages.Each(r.ends, "send", func(e *end) error { return e.Post(e.peer, flags) })
}

// wait waits for all completions of all queue pairs.
func (r *run) wait(ctx context.Context, step string) error {
	return messages.Each(r.ends, step, func(e *end) error { return e.Wait(ctx, nil) })
}

// Client resolves the server's queue pairs, sends and receives. Like udaddy it waits for a
// lost message until ctx ends. addr is "host:port".
func Client(ctx context.Context, d *roce.Device, addr string, c Config) error {
	if err := c.Prepare(); err != nil {
		return err
	}
	r := &run{Config: c, dev: d}
	defer r.close()
	fmt.Fprintln(c.Out, "udaddy: starting client\nudaddy: connecting")
	for range c.Connections {
		if _, err := r.newEnd(); err != nil {
			return err
		}
	}
	if err := r.resolve(ctx, addr); err != nil || c.Count == 0 {
		return err
	}
	return messages.Run(c.Out, messages.Step{Title: "initiating data transfers", Do: func() error { return r.post(0) }},
		messages.Step{Title: "receiving data transfers", Do: func() error { return r.wait(ctx, "receive") }},
		messages.Step{Title: "data transfers complete"})
}

// resolve asks for all queue pairs at once, because each answer may take a while. It returns
// the first error and then asks no more.
func (r *run) resolve(ctx context.Context, addr string) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var asking sync.WaitGroup
	for i, e := range r.ends {
		asking.Go(func() {
			var err error
			e.peer, err = r.dev.ResolveUD(ctx, addr, roce.ResolveConfig{QKey: roce.DefaultUDPQKey, TrafficClass: r.TrafficClass})
			if err != nil {
				cancel(fmt.Errorf("connection %d: %w", i, err))
			}
		})
	}
	asking.Wait()
	return context.Cause(ctx)
}

// Server accepts the connections, receives and sends. It refuses further ones. It calls
// listening when clients can connect. addr is "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) error {
	if err := c.Prepare(); err != nil {
		return err
	}
	r := &run{Config: c, dev: d}
	defer r.close()
	fmt.Fprintln(c.Out, "udaddy: starting server")
	l, err := d.ListenUD(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	answered := map[netip.AddrPort]*end{}
	answer := func(ctx context.Context) error { return r.answer(ctx, l, answered) }
	for len(r.ends) < c.Connections {
		if err := answer(ctx); err != nil {
			return err
		}
	}
	if c.Count == 0 {
		return nil
	}
	defer messages.Repeat(ctx, answer)()
	receive := func(e *end) error {
		return e.Wait(ctx, func(wc *roce.WC) (err error) { // the first message says where the answers go
			e.peer = &roce.UDPeer{QPN: roce.QPN(wc.Imm), QKey: roce.DefaultUDPQKey}
			e.peer.AH, err = d.CreateAHFromWC(ctx, wc, e.GRH(wc))
			return err
		})
	}
	return messages.Run(c.Out, messages.Step{Title: "receiving data transfers", Do: func() error { return messages.Each(r.ends, "receive", receive) }},
		messages.Step{Title: "sending replies", Do: func() error { return r.post(roce.Signaled) }},
		messages.Step{Do: func() error { return r.wait(ctx, "send") }}, messages.Step{Title: "data transfers complete"})
}

// answer answers one request for a queue pair. A client that did not receive its answer asks
// again from the same address and gets the same queue pair; udaddy would take that for another
// connection.
func (r *run) answer(ctx context.Context, l *roce.UDListener, answered map[netip.AddrPort]*end) error {
	request, err := l.Accept(ctx)
	if err != nil {
		return err
	}
	e := answered[request.RemoteAddr()]
	switch {
	case e != nil:
	case len(r.ends) == r.Connections:
		fmt.Fprintln(r.Out, "udaddy: failing connection request")
		return unlessAborted(request.Reject(nil))
	default:
		if e, err = r.newEnd(); err != nil {
			request.Reject(nil)
			return err
		}
		answered[request.RemoteAddr()] = e
	}
	return unlessAborted(request.Accept(e.QP, nil))
}

// unlessAborted returns err, but nil if the request was over before its answer: then the
// client asks again.
func unlessAborted(err error) error {
	if errors.Is(err, syscall.ECONNABORTED) {
		return nil
	}
	return err
}

// Command rdma-flow follows the flow of READ and WRITE over rdma_cm, step by step: an event channel
// for connections, a completion channel for work requests.
//
//	rdma-flow -s ADDRESS [PORT]	the server: it prints the port that it listens on
//	rdma-flow -c ADDRESS PORT	the client
//
// Each side tells the other in a SEND where its memory region is. The client then writes into the
// server's region, reads it back, tells the server with another SEND, and disconnects. A goroutine
// of each side takes completions; the main goroutine takes connection events.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/rdmacm"
)

// resolveTimeout is how long the resolution of an address or a route may take.
const resolveTimeout = 2 * time.Second

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rdma-flow:", err)
		os.Exit(1)
	}
}

// program is one end.
type program struct {
	out      io.Writer
	server   bool
	nic      *roce.Device
	pd       *roce.PD
	channel  *roce.CompChannel
	cq       *roce.CQ
	conn     *connection
	finished chan struct{} // closed when the last completion that matters has been seen
	failed   context.CancelCauseFunc
	polling  chan struct{} // closed when the goroutine that takes completions has ended
}

// run is one end of the flow.
func run(ctx context.Context, args []string, out io.Writer) error {
	f := flag.NewFlagSet("rdma-flow", flag.ContinueOnError)
	server := f.Bool("s", false, "serve at ADDRESS [PORT]")
	client := f.Bool("c", false, "connect to ADDRESS PORT")
	dev := f.String("dev", "", nic.Usage)
	if err := f.Parse(args); err != nil {
		return err
	}
	if *server == *client || f.NArg() == 0 || f.NArg() > 2 || *client && f.NArg() != 2 {
		return errors.New("usage: rdma-flow -s ADDRESS [PORT] | rdma-flow -c ADDRESS PORT")
	}
	resolved, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(f.Arg(0), f.Arg(1)))
	if err != nil {
		return err
	}
	addr := resolved.AddrPort()
	if *server && *dev == "" {
		*dev = addr.Addr().Unmap().String()
	}
	device, err := nic.Open(*dev, f.Arg(0))
	if err != nil {
		return err
	}
	defer device.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &program{out: out, server: *server, nic: device, finished: make(chan struct{}), failed: cancel}
	if err := p.flow(ctx, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())); err != nil {
		return errors.Join(err, context.Cause(ctx)) // of the other goroutine
	}
	fmt.Fprintln(out, "disconnected")
	return nil
}

// flow takes connection events until the connection has ended.
func (p *program) flow(ctx context.Context, addr netip.AddrPort) error {
	host, err := rdmacm.NewHost(p.nic)
	if err != nil {
		return err
	}
	defer host.Close()
	events := host.NewChannel() // rdma_create_event_channel
	defer events.Close()
	id, err := host.CreateID(events, rdmacm.TCP, nil) // rdma_create_id
	if err != nil {
		return err
	}
	if p.server {
		if err := id.Bind(addr); err != nil { // rdma_bind_addr
			return err
		}
		if err := id.Listen(10); err != nil { // rdma_listen
			return err
		}
		defer id.Destroy()
		fmt.Fprintf(p.out, "server: listening on port %d\n", id.SrcPort()) // rdma_get_src_port
	} else if err := id.ResolveAddr(ctx, netip.AddrPort{}, addr, resolveTimeout); err != nil { // rdma_resolve_addr
		return err
	}
	for {
		event, err := events.Next(ctx) // rdma_get_cm_event; events need no rdma_ack_cm_event
		if err != nil {
			return err
		}
		if ended, err := p.onEvent(ctx, event); ended || err != nil {
			return err
		}
	}
}

// onEvent does what an event asks for. ended is true when the connection has ended.
func (p *program) onEvent(ctx context.Context, event *rdmacm.Event) (ended bool, err error) {
	param := rdmacm.ConnParam{InitiatorDepth: 1, ResponderResources: 1, RNRRetryCount: 7, RetryCount: 7}
	switch id := event.ID; event.Type {
	case rdmacm.AddrResolved:
		if err := p.buildConnection(ctx, id); err != nil {
			return false, err
		}
		return false, id.ResolveRoute(ctx, resolveTimeout)
	case rdmacm.RouteResolved:
		return false, id.Connect(ctx, param)
	case rdmacm.ConnectRequest:
		if p.conn != nil { // the program ends with its connection
			return false, errors.Join(id.Reject(nil), id.Destroy())
		}
		if err := p.buildConnection(ctx, id); err != nil {
			return false, err
		}
		return false, id.Accept(ctx, param)
	case rdmacm.Established:
		if p.server {
			return false, nil
		}
		return false, p.conn.sendMessage(memory)
	case rdmacm.Disconnected:
		return true, p.destroyConnection(ctx)
	default:
		return false, fmt.Errorf("event %v, status %d: %w", event.Type, event.Status, event.Err)
	}
}

// buildContext makes what connections have in common.
func (p *program) buildContext() (err error) {
	p.pd = p.nic.AllocPD()                                      // ibv_alloc_pd
	if p.channel, err = p.nic.CreateCompChannel(); err != nil { // ibv_create_comp_channel
		return err
	}
	p.cq, err = p.nic.CreateCQWith(roce.CQConfig{Entries: 10, Channel: p.channel}) // ibv_create_cq
	if err != nil {
		return err
	}
	return p.cq.RequestNotify(false) // ibv_req_notify_cq
}

// buildConnection makes the connection's queue pair and its memory, posts the first receive, and
// begins to take completions.
func (p *program) buildConnection(ctx context.Context, id *rdmacm.ID) (err error) {
	if err := p.buildContext(); err != nil {
		return err
	}
	caps := roce.Caps{MaxSendWR: 10, MaxRecvWR: 10, MaxSendSGE: 1, MaxRecvSGE: 1}
	if err := id.CreateQP(p.pd, roce.QPConfig{Type: roce.RC, SendCQ: p.cq, RecvCQ: p.cq, Caps: caps}); err != nil { // rdma_create_qp
		return err
	}
	if p.conn, err = newConnection(id, p.pd); err != nil {
		return err
	}
	if err := p.conn.postReceive(); err != nil {
		return err
	}
	p.polling = make(chan struct{})
	go func() {
		defer close(p.polling)
		if err := p.pollCQ(ctx); ctx.Err() == nil {
			p.failed(err)
		}
	}()
	return nil
}

// destroyConnection waits for the last completion and frees what the connection had. The device
// frees the rest when it is closed.
func (p *program) destroyConnection(ctx context.Context) error {
	select {
	case <-p.finished:
	case <-ctx.Done():
		return ctx.Err()
	}
	p.failed(nil) // nothing has: it ends the goroutine that takes completions
	<-p.polling
	return errors.Join(p.conn.id.DestroyQP(), p.conn.close(), p.conn.id.Destroy())
}

// pollCQ takes completions. It asks for the next event before it polls, so that none is missed.
func (p *program) pollCQ(ctx context.Context) error {
	for wcs := make([]roce.WC, 1); ; {
		cq, err := p.channel.Next(ctx) // ibv_get_cq_event; ibv_ack_cq_events is not needed
		if err != nil {
			return err
		}
		if err := cq.RequestNotify(false); err != nil { // ibv_req_notify_cq
			return err
		}
		for cq.Poll(wcs) > 0 { // ibv_poll_cq
			if err := p.onCompletion(ctx, &wcs[0]); err != nil {
				return err
			}
		}
	}
}

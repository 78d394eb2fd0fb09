// Command rdma-flow follows the flow of READ and WRITE over rdma_cm, step by step: an event channel
// for connections, a completion channel for work requests.
//
//	rdma-flow -s ADDRESS [PORT]	the server: it prints the port that it listens on
//	rdma-flow -c ADDRESS PORT	the client
//
// Each side sends the address and key of its memory region in a SEND. The client then writes into the server's
// region, reads it back, tells the server with another SEND, and disconnects. A goroutine of each side takes
// completions; the main goroutine takes connection events.
package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/rdmacm"
)

const (
	resolveTimeout        = 2 * time.Second // of an address or a route
	regionSize            = 64 << 10        // of the memory that the client writes and reads
	messageSize           = 16              // of a message
	memory         uint32 = 0               // type of a message with the address and key of the sender's region
	done           uint32 = 1               // the client has finished
)

func main() { try.Main("rdma-flow", run) }

// message is struct message of the C program, in the byte order of the host.
type message struct {
	Type uint32
	RKey roce.RKey
	Addr uint64
}

// program is one end with its connection.
type program struct {
	out                   io.Writer
	server                bool
	nic                   *roce.Device
	id                    *rdmacm.ID // nil: no connection yet
	recv, send            *roce.MR   // messages
	rdmaLocal, rdmaRemote *roce.MR   // this side's copy, and the memory that the peer writes and reads
	peer                  message
	lastSent              uint32
	finished              chan struct{} // closed after the last completion that matters
	polling               chan struct{} // closed when the goroutine that takes completions ends
	failed                context.CancelCauseFunc
}

// run is one end of the flow.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Catch(&err)
	f := flag.NewFlagSet("rdma-flow", flag.ContinueOnError)
	server, client := f.Bool("s", false, "serve at ADDRESS [PORT]"), f.Bool("c", false, "connect to ADDRESS PORT")
	dev := f.String("dev", "", nic.Usage)
	try.Do(f.Parse(args))
	if *server == *client || f.NArg() == 0 || f.NArg() > 2 || *client && f.NArg() != 2 {
		return errors.New("usage: rdma-flow -s ADDRESS [PORT] | rdma-flow -c ADDRESS PORT")
	}
	addr := try.Get(net.ResolveTCPAddr("tcp", net.JoinHostPort(f.Arg(0), f.Arg(1)))).AddrPort()
	if *server && *dev == "" {
		*dev = addr.Addr().Unmap().String()
	}
	device := try.Get(nic.Open(*dev, f.Arg(0)))
	defer device.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	p := &program{out: out, server: *server, nic: device, finished: make(chan struct{}), failed: cancel}
	if err := p.flow(ctx, netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port())); err != nil {
		return errors.Join(err, context.Cause(ctx)) // the cause is the error of the other goroutine
	}
	fmt.Fprintln(out, "disconnected")
	return nil
}

// flow takes connection events until the connection has ended.
func (p *program) flow(ctx context.Context, addr netip.AddrPort) (err error) {
	defer try.Catch(&err)
	host := try.Get(rdmacm.NewHost(p.nic))
	defer host.Close()
	events := host.NewChannel() // rdma_create_event_channel
	defer events.Close()
	id := try.Get(host.CreateID(events, rdmacm.TCP, nil)) // rdma_create_id
	if p.server {
		try.Do(id.Bind(addr)) // rdma_bind_addr
		try.Do(id.Listen(10)) // rdma_listen
		defer id.Destroy()
		fmt.Fprintf(p.out, "server: listening on port %d\n", id.SrcPort()) // rdma_get_src_port
	} else {
		try.Do(id.ResolveAddr(ctx, netip.AddrPort{}, addr, resolveTimeout)) // rdma_resolve_addr
	}
	for {
		event := try.Get(events.Next(ctx)) // rdma_get_cm_event; events need no rdma_ack_cm_event
		if p.onEvent(ctx, event) {
			return nil
		}
	}
}

// onEvent handles an event. It returns true when the connection has ended.
func (p *program) onEvent(ctx context.Context, event *rdmacm.Event) (ended bool) {
	param := rdmacm.ConnParam{InitiatorDepth: 1, ResponderResources: 1, RNRRetryCount: 7, RetryCount: 7}
	switch id := event.ID; event.Type {
	case rdmacm.AddrResolved:
		p.buildConnection(ctx, id)
		try.Do(id.ResolveRoute(ctx, resolveTimeout)) // rdma_resolve_route
	case rdmacm.RouteResolved:
		try.Do(id.Connect(ctx, param)) // rdma_connect
	case rdmacm.ConnectRequest:
		if p.id != nil { // the program ends with its connection
			try.Do(errors.Join(id.Reject(nil), id.Destroy()))
			break
		}
		p.buildConnection(ctx, id)
		try.Do(id.Accept(ctx, param)) // rdma_accept
	case rdmacm.Established:
		if !p.server {
			p.sendMessage(memory)
		}
	case rdmacm.Disconnected:
		p.destroyConnection(ctx)
		return true
	default:
		try.Do(fmt.Errorf("event %v, status %d: %w", event.Type, event.Status, event.Err))
	}
	return false
}

// buildConnection makes the connection's objects, posts the first receive, and starts to take completions.
func (p *program) buildConnection(ctx context.Context, id *rdmacm.ID) {
	pd := p.nic.AllocPD()                                                                                                                                      // ibv_alloc_pd
	channel := try.Get(p.nic.CreateCompChannel())                                                                                                              // ibv_create_comp_channel
	cq := try.Get(p.nic.CreateCQWith(roce.CQConfig{Entries: 10, Channel: channel}))                                                                            // ibv_create_cq
	try.Do(cq.RequestNotify(false))                                                                                                                            // ibv_req_notify_cq
	try.Do(id.CreateQP(pd, roce.QPConfig{Type: roce.RC, SendCQ: cq, RecvCQ: cq, Caps: roce.Caps{MaxSendWR: 10, MaxRecvWR: 10, MaxSendSGE: 1, MaxRecvSGE: 1}})) // rdma_create_qp
	p.id = id
	p.send = try.Get(pd.RegMR(make([]byte, messageSize), 0)) // ibv_reg_mr
	p.recv = try.Get(pd.RegMR(make([]byte, messageSize), roce.LocalWrite))
	p.rdmaLocal = try.Get(pd.RegMR(make([]byte, regionSize), roce.LocalWrite))
	p.rdmaRemote = try.Get(pd.RegMR(make([]byte, regionSize), roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead))
	p.postReceive()
	p.polling = make(chan struct{})
	go func() {
		defer close(p.polling)
		if err := p.pollCQ(ctx, channel); ctx.Err() == nil {
			p.failed(err)
		}
	}()
}

// destroyConnection waits for the last completion and destroys the connection's objects.
func (p *program) destroyConnection(ctx context.Context) {
	select {
	case <-p.finished:
	case <-ctx.Done():
		try.Do(ctx.Err())
	}
	p.failed(nil) // without an error: it ends the goroutine that takes completions
	<-p.polling
	try.Do(errors.Join(p.id.DestroyQP(), p.send.Close(), p.recv.Close(), p.rdmaLocal.Close(), p.rdmaRemote.Close(), p.id.Destroy()))
}

// pollCQ takes completions. It requests the next event before it polls, so that it misses none.
func (p *program) pollCQ(ctx context.Context, channel *roce.CompChannel) (err error) {
	defer try.Catch(&err)
	for wcs := make([]roce.WC, 1); ; {
		cq := try.Get(channel.Next(ctx)) // ibv_get_cq_event; ibv_ack_cq_events is not needed
		try.Do(cq.RequestNotify(false))  // ibv_req_notify_cq
		for cq.Poll(wcs) > 0 {           // ibv_poll_cq
			p.onCompletion(ctx, &wcs[0])
		}
	}
}

// postReceive posts a receive for one message (ibv_post_recv).
func (p *program) postReceive() { try.Do(p.id.PostRecv(0, p.recv.SGE(0, messageSize))) }

// sendMessage sends the peer a message of a type with the address and key of the region.
func (p *program) sendMessage(t uint32) {
	try.Get(binary.Encode(p.send.Bytes(), binary.NativeEndian, message{t, p.rdmaRemote.RKey(), p.rdmaRemote.Addr()}))
	p.lastSent = t
	try.Do(p.id.PostSend(0, roce.Signaled, p.send.SGE(0, messageSize)))
}

// pattern returns the data that the client writes.
func pattern() (b []byte) {
	for i := range regionSize {
		b = append(b, byte(i*7+i>>8))
	}
	return b
}

// onCompletion takes the step that follows a completion.
func (p *program) onCompletion(ctx context.Context, wc *roce.WC) {
	if err := wc.Err(); err != nil {
		select {
		case <-p.finished: // completions that the disconnection flushes do not matter
			return
		default:
			try.Do(err)
		}
	}
	switch wc.Opcode {
	case roce.WCRecv:
		p.onMessage()
	case roce.WCWrite:
		clear(p.rdmaLocal.Bytes())
		try.Do(p.id.PostRead(0, roce.Signaled, p.peer.Addr, p.peer.RKey, p.rdmaLocal.SGE(0, regionSize)))
	case roce.WCRead:
		if !bytes.Equal(p.rdmaLocal.Bytes(), pattern()) {
			try.Do(errors.New("what was read is not what was written"))
		}
		fmt.Fprintln(p.out, "client: what was read is what was written")
		p.sendMessage(done)
	case roce.WCSend:
		if p.lastSent == done {
			defer close(p.finished)
			try.Do(p.id.Disconnect(ctx)) // rdma_disconnect
		}
	}
}

// onMessage takes a message of the peer.
func (p *program) onMessage() {
	try.Get(binary.Decode(p.recv.Bytes(), binary.NativeEndian, &p.peer))
	switch {
	case p.peer.Type == done && !bytes.Equal(p.rdmaRemote.Bytes(), pattern()):
		try.Do(errors.New("the region is not as the client wrote it"))
	case p.peer.Type == done:
		fmt.Fprintln(p.out, "server: the region is as the client wrote it")
		close(p.finished)
	case p.server:
		p.postReceive() // for the client's second message
		p.sendMessage(memory)
	default:
		copy(p.rdmaLocal.Bytes(), pattern())
		try.Do(p.id.PostWrite(0, roce.Signaled, p.peer.Addr, p.peer.RKey, p.rdmaLocal.SGE(0, regionSize)))
	}
}

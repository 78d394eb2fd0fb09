// Command apm is the example of automatic path migration of the RDMA Aware Networks manual, apm.c, in
// Go. The ends send messages back and forth. Each end has loaded an alternate path; the queue pairs
// change over to it when the first path fails, or when the client is told to (-m). Either end may be
// the program in C.
//
//	server$ apm -s -dev 10.0.0.1
//	client$ apm -a 10.0.0.1 -m 2
//
// InfiniBand's alternate path is another port and LID. RoCE's is another pair of addresses: -r is
// the index of the GID to send from, and -d is the peer's address. Without them the alternate path
// is the first one, as with the program in C on an adapter with one port.
//
// The functions have the names of the C program.
package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"os"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/rdmacm"
)

// options are the user's parameters.
type options struct {
	server       bool
	serverName   string
	serverPort   string
	msgCount     int
	msgLength    int
	msecDelay    int
	altGID       netip.Addr // -d, where the C program has a LID
	altSrc       int        // -r, where the C program has a port
	migrateAfter int
	dev          string
}

// example is struct context of the C program.
type example struct {
	options
	out      io.Writer
	host     *rdmacm.Host
	listenID *rdmacm.ID
	id       *rdmacm.ID
	sendMR   *roce.MR
	recvMR   *roce.MR
}

func main() {
	if err := run(context.Background(), os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apm:", err)
		os.Exit(1)
	}
}

// run reads the command line and opens the device.
func run(ctx context.Context, args []string, out io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	device, err := nic.Open(o.dev, o.serverName)
	if err != nil {
		return err
	}
	defer device.Close()
	return o.run(ctx, device, out)
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("apm", flag.ContinueOnError)
	f.BoolVar(&o.server, "s", false, "server mode")
	f.StringVar(&o.serverName, "a", "", "`address` of the server")
	f.StringVar(&o.serverPort, "p", "51216", "`port`")
	f.IntVar(&o.msgCount, "c", 100, "messages of each end")
	f.IntVar(&o.msgLength, "l", 1000000, "bytes of a message")
	f.TextVar(&o.altGID, "d", netip.Addr{}, "`address` of the peer on the alternate path; requires -r")
	f.IntVar(&o.altSrc, "r", -1, "GID `index` of this end on the alternate path; requires -d")
	f.IntVar(&o.migrateAfter, "m", -1, "migrate after message `n`, from 0 (client only)")
	f.IntVar(&o.msecDelay, "w", 500, "`milliseconds` to wait before a message")
	f.StringVar(&o.dev, "dev", "", nic.Usage)
	switch err := f.Parse(args); {
	case err != nil:
		return o, err
	case !o.server && o.serverName == "":
		return o, errors.New("server address must be specified for client mode")
	case o.altGID.IsValid() != (o.altSrc >= 0):
		return o, errors.New("-d and -r must be used together")
	case o.migrateAfter > o.msgCount:
		return o, fmt.Errorf("-m %d: migrate after one of the %d messages", o.migrateAfter, o.msgCount)
	case o.msgLength < 1:
		return o, fmt.Errorf("-l %d: a message has at least one byte", o.msgLength)
	}
	if o.server {
		o.dev = cmp.Or(o.dev, o.serverName)
	}
	return o, nil
}

// run is main of the C program from where it has its parameters.
func (o options) run(ctx context.Context, device *roce.Device, out io.Writer) (err error) {
	mode := map[bool]string{false: "client", true: "server"}[o.server]
	fmt.Fprintf(out, "mode:       %s\naddress:    %s\nport:       %s\ncount:      %d\nlength:     %d\n", mode, cmp.Or(o.serverName, "NULL"), o.serverPort, o.msgCount, o.msgLength)
	fmt.Fprintf(out, "alt_dgid:   %v\nalt_src:    %d\nmig_after:  %d\nmsec_wait:  %d\n\n", o.altGID, o.altSrc, o.migrateAfter, o.msecDelay)
	e := &example{options: o, out: out}
	if e.host, err = rdmacm.NewHost(device); err != nil {
		return err
	}
	defer e.host.Close()
	defer e.asyncEvents(ctx, device)()
	err = e.exchange(ctx)
	return errors.Join(err, e.destroy())
}

// exchange connects, loads the alternate path and sends messages back and forth.
func (e *example) exchange(ctx context.Context) error {
	if err := e.createEP(ctx); err != nil {
		return err
	}
	if e.server {
		if err := e.getConnectRequest(ctx); err != nil {
			return err
		}
	}
	if err := e.regMem(); err != nil {
		return err
	}
	if err := e.establishConnection(ctx); err != nil {
		return err
	}
	if err := e.loadAltPath(ctx); err != nil {
		return err
	}
	for i := range e.msgCount {
		if e.server {
			if err := e.recvMsg(ctx, i); err != nil {
				return err
			}
		}
		if err := e.wait(ctx); err != nil {
			return err
		}
		if err := e.sendMsg(ctx, i); err != nil {
			return err
		}
		if e.server {
			continue
		}
		if err := e.recvMsg(ctx, i); err != nil {
			return err
		}
		if i == e.migrateAfter {
			if err := e.id.QP().Migrate(); err != nil { // ibv_modify_qp: IBV_MIG_MIGRATED
				return err
			}
		}
	}
	return e.id.Disconnect(ctx)
}

// asyncEvents prints the device's events until the function that it returns is called: those of
// migrations among them (async_event_thread).
func (e *example) asyncEvents(ctx context.Context, device *roce.Device) (stop func()) {
	show := func(ev roce.Event) {
		switch ev.Type {
		case roce.EventPathMig:
			fmt.Fprintln(e.out, "QP path migrated")
		case roce.EventPathMigErr:
			fmt.Fprintln(e.out, "QP path migration error")
		default:
			fmt.Fprintf(e.out, "Async Event %d\n", ev.Type)
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			ev, err := device.NextEvent(ctx)
			if err != nil {
				return
			}
			show(ev)
		}
	}()
	return func() {
		cancel()
		<-done
		for ev, ok := device.TryNextEvent(); ok; ev, ok = device.TryNextEvent() {
			show(ev)
		}
	}
}

// loadAltPath loads the alternate path and re-arms path migration. A path has to be loaded by both
// ends, so that each path of one end is the other's.
func (e *example) loadAltPath(ctx context.Context) error {
	path, ok := e.id.QP().Path()
	if !ok {
		return errors.New("the queue pair has no path")
	}
	if e.altGID.IsValid() {
		path.DGID, path.SGIDIndex = bth.GIDFrom(e.altGID), e.altSrc
	}
	fmt.Fprintf(e.out, "loading alt path - local GID: %d, dgid: %v\n", path.SGIDIndex, path.DGID.Addr())
	if err := e.id.QP().LoadAlternate(ctx, path); err != nil { // ibv_modify_qp: IBV_QP_ALT_PATH
		return err
	}
	return e.id.QP().Rearm() // ibv_modify_qp: IBV_MIG_REARM
}

// createEP resolves the address and makes the endpoint (getaddrinfo_and_create_ep).
func (e *example) createEP(ctx context.Context) error {
	hints := rdmacm.AddrInfo{PortSpace: rdmacm.TCP}
	if e.server {
		hints.Flags = rdmacm.Passive
	}
	fmt.Fprintln(e.out, "rdma_getaddrinfo")
	infos, err := e.host.GetAddrInfo(ctx, e.serverName, e.serverPort, &hints)
	if err != nil {
		return err
	}
	fmt.Fprintln(e.out, "rdma_create_ep")
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	e.id, err = e.host.CreateEP(ctx, infos[0], nil, &config)
	return err
}

// getConnectRequest waits for a request of the client. Its ID has a queue pair.
func (e *example) getConnectRequest(ctx context.Context) (err error) {
	e.listenID, e.id = e.id, nil
	fmt.Fprintln(e.out, "rdma_listen")
	if err := e.listenID.Listen(4); err != nil {
		return err
	}
	fmt.Fprintln(e.out, "rdma_get_request")
	e.id, err = e.listenID.GetRequest(ctx)
	return err
}

// regMem registers the memory of messages.
func (e *example) regMem() (err error) {
	if e.sendMR, err = e.id.RegMsgs(make([]byte, e.msgLength)); err != nil {
		return err
	}
	for i := range e.sendMR.Bytes() {
		e.sendMR.Bytes()[i] = 0x12
	}
	e.recvMR, err = e.id.RegMsgs(make([]byte, e.msgLength))
	return err
}

// establishConnection posts the first receive, and connects or accepts. The program in C wants its
// peer's LID in 4 bytes of private data. A LID of RoCE is 0.
func (e *example) establishConnection(ctx context.Context) error {
	if err := e.postRecv(); err != nil {
		return err
	}
	param := rdmacm.ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, 0), ResponderResources: 2, InitiatorDepth: 2, RetryCount: 5, RNRRetryCount: 5}
	if e.server {
		fmt.Fprintln(e.out, "rdma_accept")
		return e.id.Accept(ctx, param)
	}
	fmt.Fprintln(e.out, "rdma_connect")
	return e.id.Connect(ctx, param)
}

// postRecv posts a receive for one message.
func (e *example) postRecv() error { return e.id.PostRecv(0, e.recvMR.SGE(0, e.msgLength)) }

// sendMsg sends message i and waits for its completion. The client disconnects as soon as it has the
// last message of the server: the disconnection may come before the acknowledgement, and flush it.
func (e *example) sendMsg(ctx context.Context, i int) error {
	if err := e.id.PostSend(0, roce.Signaled, e.sendMR.SGE(0, e.msgLength)); err != nil {
		return err
	}
	wc, err := e.id.SendComp(ctx)
	if err = cmp.Or(err, wc.Err()); err != nil && !(errors.Is(err, roce.ErrFlushed) && e.server && i == e.msgCount-1) {
		return err
	}
	fmt.Fprintf(e.out, "send: %d\n", i+1)
	return nil
}

// recvMsg waits for message i of the peer and posts the receive again.
func (e *example) recvMsg(ctx context.Context, i int) error {
	wc, err := e.id.RecvComp(ctx)
	if err = cmp.Or(err, wc.Err()); err != nil {
		return err
	}
	fmt.Fprintf(e.out, "recv: %d\n", i+1)
	return e.postRecv()
}

// wait waits between messages, so that there is time to break the first path.
func (e *example) wait(ctx context.Context) error {
	select {
	case <-time.After(time.Duration(e.msecDelay) * time.Millisecond):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// destroy destroys what was made.
func (e *example) destroy() (err error) {
	for _, mr := range []*roce.MR{e.sendMR, e.recvMR} {
		if mr != nil {
			err = errors.Join(err, mr.Close())
		}
	}
	for _, id := range []*rdmacm.ID{e.id, e.listenID} {
		if id != nil {
			err = errors.Join(err, id.DestroyEP())
		}
	}
	return err
}

// Command apm is the example of automatic path migration of the RDMA Aware Networks manual, apm.c, in
// Go. The ends send messages back and forth. Each end has loaded an alternate path; the queue pairs
// migrate to it when the first path fails, or when the client has the flag -m. Either end may be the program in
// C.
//
//	server$ apm -s -dev 10.0.0.1
//	client$ apm -a 10.0.0.1 -m 2
//
// InfiniBand's alternate path is another port and LID. RoCE's is another pair of addresses: -r is
// the index of the GID to send from, and -d is the peer's address. Without them the alternate path
// is the first one, as with the program in C on an adapter with one port. The functions have the names of the C program.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/rdmacm"
)

// options are the user's parameters.
type options struct {
	server                         bool
	serverName, serverPort         string
	msgCount, msgLength, msecDelay int
	altGID                         netip.Addr // -d, where the C program has a LID
	altSrc                         int        // -r, where the C program has a port
	migrateAfter                   int
	dev                            string
}

// example is struct context of the C program.
type example struct {
	options
	out            io.Writer
	host           *rdmacm.Host
	id             *rdmacm.ID
	sendMR, recvMR *roce.MR
	opened         try.Opened
}

func main() { try.Main("apm", run) }

// run reads the command line and opens the device.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Catch(&err)
	o := try.Get(parse(args))
	device := try.Get(nic.Open(o.dev, o.serverName))
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

// run is main of the C program after it has read its parameters: it connects, loads the alternate path and sends
// messages back and forth.
func (o options) run(ctx context.Context, device *roce.Device, out io.Writer) (err error) {
	mode := map[bool]string{false: "client", true: "server"}[o.server]
	fmt.Fprintf(out, "mode:       %s\naddress:    %s\nport:       %s\ncount:      %d\nlength:     %d\n", mode, cmp.Or(o.serverName, "NULL"), o.serverPort, o.msgCount, o.msgLength)
	fmt.Fprintf(out, "alt_dgid:   %v\nalt_src:    %d\nmig_after:  %d\nmsec_wait:  %d\n\n", o.altGID, o.altSrc, o.migrateAfter, o.msecDelay)
	host, err := rdmacm.NewHost(device)
	if err != nil {
		return err
	}
	e := &example{options: o, out: out, host: host}
	defer e.host.Close()
	defer e.asyncEvents(ctx, device)()
	defer e.opened.Close(&err)
	defer try.Catch(&err)
	e.createEP(ctx)
	if e.server {
		e.getConnectRequest(ctx)
	}
	e.regMem()
	e.establishConnection(ctx)
	e.loadAltPath(ctx)
	for i := range e.msgCount {
		if e.server {
			e.recvMsg(ctx, i)
		}
		e.wait(ctx)
		e.sendMsg(ctx, i)
		if e.server {
			continue
		}
		if e.recvMsg(ctx, i); i == e.migrateAfter {
			try.Do(e.id.QP().Migrate()) // ibv_modify_qp: IBV_MIG_MIGRATED
		}
	}
	return e.id.Disconnect(ctx)
}

// asyncEvents prints the device's events, such as migrations, until the returned function is called
// (async_event_thread).
func (e *example) asyncEvents(ctx context.Context, device *roce.Device) (stop func()) {
	text := map[roce.EventType]string{roce.EventPathMig: "QP path migrated", roce.EventPathMigErr: "QP path migration error"}
	show := func(ev roce.Event) {
		fmt.Fprintln(e.out, cmp.Or(text[ev.Type], fmt.Sprintf("Async Event %d", ev.Type)))
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

// loadAltPath loads the alternate path and re-arms path migration. Both ends must load the path, so that each
// path of one end is a path of the other.
func (e *example) loadAltPath(ctx context.Context) {
	path, ok := e.id.QP().Path()
	if !ok {
		try.Do(errors.New("the queue pair has no path"))
	}
	if e.altGID.IsValid() {
		path.DGID, path.SGIDIndex = bth.GIDFrom(e.altGID), e.altSrc
	}
	fmt.Fprintf(e.out, "loading alt path - local GID: %d, dgid: %v\n", path.SGIDIndex, path.DGID.Addr())
	try.Do(e.id.QP().LoadAlternate(ctx, path)) // ibv_modify_qp: IBV_QP_ALT_PATH
	try.Do(e.id.QP().Rearm())                  // ibv_modify_qp: IBV_MIG_REARM
}

// createEP resolves the address and makes the endpoint (getaddrinfo_and_create_ep).
func (e *example) createEP(ctx context.Context) {
	hints := rdmacm.AddrInfo{PortSpace: rdmacm.TCP}
	if e.server {
		hints.Flags = rdmacm.Passive
	}
	fmt.Fprintln(e.out, "rdma_getaddrinfo")
	infos := try.Get(e.host.GetAddrInfo(ctx, e.serverName, e.serverPort, &hints))
	fmt.Fprintln(e.out, "rdma_create_ep")
	config := roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}}
	e.id = try.Get(e.host.CreateEP(ctx, infos[0], nil, &config))
	e.opened.Add(e.id.DestroyEP)
}

// getConnectRequest waits for a request of the client. Its ID has a queue pair.
func (e *example) getConnectRequest(ctx context.Context) {
	fmt.Fprintln(e.out, "rdma_listen")
	try.Do(e.id.Listen(4))
	fmt.Fprintln(e.out, "rdma_get_request")
	e.id = try.Get(e.id.GetRequest(ctx))
	e.opened.Add(e.id.DestroyEP)
}

// regMem registers the memory of messages.
func (e *example) regMem() {
	e.sendMR = try.Get(e.id.RegMsgs(bytes.Repeat([]byte{0x12}, e.msgLength)))
	e.recvMR = try.Get(e.id.RegMsgs(make([]byte, e.msgLength)))
	e.opened.Add(e.sendMR.Close, e.recvMR.Close)
}

// establishConnection posts the first receive, and connects or accepts. The program in C expects its peer's LID
// in 4 bytes of private data. A LID of RoCE is 0.
func (e *example) establishConnection(ctx context.Context) {
	e.postRecv()
	param := rdmacm.ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, 0), ResponderResources: 2, InitiatorDepth: 2, RetryCount: 5, RNRRetryCount: 5}
	call, connect := "rdma_connect", e.id.Connect
	if e.server {
		call, connect = "rdma_accept", e.id.Accept
	}
	fmt.Fprintln(e.out, call)
	try.Do(connect(ctx, param))
}

// postRecv posts a receive for one message.
func (e *example) postRecv() { try.Do(e.id.PostRecv(0, e.recvMR.SGE(0, e.msgLength))) }

// sendMsg sends message i and waits for its completion. The client disconnects as soon as it has the
// last message of the server: the disconnection may come before the acknowledgement, and flush it.
func (e *example) sendMsg(ctx context.Context, i int) {
	try.Do(e.id.PostSend(0, roce.Signaled, e.sendMR.SGE(0, e.msgLength)))
	wc, err := e.id.SendComp(ctx)
	if err = cmp.Or(err, wc.Err()); !(errors.Is(err, roce.ErrFlushed) && e.server && i == e.msgCount-1) {
		try.Do(err)
	}
	fmt.Fprintf(e.out, "send: %d\n", i+1)
}

// recvMsg waits for message i of the peer and posts the receive again.
func (e *example) recvMsg(ctx context.Context, i int) {
	wc := try.Get(e.id.RecvComp(ctx))
	try.Do(wc.Err())
	fmt.Fprintf(e.out, "recv: %d\n", i+1)
	e.postRecv()
}

// wait waits between messages, so that the user has time to break the first path.
func (e *example) wait(ctx context.Context) {
	select {
	case <-time.After(time.Duration(e.msecDelay) * time.Millisecond):
	case <-ctx.Done():
		try.Do(ctx.Err())
	}
}

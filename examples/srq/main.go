// Command srq is the example of shared receive queues of the RDMA Aware Networks manual, srq.c, in
// Go. Several queue pairs of each side take their receives from one queue. The client sends on all queue pairs until
// the server's queue may be empty. Then it waits for a message of the server, which confirms that all have arrived.
// Either end may be the program in C.
//
//	server$ srq -s -a 10.0.0.1
//	client$ srq -a 10.0.0.1
//
// The functions have the names of the C program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/rdmacm"
)

// options are the user's parameters.
type options struct {
	server     bool
	serverName string
	serverPort string
	msgCount   int
	msgLength  int
	qpCount    int
	maxWR      int
	dev        string
}

// example is struct context of the C program.
type example struct {
	options
	out     io.Writer
	host    *rdmacm.Host
	info    rdmacm.AddrInfo
	srqID   *rdmacm.ID // has the shared receive queue, and is the server's listener
	connID  []*rdmacm.ID
	sendMR  *roce.MR
	recvMR  *roce.MR
	srqCQ   *roce.CQ // of the receives of all queue pairs
	channel *roce.CompChannel
}

func main() { try.Main("srq", run) }

// run is main of the C program.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Catch(&err)
	o := try.Get(parse(args))
	device := try.Get(nic.Open(o.dev, o.serverName))
	defer device.Close()
	host := try.Get(rdmacm.NewHost(device))
	defer host.Close()
	e := &example{options: o, out: out, host: host}
	hints := rdmacm.AddrInfo{PortSpace: rdmacm.TCP}
	if o.server {
		hints.Flags = rdmacm.Passive
	}
	e.info = try.Get(host.GetAddrInfo(ctx, o.serverName, o.serverPort, &hints))[0]
	if o.server {
		err = e.runServer(ctx)
	} else {
		err = e.runClient(ctx)
	}
	return errors.Join(err, e.destroyResources(ctx))
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("srq", flag.ContinueOnError)
	f.BoolVar(&o.server, "s", false, "server mode")
	f.StringVar(&o.serverName, "a", "", "`address` of the server")
	f.StringVar(&o.serverPort, "p", "51216", "`port`")
	f.IntVar(&o.msgCount, "c", 100, "messages of the client")
	f.IntVar(&o.msgLength, "l", 100000, "bytes of a message")
	f.IntVar(&o.qpCount, "q", 4, "queue pairs")
	f.IntVar(&o.maxWR, "w", 64, "receives of the shared receive queue")
	f.StringVar(&o.dev, "dev", "", nic.Usage)
	if err := f.Parse(args); err != nil {
		return o, err
	}
	if o.serverName == "" {
		return o, errors.New("server address required (use -a)")
	}
	if o.msgCount < 1 || o.msgLength < 1 || o.qpCount < 1 || o.maxWR < 1 {
		return o, errors.New("-c, -l, -q and -w begin at 1")
	}
	if o.server && o.dev == "" {
		o.dev = o.serverName
	}
	return o, nil
}

// initResources makes what the queue pairs share: memory, the shared receive queue with its
// receives, and the completion queue of receives with its channel.
func (e *example) initResources(ctx context.Context) {
	e.srqID = try.Get(e.host.CreateID(nil, rdmacm.TCP, nil))
	// The ID has a device when it has an address, or knows the peer's.
	if e.server {
		try.Do(e.srqID.Bind(e.info.Src))
	} else {
		try.Do(e.srqID.ResolveAddr(ctx, e.info.Src, e.info.Dst, 0))
	}
	e.recvMR = try.Get(e.srqID.RegMsgs(make([]byte, e.msgLength)))
	e.sendMR = try.Get(e.srqID.RegMsgs(make([]byte, e.msgLength)))
	try.Do(e.srqID.CreateSRQ(nil, roce.SRQConfig{MaxWR: e.maxWR, MaxSGE: 1}))
	for range e.maxWR {
		e.postRecv(0)
	}
	e.channel = try.Get(e.srqID.Device().CreateCompChannel())
	e.srqCQ = try.Get(e.srqID.Device().CreateCQWith(roce.CQConfig{Entries: e.maxWR, Channel: e.channel}))
	try.Do(e.srqCQ.RequestNotify(false)) // for the first completion
}

// qpConfig makes a queue pair that takes from the shared receive queue.
func (e *example) qpConfig() roce.QPConfig {
	return roce.QPConfig{Type: roce.RC, RecvCQ: e.srqCQ, SRQ: e.srqID.SRQ(), UserData: e,
		Caps: roce.Caps{MaxSendWR: e.maxWR, MaxRecvWR: e.maxWR, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// postRecv posts a receive on the shared receive queue. All receives use the same memory.
func (e *example) postRecv(wrID uint64) {
	try.Do(e.srqID.PostRecv(wrID, e.recvMR.SGE(0, e.msgLength)))
}

// send sends a message on a connection and waits for the completion.
func (e *example) send(ctx context.Context, id *rdmacm.ID) (roce.WC, error) {
	if err := id.PostSend(0, roce.Signaled, e.sendMR.SGE(0, e.msgLength)); err != nil {
		return roce.WC{}, err
	}
	wc, err := id.SendComp(ctx)
	if err != nil {
		return wc, err
	}
	return wc, wc.Err()
}

// awaitCompletion waits for an event of the completion channel, and asks for the next one.
func (e *example) awaitCompletion(ctx context.Context) {
	cq := try.Get(e.channel.Next(ctx))
	try.Do(cq.RequestNotify(false))
}

// receive calls f for every present completion of a receive, and posts the receive again.
func (e *example) receive(f func(wc *roce.WC)) {
	for wcs := make([]roce.WC, 1); e.srqCQ.Poll(wcs) > 0; {
		try.Do(wcs[0].Err())
		f(&wcs[0])
		e.postRecv(wcs[0].ID)
	}
}

// runServer accepts the connections, and answers whenever the queue may have become empty.
func (e *example) runServer(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e.initResources(ctx)
	try.Do(e.srqID.Listen(4))
	fmt.Fprintln(e.out, "waiting for connection from client...")
	for range e.qpCount {
		id := try.Get(e.srqID.GetRequest(ctx))
		e.connID = append(e.connID, id)
		try.Do(id.CreateQP(nil, e.qpConfig()))
		try.Do(id.Accept(ctx, rdmacm.ConnParam{}))
	}
	for sent, received := 0, 0; received < e.msgCount; {
		for i := 0; i < e.maxWR && received < e.msgCount; {
			e.awaitCompletion(ctx)
			e.receive(func(wc *roce.WC) {
				received++
				i++
				fmt.Fprintf(e.out, "recv count: %d, qp_num: %d\n", received, wc.QPN)
			})
		}
		// The client disconnects as soon as it has the last message: the disconnection may come before
		// the acknowledgement, and flush it.
		if _, err := e.send(ctx, e.connID[0]); err != nil && !(errors.Is(err, roce.ErrFlushed) && received == e.msgCount) {
			return err
		}
		sent++
		fmt.Fprintf(e.out, "send count: %d\n", sent)
	}
	return nil
}

// runClient connects the queue pairs and sends on each in turn.
func (e *example) runClient(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e.initResources(ctx)
	for range e.qpCount {
		config := e.qpConfig()
		id := try.Get(e.host.CreateEP(ctx, e.info, nil, &config))
		e.connID = append(e.connID, id)
		try.Do(id.Connect(ctx, rdmacm.ConnParam{}))
	}
	for sent, received := 0, 0; sent < e.msgCount; {
		for i := 0; i < e.maxWR && sent < e.msgCount; i++ {
			wc := try.Get(e.send(ctx, e.connID[i%e.qpCount]))
			sent++
			fmt.Fprintf(e.out, "send count: %d, qp_num: %d\n", sent, wc.QPN)
		}
		// Wait until the server has processed all.
		e.awaitCompletion(ctx)
		e.receive(func(*roce.WC) {
			received++
			fmt.Fprintf(e.out, "recv count: %d\n", received)
		})
	}
	return nil
}

// destroyResources disconnects, and destroys most objects. Closing the device closes the rest.
func (e *example) destroyResources(ctx context.Context) (err error) {
	for _, id := range e.connID {
		if q := id.QP(); q != nil && q.State() == roce.StateRTS {
			err = errors.Join(err, id.Disconnect(ctx))
		}
		err = errors.Join(err, id.DestroyQP(), id.Destroy())
	}
	for _, mr := range []*roce.MR{e.recvMR, e.sendMR} {
		if mr != nil {
			err = errors.Join(err, mr.Close())
		}
	}
	if e.srqID != nil {
		err = errors.Join(err, e.srqID.DestroySRQ(), e.srqID.Destroy())
	}
	return err
}

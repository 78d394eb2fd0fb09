// Command multicast is the example of multicast of the RDMA Aware Networks manual, mc.c, in Go: UD
// queue pairs join a group, and one of them sends to it. Any end may be the program in C.
//
//	receiver$ multicast -m 239.77.1.4 -b 10.0.0.1
//	sender$   multicast -s -m 239.77.1.4 -b 10.0.0.2
//
// The functions have the names of the C program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/rdmacm"
)

// options are the user's parameters.
type options struct {
	sender     bool
	bindAddr   netip.Addr // the zero Addr: the host's routes decide
	mcastAddr  netip.Addr
	serverPort string // accepted and unused, as in the program in C
	msgCount   int
	msgLength  int
	dev        string
}

// example is struct context of the C program.
type example struct {
	options
	out       io.Writer
	events    *rdmacm.Channel
	id        *rdmacm.ID
	cq        *roce.CQ
	mr        *roce.MR
	ah        *roce.AH
	remoteQPN roce.QPN
	remoteKey roce.QKey
}

func main() { try.Main("multicast", run) }

// run reads the command line and opens the device.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	defer try.Catch(&err)
	o := try.Get(parse(args))
	device := try.Get(o.open())
	defer device.Close()
	return o.run(ctx, device, out)
}

// open opens the interface that the group is joined on.
func (o *options) open() (*roce.Device, error) {
	switch {
	case o.dev != "":
		return nic.Open(o.dev, "")
	case o.bindAddr.IsValid():
		return nic.OpenInterfaceOf(o.bindAddr)
	}
	return nic.OpenInterfaceToward(o.mcastAddr)
}

// parse reads the command line.
func parse(args []string) (o options, err error) {
	f := flag.NewFlagSet("multicast", flag.ContinueOnError)
	f.BoolVar(&o.sender, "s", false, "sender mode")
	f.TextVar(&o.bindAddr, "b", netip.Addr{}, "`address` of this host to bind to")
	f.TextVar(&o.mcastAddr, "m", netip.Addr{}, "`address` of the group")
	f.StringVar(&o.serverPort, "p", "51216", "`port` (not used)")
	f.IntVar(&o.msgCount, "c", 4, "messages")
	f.IntVar(&o.msgLength, "l", 64, "bytes of a message")
	f.StringVar(&o.dev, "dev", "", "network `interface` (packet sockets, CAP_NET_RAW); empty: that of -b, over UDP sockets")
	switch err := f.Parse(args); {
	case err != nil:
		return o, err
	case !o.mcastAddr.IsValid():
		return o, errors.New("multicast address must be specified with -m")
	case o.msgCount < 1 || o.msgLength < 1:
		return o, errors.New("-c and -l begin at 1")
	}
	return o, nil
}

// run is main of the C program after it has read its parameters.
func (o options) run(ctx context.Context, device *roce.Device, out io.Writer) error {
	host, err := rdmacm.NewHost(device)
	if err != nil {
		return err
	}
	defer host.Close()
	e := &example{options: o, out: out, events: host.NewChannel()}
	defer e.events.Close()
	if e.id, err = host.CreateID(e.events, rdmacm.UDP, nil); err != nil {
		return err
	}
	return errors.Join(e.exchange(ctx), e.destroyResources())
}

// exchange joins the group, sends or receives the messages, and leaves the group.
func (e *example) exchange(ctx context.Context) (err error) {
	defer try.Catch(&err)
	e.resolveAddr(ctx)
	port := try.Get(e.id.Device().QueryPort(1))
	if mtu := port.ActiveMTU.Bytes(); e.msgLength > mtu { // a datagram is one packet
		return fmt.Errorf("buffer length %d is larger than active mtu %d", e.msgLength, mtu)
	}
	e.createResources()
	if !e.sender {
		for range e.msgCount { // into the same memory
			try.Do(e.id.PostRecv(0, e.mr.SGE(0, e.mr.Len())))
		}
	}
	e.join(ctx)
	defer e.cmEvents(ctx)()
	if !e.sender {
		fmt.Fprintln(e.out, "waiting for messages...")
	}
	for i := range e.msgCount {
		did := "received"
		if e.sender {
			did = "sent"
			try.Do(e.postSend())
		}
		wc := try.Get(e.cq.Next(ctx)) // get_completion
		try.Do(wc.Err())
		fmt.Fprintf(e.out, "%s message %d\n", did, i+1)
	}
	return e.id.LeaveMulticast(e.mcastAddr)
}

// getCMEvent waits for the next event, which must have the type want.
func (e *example) getCMEvent(ctx context.Context, want rdmacm.EventType) *rdmacm.Event {
	event := try.Get(e.events.Next(ctx))
	if event.Type != want {
		try.Do(fmt.Errorf("event: %v, status: %d: %w", event.Type, event.Status, event.Err))
	}
	return event
}

// cmEvents prints events until the returned function is called (cm_thread).
func (e *example) cmEvents(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			event, err := e.events.Next(ctx)
			if err != nil {
				return
			}
			fmt.Fprintf(e.out, "event %v, status %d\n", event.Type, event.Status)
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// resolveAddr binds the ID to an address, and so to the device, and resolves the group.
func (e *example) resolveAddr(ctx context.Context) {
	if e.bindAddr.IsValid() {
		try.Do(e.id.Bind(netip.AddrPortFrom(e.bindAddr, 0)))
	}
	try.Do(e.id.ResolveAddr(ctx, netip.AddrPort{}, netip.AddrPortFrom(e.mcastAddr, 0), 0))
	e.getCMEvent(ctx, rdmacm.AddrResolved)
}

// createResources makes the completion queue, the queue pair and the memory, with the protection domain of the ID. (The
// completion queue of the program in C always has room for two completions.)
func (e *example) createResources() {
	e.cq = try.Get(e.id.Device().CreateCQ(e.msgCount))
	config := roce.QPConfig{Type: roce.UD, SendCQ: e.cq, RecvCQ: e.cq, Caps: roce.Caps{MaxSendWR: e.msgCount, MaxRecvWR: e.msgCount, MaxSendSGE: 1, MaxRecvSGE: 1}}
	try.Do(e.id.CreateQP(nil, config))
	size := e.msgLength
	if !e.sender { // a receiver needs room for the GRH
		size += roce.GRHLen
	}
	e.mr = try.Get(e.id.RegMsgs(make([]byte, size)))
}

// join joins the group. The event has the address vector of the group.
func (e *example) join(ctx context.Context) {
	try.Do(e.id.JoinMulticast(ctx, e.mcastAddr, nil))
	event := e.getCMEvent(ctx, rdmacm.MulticastJoin)
	// RoCE has neither LIDs nor service levels.
	fmt.Fprintf(e.out, "joined dgid: %v, mlid 0x%x, sl %d\n", event.UD.AHAttr.DGID, 0, 0)
	e.remoteQPN, e.remoteKey = event.UD.QPN, event.UD.QKey
	if e.sender {
		e.ah = try.Get(e.id.Device().CreateAH(ctx, event.UD.AHAttr))
	}
}

// postSend sends a message to the group. Its immediate data is the number of the queue pair.
func (e *example) postSend() error {
	for i := range e.mr.Bytes() {
		e.mr.Bytes()[i] = 0x12
	}
	return e.id.QP().PostSend(&roce.SendWR{Opcode: roce.SendImm, Flags: roce.Signaled, SG: []roce.SGE{e.mr.SGE(0, e.msgLength)},
		Imm: uint32(e.id.QP().Num()), AH: e.ah, RemoteQPN: e.remoteQPN, RemoteQKey: e.remoteKey})
}

// destroyResources destroys all objects. The program need not destroy an address handle.
func (e *example) destroyResources() (err error) {
	err = e.id.DestroyQP()
	if e.cq != nil {
		err = errors.Join(err, e.cq.Close())
	}
	if e.mr != nil {
		err = errors.Join(err, e.mr.Close())
	}
	return errors.Join(err, e.id.Destroy())
}

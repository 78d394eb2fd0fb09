// Command kofi finalizes connections as the kernel OpenFabrics Interfaces (kOFI) explain it, with libfabric's
// connected endpoints (package ofi): a server waits for a request and accepts or rejects it, and a client connects.
// Either end may be the same program in C on libfabric's verbs provider.
//
//	kofi -s ADDRESS PORT	the server
//	kofi ADDRESS PORT	the client; -private "" is rejected
//
// server.go and client.go have the flows of the two ends.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"

	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/ofi"
)

const (
	privateData = "Private Data"         // what the server expects of a client
	greeting    = "*** Client Connected" // what the client sends
	postDepth   = 16                     // work requests of a queue
)

// application is application_context_t: the objects of one end.
type application struct {
	out    io.Writer
	fabric *ofi.Fabric
	domain *ofi.Domain
	ep     *ofi.Endpoint
	eq     *ofi.EQ
	sendCQ *ofi.CQ
	recvCQ *ofi.CQ
	mr     *ofi.MR
	buf    []byte
	opened try.Opened
}

func main() { try.Main("kofi", run) }

// run is one end.
func run(ctx context.Context, args []string, out io.Writer) (err error) {
	f := flag.NewFlagSet("kofi", flag.ContinueOnError)
	server := f.Bool("s", false, "serve at ADDRESS PORT")
	private := f.String("private", privateData, "private `data` of the client")
	dev := f.String("dev", "", nic.Usage)
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 2 {
		return errors.New("usage: kofi [-s] ADDRESS PORT")
	}
	node, service, flags := f.Arg(0), f.Arg(1), ofi.Flags(0)
	if *server {
		flags = ofi.Source // the address is of this side
		if *dev == "" {
			*dev = node
		}
	}
	device, err := nic.Open(*dev, node)
	if err != nil {
		return err
	}
	defer device.Close()
	info, err := ofi.GetInfo(device, node, service, flags, nil) // fi_getinfo
	if err != nil {
		return err
	}
	ctxt := &application{out: out, buf: make([]byte, 64)}
	if ctxt.fabric, err = ofi.OpenFabric(info); err != nil { // fi_fabric
		return err
	}
	defer ctxt.opened.Close(&err)  // fi_close, in reverse
	ctxt.eq = ctxt.fabric.OpenEQ() // fi_eq_open
	ctxt.opened.Add(ctxt.fabric.Close, ctxt.eq.Close)
	if *server {
		return ctxt.server(ctx, info)
	}
	return ctxt.client(ctx, info, *private)
}

// open makes the domain, the endpoint and its queues, and enables it.
func (a *application) open(info *ofi.Info) (err error) {
	defer try.Catch(&err)
	a.domain = try.Get(a.fabric.OpenDomain(info)) // fi_domain
	a.mr = try.Get(a.domain.RegMR(a.buf, 0))      // fi_mr_reg
	a.opened.Add(a.domain.Close, a.mr.Close)
	info.TxSize, info.RxSize = postDepth, postDepth               // the depth of the queues
	info.IOVLimit = 1                                             // pieces of a message
	a.ep = try.Get(a.domain.OpenEndpoint(info, a))                // fi_endpoint
	a.sendCQ = try.Get(a.domain.OpenCQ(postDepth, ofi.FormatMsg)) // fi_cq_open
	a.recvCQ = try.Get(a.domain.OpenCQ(postDepth, ofi.FormatMsg))
	a.opened.Add(a.sendCQ.Close, a.recvCQ.Close, a.ep.Close)
	try.Do(a.ep.BindEQ(a.eq))                  // fi_ep_bind
	try.Do(a.ep.BindCQ(a.sendCQ, true, false)) // with FI_TRANSMIT
	try.Do(a.ep.BindCQ(a.recvCQ, false, true)) // with FI_RECV
	return a.ep.Enable()                       // fi_enable
}

// event waits for the next event (fi_eq_sread), which must have the type want and belong to the endpoint.
func (a *application) event(ctx context.Context, want ofi.EventType) (ofi.Event, error) {
	event, err := a.eq.Read(ctx) // an *ofi.EQError has the data of fi_eq_readerr
	if err != nil {
		return event, err
	}
	if event.Type != want {
		return event, fmt.Errorf("unexpected event %v instead of %v", event.Type, want)
	}
	if event.Endpoint != a.ep { // for a request, both are nil
		return event, fmt.Errorf("event %v of endpoint %p instead of %p", event.Type, event.Endpoint, a.ep)
	}
	return event, nil
}

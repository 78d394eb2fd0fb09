package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/ofi"
)

// server waits for one request, accepts it, and receives a message.
func (a *application) server(ctx context.Context, info *ofi.Info) (err error) {
	defer try.Catch(&err)
	pep := try.Get(a.fabric.OpenPassive(info, a.eq, a)) // fi_passive_ep, fi_pep_bind
	a.opened.Add(pep.Close)
	try.Do(pep.Listen())                                // fi_listen
	fmt.Fprintf(a.out, "listening on %v\n", pep.Name()) // fi_getname
	request := try.Get(a.event(ctx, ofi.ConnRequest))
	try.Do(a.accept(request))
	try.Get(a.event(ctx, ofi.Connected))
	if peer, err := a.ep.Peer(); err == nil { // fi_getpeer
		fmt.Fprintf(a.out, "connected with %v\n", peer.Addr())
	}
	entry := make([]ofi.Entry, 1)
	try.Get(a.recvCQ.SRead(ctx, entry)) // fi_cq_sread
	fmt.Fprintf(a.out, "received '%s'\n", a.buf[:entry[0].Len])
	try.Get(a.event(ctx, ofi.Shutdown))
	fmt.Fprintln(a.out, "shut down")
	return nil
}

// accept makes an endpoint for a request and accepts it. If that fails, it rejects the request, with the reason as
// private data.
func (a *application) accept(request ofi.Event) (err error) {
	defer func() {
		if err != nil {
			reason := fmt.Sprintf("Rejected '%v'", err)
			err = errors.Join(err, request.Info.Request.Reject([]byte(reason[:min(len(reason), ofi.MaxPrivateData)]))) // fi_reject
		}
	}()
	if string(request.Data) != privateData {
		return fmt.Errorf("private data %q", request.Data)
	}
	if err := a.open(request.Info); err != nil {
		return err
	}
	if err := a.ep.Recv(a.buf, a.mr.Desc(), a); err != nil { // fi_recv: before the client can send
		return err
	}
	return a.ep.Accept(nil) // fi_accept
}

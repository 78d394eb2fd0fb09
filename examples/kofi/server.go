package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/roce/ofi"
)

// server waits for one request, accepts it, and receives a message.
func (a *application) server(ctx context.Context, info *ofi.Info) error {
	pep, err := a.fabric.OpenPassive(info, a.eq, a) // fi_passive_ep, fi_pep_bind
	if err != nil {
		return err
	}
	a.opened.Add(pep.Close)
	if err := pep.Listen(); err != nil { // fi_listen
		return err
	}
	fmt.Fprintf(a.out, "listening on %v\n", pep.Name()) // fi_getname
	request, err := a.event(ctx, ofi.ConnRequest)
	if err != nil {
		return err
	}
	if err := a.accept(request); err != nil {
		return err
	}
	if _, err := a.event(ctx, ofi.Connected); err != nil {
		return err
	}
	if peer, err := a.ep.Peer(); err == nil { // fi_getpeer
		fmt.Fprintf(a.out, "connected with %v\n", peer.Addr())
	}
	entry := make([]ofi.Entry, 1)
	if _, err := a.recvCQ.SRead(ctx, entry); err != nil { // fi_cq_sread
		return err
	}
	fmt.Fprintf(a.out, "received '%s'\n", a.buf[:entry[0].Len])
	if _, err := a.event(ctx, ofi.Shutdown); err != nil {
		return err
	}
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

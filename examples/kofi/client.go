package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/goroce/roce/examples/internal/try"
	"github.com/goroce/roce/ofi"
)

// client connects and sends a message.
func (a *application) client(ctx context.Context, info *ofi.Info, private string) (err error) {
	defer try.Catch(&err)
	try.Do(a.open(info))
	try.Do(a.ep.Connect(netip.AddrPort{}, []byte(private))) // fi_connect, to the address in info
	// Do something useful, or wait for the server to accept.
	event, err := a.event(ctx, ofi.Connected)
	if rejected := new(ofi.EQError); errors.As(err, &rejected) {
		return fmt.Errorf("rejected: %q: %w", rejected.Data, err)
	}
	if err != nil {
		return err // not try.Do: Catch would join err with itself
	}
	if event.Endpoint.Context() != a { // the argument of OpenEndpoint
		return errors.New("the event is of another context")
	}
	fmt.Fprintln(a.out, greeting)
	fmt.Fprintf(a.out, "Client private data(len %d): '%s'\n", len(event.Data), event.Data)
	n := copy(a.buf, greeting)
	try.Do(a.ep.Send(a.buf[:n], a.mr.Desc(), a)) // fi_send
	try.Get(a.sendCQ.SRead(ctx, make([]ofi.Entry, 1)))
	return a.ep.Shutdown(ctx) // fi_shutdown
}

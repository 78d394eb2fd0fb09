// Package cmprobe probes whether a listener of the RDMA connection manager accepts connections. To test clients, it also
// rejects all connections and requests for UD queue pairs.
package cmprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
)

// Verdict is the outcome of a probe.
type Verdict string

// The verdicts.
const (
	Accepted    Verdict = "accepted"
	Rejected    Verdict = "rejected"
	Unreachable Verdict = "unreachable" // no answer, or no route
)

// Result is the result of a probe.
type Result struct {
	Addr    string        `json:"addr"`
	Verdict Verdict       `json:"verdict"`
	Reason  int           `json:"reason,omitempty"` // of the rejection, as on the wire: 8 no program listens, 28 the application refused
	Text    string        `json:"text,omitempty"`   // the name of the reason, or why the listener is unreachable
	Private []byte        `json:"private_data,omitempty"`
	Time    time.Duration `json:"nanoseconds"` // until the answer, or until the probe gave up
}

// Probe connects to addr ("host:port") and disconnects. It gives up after wait. After a local error, or the end of ctx,
// there is no verdict.
func Probe(ctx context.Context, d *roce.Device, addr string, private []byte, wait time.Duration) (Result, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	start := time.Now()
	conn, err := d.Dial(limited, addr, roce.DialConfig{Param: roce.ConnParam{PrivateData: private}})
	r := Result{Addr: addr, Time: time.Since(start)}
	reject, rejected := errors.AsType[*roce.RejectError](err)
	switch {
	case err == nil:
		r.Verdict, r.Private = Accepted, trim(conn.PrivateData())
		return r, disconnect(ctx, conn)
	case rejected:
		r.Verdict, r.Reason, r.Text, r.Private = Rejected, int(reject.Reason), reject.Reason.String(), trim(reject.PrivateData)
	case ctx.Err() != nil:
		return r, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		r.Verdict, r.Text = Unreachable, fmt.Sprintf("no answer within %v", wait)
	case unreachable(err):
		r.Verdict, r.Text = Unreachable, err.Error()
	default:
		return r, err
	}
	return r, nil
}

// disconnectLimit is how long the peer may take to confirm the end.
const disconnectLimit = 10 * time.Second

func disconnect(ctx context.Context, conn *roce.Conn) error {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, disconnectLimit)
	defer cancel()
	return conn.Disconnect(ctx)
}

// unreachable reports whether err means that the peer did not answer or has no route. Other errors are local.
func unreachable(err error) bool {
	return errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ENETUNREACH)
}

// trim removes the padding of private data.
func trim(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// String returns the result on one line.
func (r Result) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s", r.Addr, r.Verdict)
	if r.Reason != 0 {
		fmt.Fprintf(&b, ", reason %d", r.Reason)
	}
	if r.Text != "" {
		fmt.Fprintf(&b, " (%s)", r.Text)
	}
	fmt.Fprintf(&b, " after %.3f ms", float64(r.Time)/float64(time.Millisecond))
	if len(r.Private) > 0 {
		fmt.Fprintf(&b, ", private data %q", r.Private)
	}
	return b.String()
}

// request is a request for a connection, or for a UD queue pair.
type request interface {
	RemoteAddr() netip.AddrPort
	Reject(private []byte) error
}

// Reject listens at addr ("host:port") and rejects the next count connections and requests for UD
// queue pairs, with count 0 all until ctx ends, with private data for the peer's application. It
// calls seen for each.
func Reject(ctx context.Context, d *roce.Device, addr string, private []byte, count int, listening, seen func(netip.AddrPort)) error {
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	u, err := d.ListenUD(ctx, l.Addr().String(), roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer u.Close()
	listening(l.Addr())
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	requests, failed := make(chan request), make(chan error, 2)
	go take(ctx, l.Accept, requests, failed)
	go take(ctx, u.Accept, requests, failed)
	for n := 0; count == 0 || n < count; n++ {
		select {
		case r := <-requests:
			if err := r.Reject(fit(r, private)); err != nil {
				return err
			}
			seen(r.RemoteAddr())
		case err := <-failed:
			if errors.Is(err, context.Canceled) && count == 0 {
				return nil
			}
			return err
		}
	}
	return nil
}

// take passes requests on until there are no more.
func take[R request](ctx context.Context, accept func(context.Context) (R, error), requests chan<- request, failed chan<- error) {
	for {
		r, err := accept(ctx)
		if err != nil {
			failed <- err
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done(): // Reject has rejected count requests, or was cancelled
			failed <- ctx.Err()
			return
		}
	}
}

// fit cuts private data to the room in the answer to a request.
func fit(r request, private []byte) []byte {
	if _, datagrams := r.(*roce.UDRequest); datagrams {
		return private[:min(len(private), cm.SIDRREPPrivateLen)]
	}
	return private
}

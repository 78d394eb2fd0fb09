// Package cmprobe asks a listener of the RDMA connection manager whether it
// accepts connections, and ends one it gets at once.
package cmprobe

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/goroce/roce"
)

// Verdict is how a probe went.
type Verdict string

// The verdicts.
const (
	Accepted    Verdict = "accepted"
	Rejected    Verdict = "rejected"
	Unreachable Verdict = "unreachable" // no answer, or no way there
)

// Result is what a probe found.
type Result struct {
	Addr    string        `json:"addr"`
	Verdict Verdict       `json:"verdict"`
	Reason  int           `json:"reason,omitempty"` // of the rejection, as on the wire: 8 nobody listens, 28 the application refused
	Text    string        `json:"text,omitempty"`   // the same in words, or why it is unreachable
	Private []byte        `json:"private_data,omitempty"`
	Time    time.Duration `json:"nanoseconds"` // until the answer, or until it was given up
}

// Probe connects to addr ("host:port") and disconnects. It gives up after wait.
// The error is one of this side, or that ctx ended: then there is no verdict.
func Probe(ctx context.Context, d *roce.Device, addr string, private []byte, wait time.Duration) (Result, error) {
	limited, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	p := roce.DefaultConnParam
	p.PrivateData = private
	start := time.Now()
	conn, err := d.Dial(limited, addr, roce.DialConfig{Param: p})
	r := Result{Addr: addr, Time: time.Since(start)}
	var reject *roce.RejectError
	switch {
	case err == nil:
		r.Verdict, r.Private = Accepted, trim(conn.PrivateData())
		return r, disconnect(ctx, conn)
	case errors.As(err, &reject):
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

// goodbye is how long the peer may take to confirm the end.
const goodbye = 10 * time.Second

func disconnect(ctx context.Context, conn *roce.Conn) error {
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, goodbye)
	defer cancel()
	return conn.Disconnect(ctx)
}

func unreachable(err error) bool {
	for _, e := range []syscall.Errno{syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// trim removes the zeros private data is padded with.
func trim(b []byte) []byte { return bytes.TrimRight(b, "\x00") }

// String prints the result on one line.
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

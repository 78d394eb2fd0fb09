// Package child runs this program again as a child process, in a network namespace and on one
// processor. The parent calls the child's methods by net/rpc over the child's standard input
// and output.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/rpc"
)

// service is the name under which a child serves its methods.
const service = "child"

// None is the type of the argument of a method without one, and of the result of a method without
// one.
type None bool

// ErrBroken means that a child has ended or does not answer in time. The parent must start a new
// one.
var ErrBroken = errors.New("the child has ended or hangs")

// conn joins two pipes into one connection.
type conn struct {
	io.Reader
	io.WriteCloser
}

// notifier calls ended when its reader ends.
type notifier struct {
	io.Reader
	ended func()
}

func (n notifier) Read(b []byte) (int, error) {
	got, err := n.Reader.Read(b)
	if err != nil {
		n.ended()
	}
	return got, err
}

// Serve reads calls of the methods of receiver from in, and writes the results to out. When in
// ends, it calls ended, waits for the methods that are still running, and returns.
func Serve(in io.Reader, out io.WriteCloser, receiver any, ended func()) error {
	s := rpc.NewServer()
	if err := s.RegisterName(service, receiver); err != nil {
		return err
	}
	s.ServeConn(conn{notifier{in, ended}, out})
	return nil
}

// Client calls the methods of a child.
type Client struct {
	name   string
	rpc    *rpc.Client
	broken bool
}

// NewClient returns a client that writes calls to to and reads results from from. Errors contain
// the name.
func NewClient(name string, to io.WriteCloser, from io.Reader) *Client {
	return &Client{name: name, rpc: rpc.NewClient(conn{from, to})}
}

// Go calls a method without waiting for its result. An arg or a result that is nil stands for
// [None].
func (c *Client) Go(method string, arg, result any) *rpc.Call {
	if arg == nil {
		arg = None(false)
	}
	if result == nil {
		result = new(None)
	}
	return c.rpc.Go(service+"."+method, arg, result, nil)
}

// Wait waits for the end of a call. The error is ErrBroken if the child ends, or if ctx ends
// first; any other error is the method's.
func (c *Client) Wait(ctx context.Context, call *rpc.Call) error {
	err := ErrBroken
	select {
	case <-call.Done:
		if _, failed := call.Error.(rpc.ServerError); failed || call.Error == nil {
			err = call.Error
		}
	case <-ctx.Done():
		err = fmt.Errorf("%w: %w", ErrBroken, context.Cause(ctx))
	}
	if err == nil {
		return nil
	}
	c.broken = c.broken || errors.Is(err, ErrBroken)
	return fmt.Errorf("%s: %s: %w", c.name, call.ServiceMethod, err)
}

// Call calls a method and waits for its result; see [Client.Wait].
func (c *Client) Call(ctx context.Context, method string, arg, result any) error {
	return c.Wait(ctx, c.Go(method, arg, result))
}

package acceptor_test

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
)

// A program that serves one peer at a time serves its peer even if strangers sent requests before, and gets the
// errors of local failures.
func TestOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		l, err := n.server.Listen(t.Context(), service, roce.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			n.forge(nil)
		}
		synctest.Wait()
		own := error(nil)
		type result struct {
			conn *roce.Conn
			err  error
		}
		served := make(chan result, 1)
		serve := func() {
			conn, err := acceptor.One(t.Context(), l, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
				return r.Accept(ctx, roce.AcceptConfig{Setup: func(*roce.QP) error { return own }})
			})
			served <- result{conn, err}
		}
		go serve()
		start := time.Now()
		c, err := n.client.Dial(t.Context(), service, roce.DialConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("connected after %v", took)
		}
		r := <-served
		if r.err != nil {
			t.Fatal(r.err)
		}
		r.conn.Close()
		c.Close()

		own = syscall.ENOMEM
		go serve()
		if _, err := n.client.Dial(t.Context(), service, roce.DialConfig{}); err == nil {
			t.Error("connected to a server that failed")
		}
		if r := <-served; !errors.Is(r.err, syscall.ENOMEM) {
			t.Errorf("served: %v, want the setup's error", r.err)
		}
		l.Close()
	})
}

// A flood of requests that evicts the current handshake does not end a program that serves one peer at a time.
func TestOneInFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		l, err := n.server.Listen(t.Context(), service, roce.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		n.forge(nil)
		began, flooded := false, make(chan struct{})
		served := make(chan error, 1)
		go func() {
			c, err := acceptor.One(t.Context(), l, func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
				if began && r.RemoteAddr().Addr() != n.client.GIDs()[0].Addr() {
					return nil, errors.Join(context.DeadlineExceeded, r.Reject(nil)) // to serve the next one
				}
				if !began {
					began = true
					for range 200 {
						n.forge(nil)
						synctest.Wait()
					}
					close(flooded)
				}
				return r.Accept(ctx, roce.AcceptConfig{})
			})
			if err == nil {
				defer c.Close()
			}
			served <- err
		}()
		<-flooded
		c, err := n.client.Dial(t.Context(), service, roce.DialConfig{})
		if err != nil {
			t.Error(err)
		} else {
			c.Close()
		}
		if err := <-served; err != nil {
			t.Errorf("the server ended: %v", err)
		}
	})
}

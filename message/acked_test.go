package message_test

import (
	"context"
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// If the peer acknowledged all messages before the connection broke for another reason, Close does not report missed
// messages.
func TestDisconnectAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		da, db := tooltest.Pair(t, fault.Config{})
		server, client := connectOn(t, da, db, message.Config{Depth: 32})
		e, err := server.Export(make([]byte, 64), message.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		token := e.Token()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		if err := client.Send(t.Context(), []byte("message")); err != nil {
			t.Fatal(err)
		}
		if _, err := server.Recv(t.Context(), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
		if err := client.Write(t.Context(), token, 0, []byte("refused")); err == nil {
			t.Fatal("the export is closed, but a Write to it succeeds")
		}
		<-client.Done()
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v, and the peer has every message", err)
		}
	})
}

// breakable is a connection that a test breaks. token is of an export that the client has closed.
type breakable struct {
	device         *roce.Device // the client's
	server, client *message.Conn
	token          message.Token
	cut            *atomic.Bool // the network loses every packet
}

func newBreakable(t *testing.T) *breakable {
	t.Helper()
	b := &breakable{cut: new(atomic.Bool)}
	da, db := tooltest.Pair(t, fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Func: func(fault.Direction, *bth.Packet) bool { return b.cut.Load() }}}})
	b.device = db
	b.server, b.client = connectOn(t, da, db, message.Config{Depth: 32})
	e, err := b.client.Export(make([]byte, 64), message.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	b.token = e.Token()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return b
}

// send sends some messages. With acked set the peer receives and acknowledges them, and send returns a minute later.
// Otherwise the network loses them.
func (b *breakable) send(t *testing.T, acked bool) {
	t.Helper()
	b.cut.Store(!acked)
	const messages = 3
	for range messages {
		if err := b.client.Send(t.Context(), []byte("message")); err != nil {
			t.Fatal(err)
		}
	}
	for range messages {
		if !acked {
			break
		}
		if _, err := b.server.Recv(t.Context(), make([]byte, 64)); err != nil {
			t.Fatal(err)
		}
	}
	if acked {
		time.Sleep(time.Minute)
	}
}

// When a connection has broken, Close and Disconnect report missed messages only if the peer has not acknowledged all
// messages.
func TestEndAfterBreak(t *testing.T) {
	for _, tt := range []struct {
		name   string
		acked  bool
		breaks func(t *testing.T, b *breakable)
	}{
		{"device closed, acknowledged", true, func(t *testing.T, b *breakable) { b.device.Close() }},
		{"device closed, not acknowledged", false, func(t *testing.T, b *breakable) { b.device.Close() }},
		{"device being closed, acknowledged", true, func(t *testing.T, b *breakable) { go b.device.Close() }},
		{"device being closed, not acknowledged", false, func(t *testing.T, b *breakable) { go b.device.Close() }},
		{"memory taken back, acknowledged", true, func(t *testing.T, b *breakable) {
			if err := b.server.Write(t.Context(), b.token, 0, []byte("refused")); err == nil {
				t.Error("the export is closed, but the peer's Write succeeds")
			}
			<-b.client.Done()
		}},
	} {
		for name, end := range map[string]func(*message.Conn) error{
			"Disconnect": func(c *message.Conn) error { return c.Disconnect(context.Background()) },
			"Close":      (*message.Conn).Close,
		} {
			t.Run(tt.name+"/"+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					b := newBreakable(t)
					b.send(t, tt.acked)
					tt.breaks(t, b)
					if err := end(b.client); errors.Is(err, syscall.ECONNRESET) == tt.acked {
						t.Errorf("the error is %v, and the peer has acknowledged every message: %v", err, tt.acked)
					}
				})
			})
		}
	}
}

package message_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// If the peer answers messages, they need no separate acknowledgements. Disconnect waits until messages without an answer
// are acknowledged.
func TestFewAcknowledgements(t *testing.T) {
	for _, depth := range []int{1, 3, 32} {
		t.Run(fmt.Sprint(depth), func(t *testing.T) { synctest.Test(t, func(t *testing.T) { fewAcknowledgements(t, depth) }) })
	}
}

func fewAcknowledgements(t *testing.T, depth int) {
	ctx := t.Context()
	a, b := tooltest.Pair(t, fault.Config{})
	server, client := connectOn(t, a, b, message.Config{MaxMessage: 100, Depth: depth, Linger: time.Minute})
	received := make(chan string, 10)
	go func() {
		buf := make([]byte, 100)
		for {
			n, err := server.Recv(ctx, buf)
			switch {
			case err != nil:
				close(received)
				return
			case string(buf[:n]) == "request":
				server.Send(ctx, buf[:n])
			default:
				received <- string(buf[:n])
			}
		}
	}()
	const trips = 1000
	before := b.Counters()
	for range trips {
		if err := client.Send(ctx, []byte("request")); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Recv(ctx, make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
	}
	after := b.Counters()
	// A round trip has two packets; with an acknowledgement for each it would have four. A peer with room for few messages
	// returns credits in separate messages.
	if n := after.SentPkts + after.RcvdPkts - before.SentPkts - before.RcvdPkts; depth >= 4 && n > 3*trips {
		t.Errorf("%d packets in %d round trips", n, trips)
	}
	const last = 5
	for i := range last {
		if err := client.Send(ctx, fmt.Append(nil, "last ", i)); err != nil {
			t.Fatal(err)
		}
	}
	began := time.Now()
	if err := client.Disconnect(context.Background()); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > time.Second { // simulated time
		t.Errorf("Disconnect waited for %v", took)
	}
	for i := range last {
		if got, want := <-received, fmt.Sprint("last ", i); got != want {
			t.Errorf("received %q, want %q", got, want)
		}
	}
}

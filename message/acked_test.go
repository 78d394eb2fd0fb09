package message_test

import (
	"testing"
	"testing/synctest"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// Messages that the peer has received, and acknowledged before the connection broke for another reason, are not
// reported as missed.
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
			t.Fatal("the peer's memory was taken back, and a Write succeeds")
		}
		<-client.Done()
		if err := client.Close(); err != nil {
			t.Errorf("Close: %v, and the peer has every message", err)
		}
	})
}

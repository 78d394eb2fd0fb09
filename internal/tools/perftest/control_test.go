package perftest

import (
	"errors"
	"io"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// The peer reads the last message, and ends the connection before its acknowledgement arrives: the message counts as
// sent, and the next Read says that the peer has hung up.
func TestMailboxPeerLeaves(t *testing.T) {
	lost := fault.Rule{Action: fault.Drop, Dir: fault.Tx, Op: fault.Is(bth.RCAck)}
	server, client := tooltest.Pair(t, fault.Config{Rules: []fault.Rule{lost}})
	l, err := server.Listen(t.Context(), tooltest.Server4+":7471", roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	c := config(t, "write_bw", func(*Config) {})
	left := make(chan error, 1)
	go func() {
		m, err := (&manager{dev: server, listen: l}).meet(t.Context(), &c)
		if err == nil {
			_, err = io.ReadFull(m, make([]byte, len("bye")))
			err = errors.Join(err, m.Close())
		}
		left <- err
	}()
	m, err := (&manager{dev: client, addr: l.Addr().String()}).meet(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if n, err := m.Write([]byte("bye")); n != len("bye") || err != nil {
		t.Errorf("Write returns %d and %v, want %d and no error", n, err, len("bye"))
	}
	if err := <-left; err != nil {
		t.Error(err)
	}
	if _, err := m.Read(make([]byte, 8)); err != io.EOF {
		t.Errorf("Read returns %v, want %v", err, io.EOF)
	}
}

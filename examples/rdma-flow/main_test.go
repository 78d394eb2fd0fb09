package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/examples/internal/ends"
	"github.com/goroce/roce/examples/internal/nic"
	"github.com/goroce/roce/rdmacm"
)

// The program runs against itself, from 127.0.0.1 to 127.0.0.3.
func TestBothEnds(t *testing.T) {
	const addr, port = "127.0.0.3", "7320"
	served, called := ends.Run(t, "listening on port",
		func(out io.Writer) error { return run(t.Context(), []string{"-s", addr, port}, out) },
		func(out io.Writer) error { return run(t.Context(), []string{"-c", addr, port}, out) })
	ends.WantLines(t, "server", served, "server: listening on port 7320\nserver: the region is as the client wrote it\ndisconnected\n")
	ends.WantLines(t, "client", called, "client: what was read is what was written\ndisconnected\n")
}

// The server notices a peer that disconnects before it has written anything.
func TestPeerLeaves(t *testing.T) {
	var server error
	ends.Run(t, "listening on port",
		func(out io.Writer) error {
			server = run(t.Context(), []string{"-s", "127.0.0.3", "7322"}, out)
			return nil
		},
		func(io.Writer) error { return connectAndLeave(t.Context(), "127.0.0.3", "7322") })
	if !errors.Is(server, roce.ErrFlushed) {
		t.Errorf("server: %v", server)
	}
}

// connectAndLeave connects to a server and disconnects at once.
func connectAndLeave(ctx context.Context, addr, port string) error {
	device, err := nic.Open("127.0.0.1", "")
	if err != nil {
		return err
	}
	defer device.Close()
	host, err := rdmacm.NewHost(device)
	if err != nil {
		return err
	}
	defer host.Close()
	infos, err := host.GetAddrInfo(ctx, addr, port, &rdmacm.AddrInfo{PortSpace: rdmacm.TCP})
	if err != nil {
		return err
	}
	id, err := host.CreateEP(ctx, infos[0], nil, &roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	if err := id.Connect(ctx, rdmacm.ConnParam{}); err != nil {
		return err
	}
	return errors.Join(id.Disconnect(ctx), id.DestroyEP())
}

// No server listens: the connection is refused.
func TestRefused(t *testing.T) {
	if err := run(t.Context(), []string{"-dev", "127.0.0.1", "-c", "127.0.0.1", "7321"}, io.Discard); err == nil {
		t.Error("no error")
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range [][]string{nil, {"-s"}, {"-c", "127.0.0.1"}, {"-s", "-c", "127.0.0.1", "1"}, {"-s", "127.0.0.1", "many"}} {
		if err := run(t.Context(), args, io.Discard); err == nil {
			t.Errorf("%q: no error", args)
		}
	}
}

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/tools/top"
)

// sampled is standard output of "rocectl top --json": it calls seen with the connections of each sample.
type sampled struct {
	seen func([]top.Row)
}

func (s *sampled) Write(b []byte) (int, error) {
	var one struct{ Connections []top.Row }
	if err := json.Unmarshal(b, &one); err != nil {
		return 0, fmt.Errorf("%w: %s", err, b)
	}
	s.seen(one.Connections)
	return len(b), nil
}

// The queue pairs of a process on a shared address are shown, with what they do.
func TestTopStack(t *testing.T) {
	const address = "127.0.7.9"
	server, err := roce.OpenAddr(netip.MustParseAddr(address), roce.InterfaceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := roce.OpenAddr(netip.MustParseAddr("127.0.7.10"), roce.InterfaceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := server.Listen(t.Context(), ":7471", roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			r.Accept(t.Context(), roce.AcceptConfig{})
		}
	}()
	conn, err := client.Dial(t.Context(), address+":7471", roce.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// A WRITE of no bytes after each sample, until one shows that something was sent and how long it took.
	write := func() {
		if err := conn.QP().PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled}); err != nil {
			t.Error(err)
		} else if _, err := conn.QP().SendCQ().Next(t.Context()); err != nil {
			t.Error(err)
		}
	}
	out := &sampled{func(rows []top.Row) {
		for _, r := range rows {
			if r.Local.QPN != uint32(conn.QP().Num()) || r.PID != os.Getpid() {
				continue
			}
			if r.State != "RTS" || r.Type != "RC" || r.Peer.Addr != address || r.Peer.QPN == 0 {
				t.Errorf("%+v", r)
			}
			if r.Rates.Sent > 0 && r.RTT > 0 {
				cancel()
				return
			}
		}
		write()
	}}
	var errs strings.Builder
	if code := run(ctx, []string{"top", "--json", "--interval", "20ms"}, out, &errs); code != exitOK || errs.Len() > 0 {
		t.Errorf("exit %d, %s", code, errs.String())
	}
	if ctx.Err() == nil {
		t.Error("it has ended by itself")
	}
}

// The packets on an interface are shown as connections.
func TestTopInterface(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began, code := make(chan struct{}), make(chan int, 1)
	var errs strings.Builder
	first := true
	out := &sampled{func(rows []top.Row) {
		if first {
			close(began)
			first = false
		}
		for _, r := range rows {
			if r.Type == "RC" && r.Sent > 10 && r.Received > 10 && r.SentBytes+r.ReceivedBytes > 3*20000 && r.Local.QPN != 0 && r.Peer.QPN != 0 && r.RTT > 0 {
				cancel()
			}
		}
	}}
	go b.Do(t, func() { code <- run(ctx, []string{"top", b.Interface, "--json", "--interval", "20ms"}, out, &errs) })
	select {
	case <-began:
	case c := <-code:
		t.Fatalf("exit %d, %s", c, errs.String())
	}
	transfer(t, a, b, fmt.Sprintf("-a %v --link udp", a.IP4))
	if c := <-code; c != exitOK || errs.Len() > 0 {
		t.Errorf("exit %d, %s", c, errs.String())
	}
}

func TestTopCommand(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string // parts of them
	}{
		{[]string{"--read", cleanPcap}, exitOK, "PROCESS  TYPE", ""},
		{[]string{"--read", cleanPcap, "--count", "1", "--json"}, exitOK, `"source":"` + cleanPcap, ""},
		{[]string{"--count", "1"}, exitOK, "connections\nPROCESS", ""},
		{[]string{"--read", "no-such-file"}, exitFailed, "", "no-such-file"},
		{[]string{"--read", "main.go"}, exitFailed, "", "main.go: pcap: not a valid capture"},
		{[]string{"--read", cleanPcap, "lo"}, exitUsage, "", "exclude one another"},
		{[]string{"--sort", "speed"}, exitUsage, "", "there are process, type"},
		{[]string{"--interval", "1ms"}, exitUsage, "", "less than 10ms"},
		{[]string{"--count", "-1"}, exitUsage, "", "negative"},
		{[]string{"nosuch0"}, exitFailed, "", "no such network interface"},
	} {
		code, stdout, stderr := rocectl(t, append([]string{"top"}, tt.args...)...)
		if code != tt.code || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
			t.Errorf("%v: exit %d\n%s%s", tt.args, code, stdout, stderr)
		}
	}
}

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

// sampled reads the output of "rocectl top --json" and calls seen with the connections of each sample.
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

// The queue pairs of devices are shown with their traffic, on shared and exclusive addresses, with UDP sockets, packet sockets and
// AF_XDP.
func TestTopStack(t *testing.T) {
	t.Run("udp", func(t *testing.T) {
		testTopStack(t, "udp 127.0.7.10", false, nil, func(addr string) (*roce.Device, error) {
			return roce.OpenAddr(netip.MustParseAddr(addr), roce.InterfaceConfig{})
		}, "127.0.7.9", "127.0.7.10")
	})
	t.Run("udp, exclusive", func(t *testing.T) {
		testTopStack(t, "udp 127.0.7.10", true, nil, func(addr string) (*roce.Device, error) {
			return roce.OpenAddr(netip.MustParseAddr(addr), roce.InterfaceConfig{Exclusive: true})
		}, "127.0.7.9", "127.0.7.10")
	})
	for _, c := range []roce.InterfaceConfig{{Driver: "raw"}, {Driver: "raw", Exclusive: true}, {Driver: "xdp"}} {
		t.Run(fmt.Sprintf("%s, exclusive %v", c.Driver, c.Exclusive), func(t *testing.T) {
			a, b := netlab.Pair(t, netlab.Config{})
			testTopStack(t, c.Driver+" "+b.Interface, c.Exclusive || c.Driver == "xdp", b, func(addr string) (d *roce.Device, err error) {
				at := a
				if addr == b.IP4.String() {
					at = b
				}
				at.Do(t, func() { d, err = roce.OpenInterface(at.Interface, c) })
				return d, err
			}, a.IP4.String(), b.IP4.String())
		})
	}
}

// testTopStack opens two devices and watches the second one, whose name is on. rocectl runs in the namespace of side, or of the test
// if side is nil.
func testTopStack(t *testing.T, on string, exclusive bool, side *netlab.Side, open func(addr string) (*roce.Device, error), address, local string) {
	server, err := open(address)
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	client, err := open(local)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l, err := server.Listen(t.Context(), ":7471", roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *roce.Conn, 1)
	go func() {
		defer close(accepted)
		if r, err := l.Accept(t.Context()); err == nil {
			if c, err := r.Accept(t.Context(), roce.AcceptConfig{}); err == nil {
				accepted <- c
			}
		}
	}()
	conn, err := client.Dial(t.Context(), address+":7471", roce.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	far := <-accepted
	if far == nil {
		t.Fatal("not accepted")
	}
	to, err := far.RegMR(make([]byte, 3000), roce.RemoteWrite|roce.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	from, err := conn.RegMR(make([]byte, 3000), 0)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	// write posts a WRITE after each sample, until a sample shows a rate and a round trip time.
	write := func() {
		wr := roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{from.SGE(0, 3000)}, RemoteAddr: to.Addr(), RKey: to.RKey()}
		if err := conn.QP().PostSend(&wr); err != nil {
			t.Error(err)
		} else if wc, err := conn.QP().SendCQ().Next(t.Context()); err != nil || wc.Status != roce.StatusSuccess {
			t.Errorf("%v, %v", wc.Status, err)
		}
	}
	out := &sampled{func(rows []top.Row) {
		for _, r := range rows {
			if r.Local.QPN != uint32(conn.QP().Num()) || r.PID != os.Getpid() || r.Device != on {
				continue
			}
			if r.State != "RTS" || r.Type != "RC" || r.Peer.Addr != address || r.Peer.QPN == 0 || r.Alone != exclusive {
				t.Errorf("%+v", r)
			}
			if r.Rates.Sent > 0 && r.RTT > 0 {
				if r.SentBytes == 0 || r.SentBytes%3000 != 0 || r.Rates.SentBytes == 0 || r.ReceivedBytes != 0 {
					t.Errorf("bytes: %+v", r)
				}
				cancel()
				return
			}
		}
		write()
	}}
	var errs strings.Builder
	code := exitFailed
	watch := func() { code = run(ctx, []string{"top", "--json", "--interval", "20ms"}, out, &errs) }
	if side == nil {
		watch()
	} else {
		side.Do(t, watch)
	}
	if code != exitOK || errs.Len() > 0 {
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
		{[]string{"--read", cleanPcap}, exitOK, "PROCESS  DEVICE  TYPE", ""},
		{[]string{"--read", cleanPcap, "--count", "1", "--json"}, exitOK, `"source":"` + cleanPcap, ""},
		{[]string{"--count", "1"}, exitOK, "connections\nPROCESS", ""},
		{[]string{"--read", "no-such-file"}, exitFailed, "", "no-such-file"},
		{[]string{"--read", "main.go"}, exitFailed, "", "main.go: pcap: not a valid capture"},
		{[]string{"--read", cleanPcap, "lo"}, exitUsage, "", "exclude one another"},
		{[]string{"--sort", "speed"}, exitUsage, "", "there are process, device, type"},
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

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/nics"
	"github.com/goroce/roce/link/linktest"
)

// nic returns the output of rocectl nic for an address.
func nic(t *testing.T, address string, flags ...string) (found *nics.Address) {
	t.Helper()
	code, stdout, stderr := rocectl(t, append([]string{"nic", "--json"}, flags...)...)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	for dec := json.NewDecoder(strings.NewReader(stdout)); dec.More(); {
		var a nics.Address
		if err := dec.Decode(&a); err != nil {
			t.Fatal(err)
		}
		if a.Address == address {
			found = &a
		}
	}
	return found
}

// Two devices on an address are listed with their objects and packets, until they are closed.
func TestNIC(t *testing.T) {
	const address = "127.0.7.8"
	var devices []*roce.Device
	for range 2 {
		d, err := roce.OpenAddr(netip.MustParseAddr(address), roce.InterfaceConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		devices = append(devices, d)
	}
	l, err := devices[1].Listen(t.Context(), ":7471", roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if r, err := l.Accept(t.Context()); err == nil {
			r.Reject(nil)
		}
	}()
	if _, err := devices[0].Dial(t.Context(), address+":7471", roce.DialConfig{}); err == nil {
		t.Fatal("the request was accepted")
	}
	a := nic(t, address)
	if a == nil || a.Driver != "udp" || a.Interface != "" || a.Places != 2 || a.Of != 64 || a.Error != "" || len(a.Processes) != 2 {
		t.Fatalf("%+v", a)
	}
	keepers, services := 0, ""
	for _, p := range a.Processes {
		if p.PID != os.Getpid() || p.UID != os.Geteuid() || p.Program == "" || len(p.Slots) != 1 || p.Age <= 0 || p.Does == nil {
			t.Fatalf("%+v", p)
		}
		if p.Keeper {
			keepers++
		}
		services += strings.Join(p.Does.Services, ", ")
	}
	if keepers != 1 || services != "TCP 7471" {
		t.Errorf("%d keepers, services %q", keepers, services)
	}
	if a := nic(t, address, "--rate"); a == nil || a.Processes[0].Does == nil || a.Processes[0].Does.TxRate == nil {
		t.Errorf("no rate: %+v", a)
	}
	if code, stdout, stderr := rocectl(t, "nic"); code != exitOK || !strings.Contains(stdout, "udp "+address+": 2 of 64 places taken") || !strings.Contains(stdout, "TCP 7471") {
		t.Errorf("exit %d, %s%s", code, stdout, stderr)
	}
	if c := devices[0].Counters().Shared; c.Sent == 0 || c.Received == 0 {
		t.Errorf("packets between the processes: %+v", c)
	}
	for _, d := range devices {
		d.Close()
	}
	if a := nic(t, address); a != nil {
		t.Errorf("nobody is on it, but listed: %+v", a)
	}
	if code, _, stderr := rocectl(t, "nic", "eth0"); code != exitUsage {
		t.Errorf("an argument: exit %d, %s", code, stderr)
	}
}

// If a program is killed, rocectl nic hold notifies its peer, although no other program uses the address.
func TestNICHold(t *testing.T) {
	addr := linktest.Loopback(66)
	ctx, release := context.WithCancel(t.Context())
	held := make(chan int, 1)
	out := &announced{text: "watching", ready: make(chan struct{})}
	var errs bytes.Buffer
	go func() { held <- run(ctx, []string{"nic", "hold", "--link", "udp", addr.String()}, out, &errs) }()
	select {
	case <-out.ready:
	case code := <-held:
		t.Fatalf("exit %d, %s", code, &errs)
	}
	server := newRunner(t, 0).command(t, "rping", "-s", "--link", "udp", "-a", addr.String())
	listens := &announced{ready: make(chan struct{})}
	said := struct{ io.Writer }{listens}
	server.Stdout, server.Stderr = said, said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	<-listens.ready
	dev, err := roce.OpenAddr(linktest.Loopback(67), roce.InterfaceConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	conn, err := dev.Dial(t.Context(), netip.AddrPortFrom(addr, 7174).String(), roce.DialConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	server.Process.Kill()
	server.Wait()
	<-conn.Done() // only the time limit of the test bounds this
	release()
	if code := <-held; code != exitOK {
		t.Errorf("exit %d, %s", code, &errs)
	}
	for _, args := range [][]string{{"nosuch0"}, {"--link", "xdp", "lo"}, {addr.String()}, {}, {"--link", "udp", "192.0.2.1"}} {
		if code, _, stderr := rocectl(t, append([]string{"nic", "hold"}, args...)...); code == exitOK || stderr == "" {
			t.Errorf("nic hold %v: exit %d, %q", args, code, stderr)
		}
	}
}

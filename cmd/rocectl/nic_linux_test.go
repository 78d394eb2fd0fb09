package main

import (
	"encoding/json"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/nics"
)

// nic returns what rocectl nic says of an address.
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

// Two devices on an address are listed with what they do, until they are closed.
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

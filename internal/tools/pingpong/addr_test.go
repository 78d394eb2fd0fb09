package pingpong

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

// captured is the record of a Linux client at 10.77.0.2.
const captured = "0000:000012:03384e:00000000000000000000ffff0a4d0002\x00"

var capturedAddr = Addr{QPN: 0x12, PSN: 0x03384e, GID: bth.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 2}}

func TestAddrRecord(t *testing.T) {
	if got := string(capturedAddr.Append(nil)); got != captured {
		t.Errorf("Append = %q, want %q", got, captured)
	}
	if len(captured) != RecordLen {
		t.Errorf("RecordLen = %d, want %d", RecordLen, len(captured))
	}
	got, err := ParseAddr([]byte(captured))
	if err != nil || got != capturedAddr {
		t.Errorf("ParseAddr = %+v, %v", got, err)
	}
	want := "LID 0x0000, QPN 0x000012, PSN 0x03384e, GID ::ffff:10.77.0.2"
	if s := got.String(); s != want {
		t.Errorf("String = %q, want %q", s, want)
	}
}

func TestParseAddrRefuses(t *testing.T) {
	for _, tt := range []struct{ record, want string }{
		{"", "lid:qpn:psn:gid"},
		{"0000:000012:03384e\x00", "lid:qpn:psn:gid"},
		{"10000:000012:03384e:00000000000000000000ffff0a4d0002", `lid "10000" is not`},
		{"0000:1000012:03384e:00000000000000000000ffff0a4d0002", `qpn "1000012" is not`},
		{"0000:000012:xyz:00000000000000000000ffff0a4d0002", `psn "xyz" is not`},
		{"0000:000012:03384e:ffff0a4d0002", "GID"},
		{"0000:000012:03384e:zz000000000000000000ffff0a4d0002", "GID"},
	} {
		if _, err := ParseAddr([]byte(tt.record)); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("ParseAddr(%q): %v, want an error about %q", tt.record, err, tt.want)
		}
	}
}

func FuzzParseAddr(f *testing.F) {
	f.Add([]byte(captured))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := ParseAddr(b)
		if err != nil {
			return
		}
		again, err := ParseAddr(a.Append(nil))
		if err != nil || again != a {
			t.Fatalf("%q: %+v, then %+v, %v", b, a, again, err)
		}
	})
}

// Two ends exchange one record, or the number of records that the C tool exchanges, of which most are unused.
func TestExchange(t *testing.T) {
	other := Addr{QPN: 0x11, PSN: 0xffffff, GID: bth.GID{10: 0xff, 11: 0xff, 12: 10, 13: 77, 15: 1}}
	for _, n := range []int{1, 256} {
		clients, servers := make([]Addr, n), make([]Addr, n)
		clients[0], servers[0] = capturedAddr, other
		if n > 1 {
			clients[1], servers[1] = other, capturedAddr
		}
		server, client := net.Pipe()
		got := make(chan error)
		var heard []Addr
		go func() {
			got <- exchange(server, false, servers, func(remote []Addr) error {
				heard = remote
				return nil
			})
		}()
		var a []Addr
		if err := exchange(client, true, clients, func(remote []Addr) error { a = remote; return nil }); err != nil || !slices.Equal(a, servers) {
			t.Errorf("client: %+v, %v", a, err)
		}
		if err := <-got; err != nil || !slices.Equal(heard, clients) {
			t.Errorf("server: %+v, %v", heard, err)
		}
	}
}

func TestExchangeInterrupted(t *testing.T) {
	sd, _ := tooltest.Pair(t, fault.Config{})
	ctx, cancel := context.WithCancel(t.Context())
	at, served := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		_, err := Server(ctx, sd, "127.0.0.1:0", RC.Defaults(), func(a netip.AddrPort) { at <- a })
		served <- err
	}()
	silent, err := net.Dial("tcp", (<-at).String())
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	cancel()
	if err := <-served; !errors.Is(err, context.Canceled) {
		t.Errorf("exchange after cancel: %v", err)
	}
}

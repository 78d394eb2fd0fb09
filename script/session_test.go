package script_test

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/script"
)

var own, peer = netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("10.0.0.1")

// wire returns a wire and its hub.
func wire(t *testing.T) (*script.Wire, *mem.Hub) { return wireOf(t, mem.Config{}) }

// wireOf is wire with a configuration for the hub.
func wireOf(t *testing.T, c mem.Config) (*script.Wire, *mem.Hub) {
	t.Helper()
	hub := mem.NewHub(c)
	port, err := hub.Port("script", roce.DerivedMAC(own))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	return &script.Wire{Port: port, Own: bth.GIDFrom(own), Peer: bth.GIDFrom(peer), MAC: roce.DerivedMAC(peer)}, hub
}

// A Go program plays a session with a listener that accepts every connection.
func TestSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hub := wire(t)
		port, err := hub.Port("device", roce.DerivedMAC(peer))
		if err != nil {
			t.Fatal(err)
		}
		dev, err := roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{peer}, Options: roce.Options{SleepAtOnce: true}})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		l, err := dev.Listen(t.Context(), "10.0.0.1:7174", roce.ListenConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			request, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			if c, err := request.Accept(t.Context(), roce.AcceptConfig{}); err == nil {
				<-c.Done()
				c.Close()
			}
		}()
		s := script.NewSession(t.Context(), w, script.Options{})
		if err := s.Do("connect cm psn=0x100 qpn=0x77"); err != nil {
			t.Fatal(err)
		}
		if err := s.Send("SEND_ONLY psn=+1 ackreq len=100"); err != nil {
			t.Fatal(err)
		}
		nak, err := s.Expect("NAK psn=+0")
		if err != nil {
			t.Fatal(err)
		}
		if nak.Syndrome() != bth.NAKSequence || !nak.ICRC || nak.DestQPN() != 0x77 {
			t.Errorf("%v to %v, ICRC %v", nak.Syndrome(), nak.DestQPN(), nak.ICRC)
		}
		if v, err := s.Var("latest.msn"); v != 0 || err != nil {
			t.Errorf("$latest.msn = %d, %v", v, err)
		}
		for _, name := range []string{"mem.va", "nothing", "latest.va", "latest"} {
			if v, err := s.Var(name); err == nil {
				t.Errorf("$%s = %d", name, v)
			}
		}
		if _, err := s.Outcome(); err == nil {
			t.Error("an outcome of a peer that is not controlled")
		}
		err = s.Do("expect ACK within 5ms")
		if m := (*script.Mismatch)(nil); !errors.As(err, &m) || m.Got != "nothing within 5ms" {
			t.Errorf("%v", err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		<-ended
	})
}

// If a peer does not answer, the script ends in bounded time, and the error names a remedy. The script also ends if the context ends or the
// interface is gone.
func TestNoPeer(t *testing.T) {
	sc, err := script.Parse("x.script", "connect cm\nsend SEND_ONLY\n")
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		w, _ := wire(t)
		began := time.Now()
		r := script.Run(t.Context(), sc, w, script.Options{})
		if r.Err == nil || !strings.Contains(r.Err.Error(), "x.script:1:1: the peer does not answer the REQ: does a program listen there") {
			t.Errorf("%v", r.Err)
		}
		if d := time.Since(began); d > time.Minute {
			t.Errorf("took %v", d)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if r := script.Run(ctx, sc, w, script.Options{}); !errors.Is(r.Err, context.Canceled) {
			t.Errorf("after the end: %v", r.Err)
		}
		w.Port.Close()
		if r := script.Run(t.Context(), sc, w, script.Options{}); r.Err == nil {
			t.Error("a closed port sends")
		}
	})
}

// A script fails if its connection does not have what a statement needs, or if the value of a variable is too large.
func TestWrongPeer(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"connect verbs rc\n", `"connect verbs" needs a peer that scripts control`},
		{"connect manual\noutcome \"nothing\"\n", "only of a peer that the script controls"},
		{"connect manual\nrecv 1\n", "recv needs a peer that the script controls"},
		{"connect manual\npost SEND len=1\n", "post needs a peer that the script controls"},
		{"set n=0x10000\nconnect manual\nsend SEND_ONLY pkey=$n\n", "x.script:3:21: pkey=0x10000 does not fit into 16 bits"},
		{"set n=9\nconnect manual\nsend REQ retrycount=$n\n", "x.script:3:21: retrycount=9 does not fit"},
		{"set n=256\nconnect manual\nsend REQ mtu=$n\n", "x.script:3:14: mtu=0x100 does not fit"},
		{"connect manual\nset n=0\nsend SEND_ONLY sport=$n\n", "x.script:3:22: sport=0: 0 is no port"},
		{"connect manual\nsend WRITE_ONLY va=$mem.va\n", "x.script:2:20: the peer has not told of memory"},
		{"connect manual private=\"" + strings.Repeat("x", 57) + "\"\n", "x.script:1:24: 57 bytes of private data: there is room for 56"},
		{"set n=1000\nconnect manual mtu=$n\n", "x.script:2:20: mtu=1000: want 256"},
		{"set n=70000\nconnect manual port=$n\n", "x.script:2:21: port=70000: at most 65535"},
	} {
		sc, err := script.Parse("x.script", tt.text)
		if err != nil {
			t.Fatalf("%q: %v", tt.text, err)
		}
		synctest.Test(t, func(t *testing.T) {
			w, _ := wire(t)
			if r := script.Run(t.Context(), sc, w, script.Options{}); r.Err == nil || !strings.Contains(r.Err.Error(), tt.want) {
				t.Errorf("%q:\n  got  %v\n  want %s", tt.text, r.Err, tt.want)
			}
		})
	}
}

// If a peer accepts the TCP connection and then sends nothing, the script ends, too, and closes the connection.
func TestSilentTCP(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	hungUp := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			_, err = io.Copy(io.Discard, c)
			c.Close()
		}
		hungUp <- err
	}()
	sc, err := script.Parse("x.script", "peer \"ib_write_bw\"\nconnect oob\n")
	if err != nil {
		t.Fatal(err)
	}
	w, _ := wire(t)
	at := l.Addr().(*net.TCPAddr).AddrPort()
	r := script.Run(t.Context(), sc, w, script.Options{Timeout: 50 * time.Millisecond, TCP: at.Addr(), Port: at.Port()})
	if r.Err == nil || !strings.Contains(r.Err.Error(), "x.script:2:1: ") || !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("%v", r.Err)
	}
	if err := <-hungUp; err != nil {
		t.Errorf("the peer: %v", err)
	}
}

package script_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/script"
)

// If a packet cannot be sent as the script says, the result is an error with a position, and no other packet is sent in its place.
func TestUnsendable(t *testing.T) {
	for _, tt := range []struct{ text, want string }{
		{"send SEND_ONLY len=9001\n", "x.script:2:1: 9001 bytes of payload, at most 9000"},
		{"send SEND_ONLY len=100000\n", "x.script:2:1: 9001 bytes of payload, at most 9000"},
		{"send SEND_ONLY len=1500\n", "x.script:2:1: a packet of 1516 bytes from the BTH on: the MTU of the interface leaves room for 1472"},
		{"send SEND_ONLY len=1456\n", ""},
		{"send SEND_ONLY cut=0\n", ""},
		{"send SEND_ONLY cut=1\n", ""},
		{"raw 00 noicrc\n", ""},
	} {
		sc, err := script.Parse("x.script", "connect manual\n"+tt.text)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Test(t, func(t *testing.T) {
			w, _ := wireOf(t, mem.Config{MTU: 1500})
			r := script.Run(t.Context(), sc, w, script.Options{})
			if tt.want == "" && r.Err != nil || tt.want != "" && (r.Err == nil || r.Err.Error() != tt.want) {
				t.Errorf("%q:\n  got  %v\n  want %s", tt.text, r.Err, tt.want)
			}
		})
	}
}

// A script that never waits ends when its context ends.
func TestEndlessLoop(t *testing.T) {
	for _, body := range []string{"pass", "set n=1", "send CNP", "send CNP times 100000"} {
		const deep = 4
		sc, err := script.Parse("x.script", "connect manual\n"+strings.Repeat("loop 100 {\n", deep)+body+"\n"+strings.Repeat("}\n", deep))
		if err != nil {
			t.Fatal(err)
		}
		w, _ := wireOf(t, mem.Config{})
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- script.Run(ctx, sc, w, script.Options{}).Err }()
		stop()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A Go program sends messages before there is a connection.
func TestSessionManual(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := wireOf(t, mem.Config{})
		s := script.NewSession(t.Context(), w, script.Options{})
		defer s.Close()
		if err := s.Send("REQ"); err == nil || !strings.Contains(err.Error(), "before connect") {
			t.Errorf("before connect: %v", err)
		}
		if err := s.Do("connect manual"); err != nil {
			t.Fatal(err)
		}
		if err := s.Send("REQ"); err != nil {
			t.Error(err)
		}
		if err := s.Do("expect no message for 5ms"); err != nil {
			t.Error(err)
		}
	})
}

// fake sends packets to a script from any address.
type fake struct {
	t    *testing.T
	wire script.Wire
}

func newFake(t *testing.T, hub *mem.Hub, from netip.Addr) *fake {
	port, err := hub.Port(from.String(), roce.DerivedMAC(from))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	return &fake{t, script.Wire{Port: port, Own: bth.GIDFrom(from), Peer: bth.GIDFrom(own), MAC: roce.DerivedMAC(own)}}
}

// send sends a packet to a queue pair.
func (f *fake) send(op bth.Opcode, to bth.QPN, n int) {
	f.t.Helper()
	p := f.wire.Port
	path, err := frame.NewPath(frame.PathConfig{Src: f.wire.Own, Dst: f.wire.Peer, SrcMAC: p.Info().MAC, DstMAC: f.wire.MAC, SrcPort: 0xC000, HopLimit: 64})
	if err != nil {
		f.t.Fatal(err)
	}
	room, crc, ok := p.Begin(path, bth.BTHLen+n+bth.ICRCLen)
	if !ok {
		f.t.Fatal("no room")
	}
	bth.PutBTH(room, op, 0, 0, bth.DefaultPKey, to, 0x100)
	clear(room[bth.BTHLen : bth.BTHLen+n])
	bth.PutICRC(room[bth.BTHLen+n:], crc.UpdateBTH(room[:bth.BTHLen]).Update(room[bth.BTHLen:bth.BTHLen+n]))
	p.Commit()
	if err := p.Flush(); err != nil {
		f.t.Fatal(err)
	}
}

// A packet from another host does not match, even if it has the right queue pair and PSN.
func TestAnotherHost(t *testing.T) {
	for _, tt := range []struct{ from, want string }{
		{"10.0.0.1", ""},
		{"10.0.0.9", "(it comes from 10.0.0.9)"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w, hub := wireOf(t, mem.Config{})
			f := newFake(t, hub, netip.MustParseAddr(tt.from))
			s := script.NewSession(t.Context(), w, script.Options{})
			defer s.Close()
			if err := s.Do("connect manual qpn=0x77 psn=0x100"); err != nil {
				t.Fatal(err)
			}
			f.send(bth.RCAck, 0x77, bth.AETHLen)
			err := s.Do("expect ACK psn=0x100 within 1s")
			if tt.want == "" && err != nil || tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("from %s: %v", tt.from, err)
			}
		})
	}
}

// No packet of a peer makes a script panic, whatever its opcode and length.
func TestAnyPacket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hub := wireOf(t, mem.Config{})
		f := newFake(t, hub, peer)
		s := script.NewSession(t.Context(), w, script.Options{})
		defer s.Close()
		if err := s.Do("connect manual qpn=0x77"); err != nil {
			t.Fatal(err)
		}
		for op := range 256 {
			for _, n := range []int{0, 4, 16, 28, cm.MADLen + bth.DETHLen} {
				for _, q := range []bth.QPN{bth.QPNGSI, 0x77} {
					f.send(bth.Opcode(op), q, n)
				}
			}
			if err := s.Do("wait 1ms"); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Do("expect nothing for 1ms"); err == nil {
			t.Error("no packet came")
		}
	})
}

// A script fails if the peer sends more packets than it keeps. It does not drop any silently.
func TestFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, hub := wireOf(t, mem.Config{})
		f := newFake(t, hub, peer)
		s := script.NewSession(t.Context(), w, script.Options{})
		defer s.Close()
		if err := s.Do("connect manual qpn=0x77"); err != nil {
			t.Fatal(err)
		}
		for i := 0; ; i++ {
			for range 32 {
				f.send(bth.RCAck, 0x77, bth.AETHLen)
			}
			if err := s.Do("wait 1us"); err != nil {
				if !strings.Contains(err.Error(), "that no line of the script has expected") {
					t.Error(err)
				}
				return
			}
			if i > 10_000 {
				t.Fatal("the script keeps everything, or drops it in silence")
			}
		}
	})
}

// Two scripts on one host have different queue pair numbers.
func TestTwoSessions(t *testing.T) {
	w, _ := wireOf(t, mem.Config{})
	var seen [2]uint64
	for i := range seen {
		synctest.Test(t, func(t *testing.T) {
			time.Sleep(time.Duration(i) * time.Millisecond)
			s := script.NewSession(t.Context(), w, script.Options{})
			defer s.Close()
			if err := s.Do("connect manual"); err != nil {
				t.Fatal(err)
			}
			var err error
			if seen[i], err = s.Var("own.qpn"); err != nil {
				t.Fatal(err)
			}
		})
	}
	if seen[0] == seen[1] {
		t.Errorf("both have queue pair %#x", seen[0])
	}
}

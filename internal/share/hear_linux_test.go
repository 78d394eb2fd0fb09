package share

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
)

// hearingMedium is a Medium whose processes all receive each connection request. It has one
// descriptor.
type hearingMedium struct{ fakeMedium }

func (r *hearingMedium) Open() (files []int, notes []string, err error) {
	r.opened++
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	return []int{fd}, nil, err
}

func (r *hearingMedium) Sockets() int { return 0 }
func (r *hearingMedium) Hear() bool   { return true }

// All processes receive a request, but only one answers: the process that listens for the
// service, or else the keeper. The descriptor stays open until the last process has left.
func TestHear(t *testing.T) {
	r := new(hearingMedium)
	k := key(t)
	var places []*Place
	for range 4 {
		places = append(places, join(t, k, 2, r))
	}
	if err := places[2].Claim(7); err != nil {
		t.Fatal(err)
	}
	for service := uint64(7); service < 9; service++ {
		b := datagram(bth.QPNGSI, attrREQ, 0, 0, service)
		answers := 0
		for i, p := range places {
			_, other := p.Whose(b)
			if !p.Heard(b) {
				t.Errorf("place %d has not heard the request", i)
			}
			if !other {
				answers++
			}
			if service == 7 && other != (i != 2) {
				t.Errorf("place %d: the request is for another process: %v, and place 2 listens", i, other)
			}
		}
		if answers != 1 {
			t.Errorf("service %d: %d of %d answer", service, answers, len(places))
		}
	}
	refusal := datagram(bth.QPNGSI, 0x12, 5, 0, 0) // a REJ of a peer that knows no communication ID
	for i, p := range places {
		if _, other := p.Whose(refusal); other || !p.Heard(refusal) || !p.Anybodys(refusal) {
			t.Errorf("place %d leaves a REJ without a communication ID to others", i)
		}
	}
	if _, other := places[0].Whose(datagram(bth.QPNMulticast, 0, 0, 0, 0)); other {
		t.Error("a packet to the multicast QPN is for another process")
	}
	for i, p := range places {
		if i > 0 && r.opened != 1 {
			t.Errorf("opened %d times", r.opened)
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
}

// owner describes the process that has an Owner, until the Owner is closed.
func TestOccupy(t *testing.T) {
	k := key(t)
	if who := owner(k); who != "" {
		t.Errorf("%q has the address of nobody", who)
	}
	o, err := Occupy(k)
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if who := owner(k); !strings.Contains(who, "process ") || !strings.Contains(who, " of user ") {
			t.Errorf("the owner is %q, want process %d", who, os.Getpid())
		}
	}
	if err := o.Close(); err != nil {
		t.Error(err)
	}
	if who := owner(k); who != "" {
		t.Errorf("%q has the address still", who)
	}
}

// The error for an interface in use names the process that uses it, and says what to do.
func TestRival(t *testing.T) {
	index := os.Getpid()<<4 | 1<<30
	at := "10.9.8.7"
	said := func(driver string) string { return rival(driver, index, []string{at}) }
	for _, driver := range []string{"udp", "raw", "xdp"} {
		if s := said(driver); s != "" {
			t.Errorf("%s beside nobody: %q", driver, s)
		}
	}
	for _, test := range []struct{ key, first, second, want string }{
		{InterfaceKey("udp", index), "udp", "raw", `driver "udp"`},
		{InterfaceKey("udp", index), "udp", "udp", "for itself"},
		{InterfaceKey("raw", index), "raw", "udp", `driver "raw"`},
		{InterfaceKey("raw", index), "raw", "xdp", "one owner"},
		{AddrKey("udp", at), "udp", "raw", at},
		{AddrKey("udp", at), "udp", "udp", at},
	} {
		p := join(t, test.key, 1, new(hearingMedium))
		if s := said(test.second); !strings.Contains(s, "process ") || !strings.Contains(s, test.want) {
			t.Errorf("%s beside %s: %q, want %q in it", test.second, test.key, s, test.want)
		}
		p.Close()
	}
	o, err := Occupy(InterfaceKey("xdp", index))
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	for _, driver := range []string{"udp", "raw", "xdp"} {
		if s := said(driver); !strings.Contains(s, "process ") || !strings.Contains(s, "one owner") {
			t.Errorf("%s beside xdp: %q", driver, s)
		}
	}
}

// A program may call Drop, Disconnected and Connected on a closed Place: they do nothing.
// Claim fails.
func TestLate(t *testing.T) {
	k := key(t)
	for range 2 { // the keeper, and another
		join(t, k, 1, new(hearingMedium))
		p := join(t, k, 1, new(hearingMedium))
		if err := p.Claim(7); err != nil {
			t.Fatal(err)
		}
		h := p.Connected(Conn{LocalID: 1})
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		p.Drop(7)
		p.Disconnected(&h)
		if h = p.Connected(Conn{LocalID: 2}); h != (Handle{}) {
			t.Error("a closed Place has recorded a connection")
		}
		if err := p.Claim(8); err == nil {
			t.Error("Claim on a closed Place succeeds")
		}
		k += "again"
	}
}

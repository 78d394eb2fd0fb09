package impair

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/pcap"
)

// TestStuck: flush waits only once for an interface that accepts no frames, not for each frame, because meanwhile the bridge forwards nothing in the
// other direction. If it waited for each frame, the test would take hours.
func TestStuck(t *testing.T) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	s := &socket{fd: pair[0], reserved: -1}
	s.init()
	data, head := make([]byte, 1000), gso.VnetHeader{}
	const frames = 100_000
	for range frames {
		s.send(data, &head, 1)
	}
	s.flush()
	fit := s.count.Sent
	if fit == 0 || fit+s.count.Unsent != frames {
		t.Fatalf("%d sent, %d unsent", fit, s.count.Unsent)
	}
	room := make([]byte, 2000)
	for range fit {
		if _, err := unix.Read(pair[1], room); err != nil {
			t.Fatal(err)
		}
	}
	s.send(data, &head, 1)
	s.flush()
	if s.count.Sent != fit+1 {
		t.Errorf("it takes frames again: %d sent, want %d", s.count.Sent, fit+1)
	}
}

// TestRenamed: an interface that gets another name is neither gone nor down.
func TestRenamed(t *testing.T) {
	_, _, near, _ := netlab.Bridged(t, netlab.Config{})
	s, err := open(Interface{Name: near.Interface, Netns: near.Netns()}, 1<<16, false)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if up, err := s.up(); err != nil || !up {
		t.Fatalf("up %v, %v", up, err)
	}
	done := make(chan error, 1)
	go func() {
		for i := range 50 {
			if err := near.Netlink().LinkSetName(near.Link(), [2]string{"other0", near.Interface}[i%2]); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	for {
		select {
		case err := <-done:
			if err != nil {
				netlab.Lacking(t, "renaming of interfaces that are up", err)
			}
			return
		default:
		}
		if up, err := s.up(); err != nil || !up {
			t.Fatalf("up %v, %v", up, err)
		}
	}
}

// TestClockSet: the clock is set back, so the time stamp of a packet is an hour in the future. The trace must not have a negative delay for
// this packet.
func TestClockSet(t *testing.T) {
	name := filepath.Join(t.TempDir(), "run.pcapng")
	w, err := pcap.Create(name, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := Config{Faults: fault.Config{Rules: []fault.Rule{{Action: fault.ECN}}}}
	if c.Trace, err = NewTrace(w, Both, []string{"a", "b"}, nil); err != nil {
		t.Fatal(err)
	}
	b := &bridge{cfg: c, start: time.Now()}
	if b.engine, err = fault.NewEngine(c.Faults, 0); err != nil {
		t.Fatal(err)
	}
	path := linktest.Path(t, false, frame.MAC{0: 2, 5: 1}, frame.MAC{0: 2, 5: 2})
	const n = bth.BTHLen + bth.ICRCLen
	data := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	room, _ := path.Put(data, frame.LayoutEthernet, n, 1)
	bth.PutBTH(room, bth.UCSendOnly, 0, 0, bth.DefaultPKey, 0x12, 1)
	if v := b.decide(b.now(), 0, data, time.Now().Add(time.Hour), true); v.Faults != fault.Of(fault.ECN) {
		t.Fatalf("%+v", v)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	r.Next()
	if rec, err := r.Next(); err != nil || !strings.Contains(rec.Comment, "of=1 ecn ") || strings.Contains(rec.Comment, "-") {
		t.Errorf("%q, %v", rec.Comment, err)
	}
}

package impair_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/pcap"
)

// burst is how many frames a benchmark sends with one call, and window how many may be in flight.
const (
	burst  = 64
	window = 512
)

// end sends and receives frames at one end of the bridge.
type end struct {
	fd    int
	calls mmsg.Receiver
	msgs  [burst]unix.Mmsghdr
	iov   [burst]unix.Iovec
}

func newEnd(b *testing.B, s *netlab.Side, size int) *end {
	b.Helper()
	e := new(end)
	var err error
	s.Do(b, func() {
		all := binary.NativeEndian.Uint16([]byte{0x08, 0x00})
		if e.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, int(all)); err == nil {
			err = unix.Bind(e.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.Link().Attrs().Index})
		}
	})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(e.fd) })
	unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 64<<20)
	unix.SetsockoptInt(e.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, 64<<20)
	for i := range e.msgs {
		room := make([]byte, size)
		e.iov[i].Base = &room[0]
		e.iov[i].SetLen(size)
		e.msgs[i].Hdr.Iov = &e.iov[i]
		e.msgs[i].Hdr.SetIovlen(1)
	}
	return e
}

// fill makes all messages one frame.
func (e *end) fill(data []byte) {
	for i := range e.msgs {
		e.iov[i].Base = &data[0]
		e.iov[i].SetLen(len(data))
	}
}

// wait waits until the end has something to receive.
func (e *end) wait(b *testing.B) {
	p := []unix.PollFd{{Fd: int32(e.fd), Events: unix.POLLIN}}
	if n, err := unix.Poll(p, 5000); err != nil && err != unix.EINTR || err == nil && n == 0 {
		b.Fatalf("nothing arrives: %v", err)
	}
}

// packet is a WRITE with a payload of a size.
func packet(b *testing.B, payload int) []byte {
	b.Helper()
	path := linktest.Path(b, false, frame.MAC{0: 2, 5: 1}, frame.MAC{0: 2, 5: 2})
	f := bth.Fields{BTH: bth.BTHFields{Op: bth.RCWriteMiddle, PKey: bth.DefaultPKey, DestQPN: 0x12, PSN: 1}, Payload: make([]byte, payload)}
	body := f.Append(nil)
	n := len(body) + bth.ICRCLen
	data := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	room, crc := path.Put(data, frame.LayoutEthernet, n, 1)
	copy(room, body)
	bth.PutICRC(room[len(body):], crc.UpdateBody(body))
	return data
}

// bridge runs a bridge for a benchmark. The function it returns ends it and checks that it has lost nothing.
func bridge(b *testing.B, near, far *netlab.Side, rules []fault.Rule, trace bool) (stop func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready := make(chan struct{})
	cfg := impair.Config{
		A:      impair.Interface{Name: near.Interface, Netns: near.Netns()},
		B:      impair.Interface{Name: far.Interface, Netns: far.Netns()},
		Faults: fault.Config{Rules: rules},
		Ready:  func() { close(ready) },
	}
	if trace {
		w, err := pcap.Create(filepath.Join(b.TempDir(), "run.pcapng"), 0)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { w.Close() })
		if cfg.Trace, err = impair.NewTrace(w, impair.Both, cfg.Ends(), nil); err != nil {
			b.Fatal(err)
		}
	}
	type outcome struct {
		r   impair.Report
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		r, err := impair.Run(ctx, cfg)
		done <- outcome{r, err}
	}()
	select {
	case <-ready:
	case o := <-done:
		b.Fatal(o.err)
	}
	return func() {
		cancel()
		o := <-done
		if lost := o.r.A.Overrun + o.r.A.Unusable + o.r.B.Unsent; o.err != nil || lost != 0 {
			b.Errorf("%d frames lost by the bridge, %v", lost, o.err)
		}
	}
}

// exact returns a rule that is compared with every packet and matches none.
func exact(b *testing.B) []fault.Rule {
	b.Helper()
	r, err := fault.ParseRule("drop,conn=9,rel=4,iter=1")
	if err != nil {
		b.Fatal(err)
	}
	return []fault.Rule{r}
}

// BenchmarkForward measures how many frames pass without a loss, with at most window frames in flight.
func BenchmarkForward(b *testing.B) {
	for _, payload := range []int{64, 1024, 4096} {
		for _, kind := range []string{"direct", "no rule", "rule", "trace"} {
			b.Run(fmt.Sprintf("%d/%s", payload, kind), func(b *testing.B) {
				x, y := ends(b, kind)
				data := packet(b, payload)
				from, to := newEnd(b, x, len(data)), newEnd(b, y, len(data)+64)
				from.fill(data)
				b.SetBytes(int64(len(data)))
				sent, got := 0, 0
				for b.Loop() {
					if sent++; sent%burst != 0 {
						continue
					}
					for at := 0; at < burst; {
						n, errno := mmsg.Send(from.fd, from.msgs[at:])
						if errno != 0 && errno != unix.EAGAIN {
							b.Fatal(errno)
						}
						at += n
					}
					for sent-got > window {
						got += receive(b, to)
					}
				}
				for got < sent-sent%burst {
					got += receive(b, to)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "packets/s")
			})
		}
	}
}

// BenchmarkDelay measures the time from sending a frame at one end to receiving it at the other, with no other frame in flight. The
// bridge adds the difference to "direct".
func BenchmarkDelay(b *testing.B) {
	for _, kind := range []string{"direct", "no rule", "rule", "trace"} {
		b.Run(kind, func(b *testing.B) {
			x, y := ends(b, kind)
			data := packet(b, 1024)
			from, to := newEnd(b, x, len(data)), newEnd(b, y, len(data)+64)
			from.fill(data)
			for b.Loop() {
				if _, errno := mmsg.Send(from.fd, from.msgs[:1]); errno != 0 {
					b.Fatal(errno)
				}
				for receive(b, to) == 0 {
				}
			}
		})
	}
}

// ends returns two ends with nothing but a wire between them, or with a bridge.
func ends(b *testing.B, kind string) (x, y *netlab.Side) {
	b.Helper()
	if kind == "direct" {
		return netlab.Pair(b, netlab.Config{MTU: 9000})
	}
	x, y, near, far := netlab.Bridged(b, netlab.Config{MTU: 9000})
	var rules []fault.Rule
	if kind != "no rule" {
		rules = exact(b)
	}
	b.Cleanup(bridge(b, near, far, rules, kind == "trace"))
	return x, y
}

// receive takes frames that have arrived, and waits if there are none.
func receive(b *testing.B, e *end) int {
	n, errno := e.calls.Receive(e.fd, e.msgs[:])
	switch errno {
	case 0, unix.EINTR:
		return n
	case unix.EAGAIN:
		e.wait(b)
		return 0
	}
	b.Fatal(errno)
	return 0
}

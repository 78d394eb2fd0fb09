package xdpcompare

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	theirs "github.com/asavie/xdp"
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/xdp"
)

// ringSize is the size of every ring, and batch the number of frames in one call: the same for both libraries.
const (
	ringSize  = 512
	frameSize = 2048
	batch     = 64
)

// end is one end of a link with one of the libraries. Both methods return a number of frames: those that the kernel took,
// or those that arrived.
type end interface {
	send(frame []byte) (sent int)
	receive(into []byte) (received int)
	fd() int
	close()
}

var libraries = []struct {
	name string
	open func(t testing.TB, s *netlab.Side) end
}{
	{"ours", openOurs},
	{"asavie", openTheirs},
}

// ours uses the rings of this module in the same way as a Port.
type ours struct {
	port interface{ Close() error }
	mem  *xsk.Memory
	pool *xsk.Pool
	s    *xsk.Socket
}

func openOurs(t testing.TB, s *netlab.Side) end {
	p, err := xdp.Open(xdp.Config{Interface: s.Interface, AnyAddr: true, RingSize: ringSize})
	if err != nil {
		t.Fatal(err)
	}
	x := p.(*xdp.Port)
	mem, pool, socks := x.Rings()
	return &ours{x, mem, pool, socks[0]}
}

func (o *ours) fd() int { return o.s.FD }

func (o *ours) close() { o.port.Close() }

func (o *ours) send(frame []byte) (sent int) {
	s := o.s
	before := s.TX.Consumed()
	for range min(batch, s.TX.Free(batch)) {
		addr, ok := o.pool.Get(xsk.Building)
		if !ok {
			break
		}
		copy(o.mem.Bytes[addr:], frame)
		o.pool.Send(addr, 1)
		s.TX.Put(xsk.Desc{Addr: addr, Len: uint32(len(frame))})
	}
	s.TX.Submit()
	s.KickTX()
	n := s.Completion.Ready(ringSize)
	for i := range n {
		o.pool.Complete(*s.Completion.Get(i))
	}
	s.Completion.Release(n)
	return int(s.TX.Consumed() - before)
}

func (o *ours) receive(into []byte) int {
	s := o.s
	n := s.RX.Ready(batch)
	for i := range n {
		d := s.RX.Get(i)
		copy(into, o.mem.Bytes[d.Addr:d.Addr+uint64(d.Len)])
		slot := o.pool.Start(d.Addr)
		o.pool.Pass(slot, xsk.Filling, xsk.Reading)
		o.pool.Pass(slot, xsk.Reading, xsk.Filling)
		s.Fill.Put(slot)
	}
	s.RX.Release(n)
	s.Fill.Submit()
	return int(n)
}

// asavie uses the other library in the same way as its examples.
type asavie struct {
	s    *theirs.Socket
	prog *theirs.Program
	left int // frames in the TX ring
}

func openTheirs(t testing.TB, s *netlab.Side) end {
	index := s.Link().Attrs().Index
	sock, err := theirs.NewSocket(index, 0, &theirs.SocketOptions{
		NumFrames: 4 * ringSize, FrameSize: frameSize,
		FillRingNumDescs: ringSize, CompletionRingNumDescs: ringSize, RxRingNumDescs: ringSize, TxRingNumDescs: ringSize,
	})
	if err != nil {
		t.Fatal(err)
	}
	prog, err := theirs.NewProgram(1)
	if err != nil {
		t.Fatal(err)
	}
	if err := prog.Attach(index); err != nil {
		t.Fatal(err)
	}
	if err := prog.Register(0, sock.FD()); err != nil {
		t.Fatal(err)
	}
	return &asavie{s: sock, prog: prog}
}

func (a *asavie) fd() int { return a.s.FD() }

// close leaves the program attached: the kernel removes it with the interface.
func (a *asavie) close() { a.prog.Close(); a.s.Close() }

func (a *asavie) send(frame []byte) (sent int) {
	descs := a.s.GetDescs(min(batch, a.s.NumFreeTxSlots()))
	for i := range descs {
		descs[i].Len = uint32(len(frame))
		copy(a.s.GetFrame(descs[i]), frame)
	}
	a.left += a.s.Transmit(descs)
	if n := a.s.NumCompleted(); n > 0 {
		a.s.Complete(n)
	}
	now := ringSize - a.s.NumFreeTxSlots()
	sent, a.left = a.left-now, now
	return sent
}

func (a *asavie) receive(into []byte) int {
	if n := a.s.NumFreeFillSlots(); n > 0 {
		a.s.Fill(a.s.GetDescs(n))
	}
	descs := a.s.Receive(batch)
	for _, d := range descs {
		copy(into, a.s.GetFrame(d))
	}
	return len(descs)
}

// roceFrame returns a frame that both programs accept.
func roceFrame(from, to *netlab.Side, size int) []byte {
	f := make([]byte, size)
	copy(f, to.MAC[:])
	copy(f[6:], from.MAC[:])
	f[12], f[13], f[14], f[23] = 0x08, 0x00, 0x45, 17
	binary.BigEndian.PutUint16(f[16:], uint16(size-14))
	copy(f[26:], from.IP4.AsSlice())
	copy(f[30:], to.IP4.AsSlice())
	binary.BigEndian.PutUint16(f[36:], 4791)
	binary.BigEndian.PutUint16(f[38:], uint16(size-34))
	return f
}

// dropAll attaches a program that drops every frame.
func dropAll(t testing.TB, s *netlab.Side) {
	prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Type: ebpf.XDP, License: "GPL",
		Instructions: asm.Instructions{asm.Mov.Imm(asm.R0, 1), asm.Return()}})
	if err != nil {
		t.Fatal(err)
	}
	l, err := bpflink.AttachXDP(bpflink.XDPOptions{Program: prog, Interface: s.Link().Attrs().Index, Flags: bpflink.XDPDriverMode})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); prog.Close() })
}

// threadTime is the processor time of this thread.
func threadTime(t testing.TB) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_THREAD, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// measure calls step until it has handled b.N frames, and reports the rate and the processor
// time.
func measure(b *testing.B, step func() int) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	b.ReportAllocs()
	b.ResetTimer()
	before, n := threadTime(b), 0
	for n < b.N {
		n += step()
	}
	b.ReportMetric(float64(threadTime(b)-before)/float64(n), "cpu-ns/frame")
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "frames/s")
}

var sizes = []int{64, 1084}

// BenchmarkSend sends frames that the receiving interface drops.
func BenchmarkSend(b *testing.B) {
	for _, size := range sizes {
		for _, lib := range libraries {
			b.Run(fmt.Sprintf("%d/%s", size, lib.name), func(b *testing.B) {
				x, y := netlab.Pair(b, netlab.Config{})
				var e end
				x.Do(b, func() { e = lib.open(b, x) })
				defer e.close()
				y.Do(b, func() { dropAll(b, y) })
				frame := roceFrame(x, y, size)
				measure(b, func() int { return e.send(frame) })
			})
		}
	}
}

// BenchmarkReceive receives and copies frames that our rings send as fast as they can.
func BenchmarkReceive(b *testing.B) {
	for _, size := range sizes {
		for _, lib := range libraries {
			b.Run(fmt.Sprintf("%d/%s", size, lib.name), func(b *testing.B) {
				x, y := netlab.Pair(b, netlab.Config{})
				var from, to end
				x.Do(b, func() { from = openOurs(b, x) })
				defer from.close()
				y.Do(b, func() { to = lib.open(b, y) })
				defer to.close()
				frame, into := roceFrame(x, y, size), make([]byte, frameSize)
				var stop atomic.Bool
				var sender sync.WaitGroup
				sender.Go(func() {
					for !stop.Load() {
						from.send(frame)
					}
				})
				measure(b, func() int {
					n := to.receive(into)
					if n == 0 { // sleep: otherwise the benchmark would measure polling
						unix.Poll([]unix.PollFd{{Fd: int32(to.fd()), Events: unix.POLLIN}}, 1)
					}
					return n
				})
				stop.Store(true)
				sender.Wait()
			})
		}
	}
}

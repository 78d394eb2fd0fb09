//go:build linux

package blast

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/internal/xsk"
)

const (
	ringSize = 512 // frames of each ring
	xdpBatch = 64  // frames sent with one kick
)

// xdp is an AF_XDP socket on the only queue of an interface, in copy mode. Its XDP program
// passes every packet to the socket.
type xdp struct {
	memory *xsk.Memory
	geo    xsk.Geometry
	sock   *xsk.Socket
	xsks   *ebpf.Map
	prog   *ebpf.Program
	hook   bpflink.Link

	head []byte   // of every frame
	size int      // of a packet
	free []uint64 // slots for frames to send
}

func openXDP(s harness.Spec) (x *xdp, err error) {
	ifi, err := net.InterfaceByName(s.Interface)
	if err != nil {
		return nil, err
	}
	x = &xdp{geo: xsk.GeometryFor(s.MTU+etherLen, ""), size: s.Size + overhead}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	if x.head, err = headersOf(s, x.size, 0); err != nil {
		return x, err
	}
	if x.memory, err = xsk.NewMemory(2*ringSize*x.geo.Slot, x.geo.Chunk); err != nil {
		return x, err
	}
	if x.sock, err = xsk.New(x.memory, nil, xsk.Sizes{Fill: ringSize, RX: ringSize, TX: ringSize, Completion: ringSize}); err != nil {
		return x, err
	}
	for i := range uint64(ringSize) {
		x.free = append(x.free, i*uint64(x.geo.Slot))
		x.sock.Fill.Put((ringSize + i) * uint64(x.geo.Slot))
	}
	x.sock.Fill.Submit()
	unix.SetsockoptInt(x.sock.FD, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, rxBuffer)
	unix.SetsockoptInt(x.sock.FD, unix.SOL_XDP, unix.XDP_MAX_TX_SKB_BUDGET, 256) // new in Linux 6.17
	flags := uint16(unix.XDP_USE_NEED_WAKEUP | unix.XDP_COPY)
	if x.geo.Slot > x.geo.Chunk {
		flags |= unix.XDP_USE_SG
	}
	if err = x.sock.Bind(ifi.Index, 0, flags); err != nil {
		return x, err
	}
	return x, x.attach(ifi.Index)
}

// attach makes the interface pass all received packets to the socket.
func (x *xdp) attach(ifindex int) (err error) {
	x.xsks, err = ebpf.NewMap(&ebpf.MapSpec{Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: 1})
	if err != nil {
		return err
	}
	if err := x.xsks.Put(uint32(0), uint32(x.sock.FD)); err != nil {
		return err
	}
	const rxQueueIndex, pass = 16, 2 // offset in struct xdp_md, XDP_PASS
	spec := &ebpf.ProgramSpec{Type: ebpf.XDP, License: "Apache-2.0", Instructions: asm.Instructions{
		asm.LoadMem(asm.R2, asm.R1, rxQueueIndex, asm.Word),
		asm.LoadMapPtr(asm.R1, x.xsks.FD()),
		asm.Mov.Imm(asm.R3, pass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
	}}
	if x.geo.Slot > x.geo.Chunk {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	if x.prog, err = ebpf.NewProgram(spec); err != nil {
		return err
	}
	x.hook, err = bpflink.AttachXDP(bpflink.XDPOptions{Program: x.prog, Interface: ifindex, Flags: bpflink.XDPDriverMode})
	return err
}

// room takes back the slots of frames that were sent. It reports whether a slot is free.
func (x *xdp) room() bool {
	done := x.sock.Completion.Ready(ringSize)
	for i := range done {
		if addr := *x.sock.Completion.Get(i); addr%uint64(x.geo.Slot) == 0 { // only the first piece of a frame counts
			x.free = append(x.free, addr)
		}
	}
	x.sock.Completion.Release(done)
	return len(x.free) > 0
}

// commit queues a frame of n bytes for sending.
func (x *xdp) commit(addr uint64, n int) {
	for at := 0; at < n; at += x.geo.Chunk {
		d := xsk.Desc{Addr: addr + uint64(at), Len: uint32(min(x.geo.Chunk, n-at))}
		if at+x.geo.Chunk < n {
			d.Options = xsk.Continued
		}
		x.sock.TX.Put(d)
	}
}

func (x *xdp) slot() uint64 {
	addr := x.free[len(x.free)-1]
	x.free = x.free[:len(x.free)-1]
	return addr
}

func (x *xdp) send(src *source) error {
	n := headers + x.size
	descs := x.geo.Descs(n)
	for sent := 0; sent < xdpBatch && x.room() && x.sock.TX.Free(descs) >= descs; sent++ {
		addr := x.slot()
		b := x.memory.Bytes[addr:][:n]
		copy(b, x.head)
		src.put(b[headers:])
		x.commit(addr, n)
	}
	return x.kick()
}

func (x *xdp) kick() error {
	x.sock.TX.Submit()
	if !x.sock.TX.NeedWakeup() {
		return nil
	}
	switch errno := x.sock.KickTX(); errno {
	case 0, unix.EAGAIN, unix.EBUSY, unix.ENOBUFS, unix.EINTR:
		return nil
	default:
		return errno
	}
}

// frames passes the frames that have arrived, in one or two pieces, to f, and then gives the
// slots back to the kernel.
func (x *xdp) frames(f func(first, rest []byte)) {
	ready := x.sock.RX.Ready(xdpBatch)
	if ready == 0 {
		if x.sock.Fill.NeedWakeup() {
			x.sock.KickRX()
		}
		return
	}
	var first []byte
	used := uint32(0)
	for i := range ready {
		d := *x.sock.RX.Get(i)
		b := x.memory.Bytes[d.Addr:][:d.Len]
		switch {
		case d.Options&xsk.Continued != 0 && first == nil:
			first = b
			continue
		case first != nil:
			f(first, b)
		default:
			f(b, nil)
		}
		first, used = nil, i+1
	}
	for i := range used {
		x.sock.Fill.Put(x.sock.RX.Get(i).Addr &^ (uint64(x.geo.Chunk) - 1))
	}
	x.sock.RX.Release(used)
	x.sock.Fill.Submit()
}

func (x *xdp) receive(dst *sink) error {
	x.frames(func(first, rest []byte) {
		if isOurs(first) {
			dst.pieces(first[headers:], rest)
		}
	})
	return nil
}

// isOurs reports whether a frame is UDP to our port. Others are the kernel's, IPv6 for
// instance.
func isOurs(b []byte) bool {
	return len(b) >= headers && binary.BigEndian.Uint16(b[12:]) == unix.ETH_P_IP && b[etherLen+9] == unix.IPPROTO_UDP &&
		binary.BigEndian.Uint16(b[etherLen+ipLen+2:]) == port
}

func (x *xdp) mode() string {
	s := fmt.Sprintf("rings of %d, copy", ringSize)
	if x.geo.Slot > x.geo.Chunk {
		s += ", two pieces"
	}
	return s
}

func (x *xdp) close() error {
	if x.hook != nil {
		x.hook.Close()
	}
	x.prog.Close() // also without a program, and without a map
	x.xsks.Close()
	if x.sock != nil {
		x.sock.Close()
	}
	if x.memory != nil {
		x.memory.Discard()
	}
	return nil
}

func (x *xdp) ping(b []byte) error {
	for !x.room() {
		if err := x.kick(); err != nil {
			return err
		}
	}
	addr := x.slot()
	frame := x.memory.Bytes[addr:][:headers+len(b)]
	copy(frame, x.head)
	copy(frame[headers:], b)
	x.commit(addr, len(frame))
	return x.kick()
}

func (x *xdp) pong() (got bool, err error) {
	x.frames(func(first, _ []byte) { got = got || isOurs(first) })
	return got, nil
}

package xsk

import (
	"fmt"
	"runtime"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Memory is a UMEM: the memory of all frames, which all sockets of one interface share.
type Memory struct {
	Bytes []byte
	chunk int
}

// NewMemory maps size bytes for chunks of the given size.
func NewMemory(size, chunk int) (*Memory, error) {
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, step("mmap UMEM", err)
	}
	return &Memory{b, chunk}, nil
}

// Discard returns the pages to the system. The addresses stay mapped and read as zero until the garbage collector frees
// the Memory, so a late reader does not fault.
func (m *Memory) Discard() {
	unix.Madvise(m.Bytes, unix.MADV_DONTNEED)
	b := m.Bytes
	runtime.AddCleanup(m, func(b []byte) { unix.Munmap(b) }, b)
}

// Sizes are the sizes of the rings, powers of two. Without a TX ring a socket only receives.
type Sizes struct{ Fill, RX, TX, Completion int }

// Socket is an AF_XDP socket. Its rings belong to one goroutine at a time.
type Socket struct {
	FD         int
	Fill       Producer[uint64]
	RX         Consumer[Desc]
	TX         Producer[Desc]
	Completion Consumer[uint64]

	shared *Socket // the socket that has registered the memory; nil: this one
	maps   [][]byte
}

// New makes a socket with its rings. The first socket on a Memory registers it; sockets for other queues of the same
// interface name the first one as shared. A socket for the same queue as shared has no Fill and no Completion ring: it
// uses the rings of shared.
// Errors wrap the errno and name the step.
func New(m *Memory, shared *Socket, z Sizes) (*Socket, error) {
	fd, err := unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, step("socket", err)
	}
	s := &Socket{FD: fd, shared: shared}
	if err := s.setUp(m, z); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Socket) setUp(m *Memory, z Sizes) error {
	if s.shared == nil {
		reg := unix.XDPUmemReg{Addr: uint64(uintptr(unsafe.Pointer(&m.Bytes[0]))), Len: uint64(len(m.Bytes)), Size: uint32(m.chunk)}
		if err := s.set(unix.XDP_UMEM_REG, unsafe.Pointer(&reg), unsafe.Sizeof(reg)); err != nil {
			return step("XDP_UMEM_REG", err)
		}
	}
	var off unix.XDPMmapOffsets
	rings := []struct {
		name   string
		option int
		size   int
		page   int64
		parts  *unix.XDPRingOffset // offsets in the mapped memory
		entry  uintptr
		use    func(mem []byte)
	}{
		{"XDP_UMEM_FILL_RING", unix.XDP_UMEM_FILL_RING, z.Fill, unix.XDP_UMEM_PGOFF_FILL_RING, &off.Fr, 8,
			func(mem []byte) { s.Fill = NewProducer(parts[uint64](mem, &off.Fr, z.Fill)) }},
		{"XDP_UMEM_COMPLETION_RING", unix.XDP_UMEM_COMPLETION_RING, z.Completion, unix.XDP_UMEM_PGOFF_COMPLETION_RING, &off.Cr, 8,
			func(mem []byte) { s.Completion = NewConsumer(parts[uint64](mem, &off.Cr, z.Completion)) }},
		{"XDP_RX_RING", unix.XDP_RX_RING, z.RX, unix.XDP_PGOFF_RX_RING, &off.Rx, unsafe.Sizeof(Desc{}),
			func(mem []byte) { s.RX = NewConsumer(parts[Desc](mem, &off.Rx, z.RX)) }},
		{"XDP_TX_RING", unix.XDP_TX_RING, z.TX, unix.XDP_PGOFF_TX_RING, &off.Tx, unsafe.Sizeof(Desc{}),
			func(mem []byte) { s.TX = NewProducer(parts[Desc](mem, &off.Tx, z.TX)) }},
	}
	for _, r := range rings {
		if r.size == 0 {
			continue
		}
		if err := unix.SetsockoptInt(s.FD, unix.SOL_XDP, r.option, r.size); err != nil {
			return step(r.name, err)
		}
	}
	if err := s.get(unix.XDP_MMAP_OFFSETS, unsafe.Pointer(&off), unsafe.Sizeof(off)); err != nil {
		return step("XDP_MMAP_OFFSETS", err)
	}
	for _, r := range rings {
		if r.size == 0 {
			continue
		}
		b, err := unix.Mmap(s.FD, r.page, int(r.parts.Desc)+r.size*int(r.entry), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
		if err != nil {
			return step("mmap "+r.name, err)
		}
		s.maps = append(s.maps, b)
		r.use(b)
	}
	return nil
}

// parts returns the parts of a ring of n entries in the memory that the kernel has mapped for it.
func parts[T any](mem []byte, at *unix.XDPRingOffset, n int) (producer, consumer, flags *uint32, entries []T) {
	word := func(off uint64) *uint32 { return (*uint32)(unsafe.Pointer(&mem[off])) }
	return word(at.Producer), word(at.Consumer), word(at.Flags), unsafe.Slice((*T)(unsafe.Pointer(&mem[at.Desc])), n)
}

// busyLimit is how long a queue may stay busy after its last socket was closed: the kernel frees it asynchronously.
const busyLimit = 5 * time.Second

// Bind binds the socket to a queue of an interface. flags are those of struct sockaddr_xdp. Bind ignores them for a
// socket that uses the memory of another one, because the kernel then takes the flags of that one. The Fill ring should
// have entries before. Bind waits up to busyLimit for a busy queue. If it then fails with EBUSY, another socket has the
// queue.
func (s *Socket) Bind(ifindex, queue int, flags uint16) error {
	a := &unix.SockaddrXDP{Flags: flags, Ifindex: uint32(ifindex), QueueID: uint32(queue)}
	if s.shared != nil {
		a.Flags, a.SharedUmemFD = unix.XDP_SHARED_UMEM, uint32(s.shared.FD)
	}
	for deadline := time.Now().Add(busyLimit); ; time.Sleep(2 * time.Millisecond) {
		err := unix.Bind(s.FD, a)
		if err == nil {
			return nil
		}
		if err != unix.EBUSY || time.Now().After(deadline) {
			return step("bind", err)
		}
	}
}

// ZeroCopy reports whether the driver of the bound interface uses the UMEM directly.
func (s *Socket) ZeroCopy() bool {
	v, err := unix.GetsockoptInt(s.FD, unix.SOL_XDP, unix.XDP_OPTIONS)
	return err == nil && v&unix.XDP_OPTIONS_ZEROCOPY != 0
}

// Statistics returns the kernel's counters since the socket was made.
func (s *Socket) Statistics() (v unix.XDPStatistics, err error) {
	return v, s.get(unix.XDP_STATISTICS, unsafe.Pointer(&v), unsafe.Sizeof(v))
}

// KickTX makes the kernel look at the TX ring; in copy mode this call sends the frames. Errno 0 does not mean that the
// ring is empty.
func (s *Socket) KickTX() unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(s.FD), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// KickRX makes the kernel look at the Fill ring, and poll the interface if busy polling is set.
func (s *Socket) KickRX() unix.Errno {
	_, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.FD), 0, 0, unix.MSG_DONTWAIT, 0, 0)
	return errno
}

// Close unmaps the rings and closes the socket. While the rings are mapped the kernel does not release the queue.
func (s *Socket) Close() {
	for _, b := range s.maps {
		unix.Munmap(b)
	}
	s.maps = nil
	unix.Close(s.FD)
}

func (s *Socket) set(option int, v unsafe.Pointer, size uintptr) error {
	_, _, errno := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(s.FD), unix.SOL_XDP, uintptr(option), uintptr(v), size, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

func (s *Socket) get(option int, v unsafe.Pointer, size uintptr) error {
	n := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(s.FD), unix.SOL_XDP, uintptr(option), uintptr(v), uintptr(unsafe.Pointer(&n)), 0)
	if errno != 0 {
		return errno
	}
	if n < uint32(size) && option == unix.XDP_MMAP_OFFSETS {
		return fmt.Errorf("%d bytes instead of %d, the kernel is older than 5.4: %w", n, size, unix.EOPNOTSUPP)
	}
	return nil
}

// step names the call that failed.
func step(name string, err error) error { return fmt.Errorf("%s: %w", name, err) }

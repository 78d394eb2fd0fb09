package verbs

import (
	"encoding/binary"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// The devices of the tests, on two addresses of the loopback.
const (
	device0 = "roce0"
	device1 = "roce1"
)

func TestMain(m *testing.M) {
	os.Setenv("ROCE_FLAGS", "--link udp --dev 127.77.0.1,127.77.0.2")
	os.Exit(m.Run())
}

// must returns the result of a call that must not fail.
func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// wantErrno checks the errno of a call; 0 means success.
func wantErrno(t *testing.T, what string, err error, want syscall.Errno) {
	t.Helper()
	if got := Errno(err); got != want {
		t.Errorf("%s: %v (errno %v), want %v", what, err, got, want)
	}
}

// ok checks that a call does not fail.
func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// end is one side of a connection: the objects of a program for libibverbs.
type end struct {
	t       *testing.T
	ctx     abi.Handle
	fd      int // of asynchronous events
	pd, cq  abi.Handle
	qp      abi.Handle
	qpn     uint32
	mem     []byte // memory outside Go's heap
	mr      abi.Handle
	info    abi.MRInfo
	gid     [16]byte
	rdAtoms uint8
}

const allAccess = uint32(roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic | roce.MWBind)

// memoryLen is the length of end.mem.
const memoryLen = 1 << 16

func eventfd(t *testing.T) int {
	t.Helper()
	fd := must[int](t)(unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_SEMAPHORE))
	t.Cleanup(func() { syscall.Close(fd) })
	return fd
}

// patience is how long tests wait for an expected event.
const patience = 10 * time.Second

// readable waits until an eventfd is not 0.
func readable(t *testing.T, fd int) {
	t.Helper()
	if n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(patience.Milliseconds())); n != 1 {
		t.Fatalf("the eventfd stays 0: %v", err)
	}
}

// counted reads an eventfd: 1 if there was an event, otherwise 0.
func counted(fd int) uint64 {
	var b [8]byte
	if n, _ := syscall.Read(fd, b[:]); n != len(b) {
		return 0
	}
	return binary.NativeEndian.Uint64(b[:])
}

// foreign returns memory outside Go's heap.
func foreign(t *testing.T, n int) []byte {
	t.Helper()
	b := must[[]byte](t)(syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE))
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// newEnd opens a device and makes a domain, a completion queue and a region.
func newEnd(t *testing.T, device string) *end {
	t.Helper()
	e := &end{t: t, fd: eventfd(t), mem: foreign(t, memoryLen), rdAtoms: 4}
	e.ctx = must[abi.Handle](t)(Open(device, e.fd))
	t.Cleanup(func() { Close(e.ctx) })
	e.pd = must[abi.Handle](t)(AllocPD(e.ctx))
	var err error
	e.cq, _, err = CreateCQ(e.ctx, 64, 0, 0, 0)
	ok(t, err)
	addr := addressOf(e.mem)
	e.mr = must[abi.Handle](t)(RegMR(e.pd, addr, memoryLen, addr, allAccess, &e.info))
	var g abi.GID
	ok(t, QueryGID(e.ctx, 1, 0, &g))
	e.gid = g.Raw
	return e
}

// config returns the configuration of a queue pair of a type.
func (e *end) config(typ roce.QPType) abi.QPInit {
	return abi.QPInit{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, Type: uint32(typ), Cookie: 7,
		Cap: abi.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 64}}
}

// create makes the queue pair.
func (e *end) create(init abi.QPInit) {
	e.t.Helper()
	var err error
	e.qp, e.qpn, err = CreateQP(e.ctx, &init)
	ok(e.t, err)
}

// to returns the address vector of a peer.
func (e *end) to(p *end) abi.AHAttr {
	return abi.AHAttr{DGID: p.gid, IsGlobal: 1, Port: 1, HopLimit: 64, FlowLabel: 0xFFFFFFFF}
}

// init brings the queue pair to INIT.
func (e *end) init() {
	e.t.Helper()
	ok(e.t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateInit), Port: 1, Access: allAccess &^ uint32(roce.MWBind)},
		uint32(roce.AttrState|roce.AttrPKeyIndex|roce.AttrPort|roce.AttrAccess)))
}

// maskOf returns the attributes in a mask that the verbs have.
func maskOf(m roce.AttrMask) uint32 { return uint32(m &^ roce.AttrFlushICRCQuirk) }

// connect brings a queue pair in INIT to RTS.
func (e *end) connect(typ roce.QPType, p *end) {
	e.t.Helper()
	e.listen(typ, p)
	ok(e.t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateRTS), SQPSN: 5, Timeout: 14, RetryCnt: 7, RNRRetry: 7,
		MaxRdAtomic: e.rdAtoms}, maskOf(roce.MaskRTS(typ))))
}

// listen brings a queue pair in INIT to RTR.
func (e *end) listen(typ roce.QPType, p *end) {
	e.t.Helper()
	ok(e.t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateRTR), AH: e.to(p), PathMTU: uint32(roce.MTU1024), DestQPN: p.qpn,
		RQPSN: 5, MaxDestRdAtomic: e.rdAtoms, MinRNRTimer: 1}, maskOf(roce.MaskRTR(typ))))
}

// sge returns an element of the end's memory, the first one of several.
func (e *end) sge(off, n int) *abi.SGE {
	list := make([]abi.SGE, 8)
	list[0] = abi.SGE{Addr: e.info.Addr + uint64(off), Length: uint32(n), LKey: e.info.LKey}
	return &list[0]
}

// send posts one work request.
func (e *end) send(wr abi.SendWR) {
	e.t.Helper()
	wr.Flags |= uint32(roce.Signaled)
	if n, _, err := PostSend(e.qp, []abi.SendWR{wr}, 1); n != 1 || err != nil {
		e.t.Fatalf("PostSend = %d, %v", n, err)
	}
}

// recv posts one receive.
func (e *end) recv(id uint64, off, n int) {
	e.t.Helper()
	if n, err := PostRecv(e.qp, []abi.RecvWR{{ID: id, SG: e.sge(off, n), NumSGE: 1}}); n != 1 || err != nil {
		e.t.Fatalf("PostRecv = %d, %v", n, err)
	}
}

// take waits for one completion.
func (e *end) take() abi.WC {
	e.t.Helper()
	var wcs [1]abi.WC
	for until := time.Now().Add(patience); time.Now().Before(until); runtime.Gosched() {
		switch n, err := PollCQ(e.cq, wcs[:]); {
		case err != nil:
			e.t.Fatal(err)
		case n == 1:
			return wcs[0]
		}
	}
	e.t.Fatal("no completion")
	return abi.WC{}
}

// want waits for a completion with a status.
func (e *end) want(id uint64, s roce.Status) abi.WC {
	e.t.Helper()
	wc := e.take()
	if wc.ID != id || roce.Status(wc.Status) != s {
		e.t.Fatalf("completion of %d: %v, want of %d: %v", wc.ID, roce.Status(wc.Status), id, s)
	}
	return wc
}

// pair returns two ends with connected queue pairs.
func pair(t *testing.T, typ roce.QPType) (a, b *end) {
	t.Helper()
	a, b = newEnd(t, device0), newEnd(t, device1)
	for _, e := range []*end{a, b} {
		e.create(e.config(typ))
		e.init()
	}
	a.connect(typ, b)
	b.connect(typ, a)
	return a, b
}

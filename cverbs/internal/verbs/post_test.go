package verbs

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
)

func TestSendRecv(t *testing.T) {
	a, b := pair(t, roce.RC)
	b.recv(1, 0, 4096)
	copy(a.mem, "hello")
	a.send(abi.SendWR{ID: 2, Opcode: uint32(roce.SendImm), SG: a.sge(0, 5), NumSGE: 1, Imm: translate.Network(0x01020304)})
	a.want(2, roce.StatusSuccess)
	wc := b.want(1, roce.StatusSuccess)
	if wc.Opcode != uint32(roce.WCRecv) || wc.ByteLen != 5 || wc.QPN != b.qpn || wc.Flags != uint32(roce.WCWithImm) || wc.Imm != translate.Network(0x01020304) {
		t.Errorf("completion %+v", wc)
	}
	if string(b.mem[:5]) != "hello" {
		t.Errorf("received %q", b.mem[:5])
	}
}

func TestInline(t *testing.T) {
	a, b := pair(t, roce.RC)
	b.recv(1, 0, 4096)
	copy(a.mem, "hello, world")
	list := []abi.SGE{{Addr: a.info.Addr, Length: 5}, {}, {Addr: a.info.Addr + 5, Length: 7}} // keys are ignored
	a.send(abi.SendWR{ID: 2, Opcode: uint32(roce.Send), SG: &list[0], NumSGE: 3, Flags: 8})
	copy(a.mem, "overwritten!")
	a.want(2, roce.StatusSuccess)
	b.want(1, roce.StatusSuccess)
	if got := string(b.mem[:12]); got != "hello, world" {
		t.Errorf("received %q", got)
	}
	n, _, err := PostSend(a.qp, []abi.SendWR{{Opcode: uint32(roce.Send), SG: a.sge(0, 1000), NumSGE: 1, Flags: 8}}, 1)
	if n != 0 {
		t.Error("more inline data than the queue pair has room for is posted")
	}
	wantErrno(t, "too much inline data", err, syscall.EINVAL)
}

func TestOneSided(t *testing.T) {
	a, b := pair(t, roce.RC)
	write := abi.SendWR{ID: 1, Opcode: uint32(roce.Write), SG: a.sge(0, 3000), NumSGE: 1, RemoteAddr: b.info.Addr + 100, RKey: b.info.RKey}
	for i := range a.mem[:3000] {
		a.mem[i] = byte(i)
	}
	a.send(write)
	a.want(1, roce.StatusSuccess)
	if !bytes.Equal(a.mem[:3000], b.mem[100:3100]) {
		t.Error("WRITE: other data")
	}
	a.send(abi.SendWR{ID: 2, Opcode: uint32(roce.Read), SG: a.sge(8192, 3000), NumSGE: 1, RemoteAddr: b.info.Addr + 100, RKey: b.info.RKey})
	a.want(2, roce.StatusSuccess)
	if !bytes.Equal(a.mem[:3000], a.mem[8192:8192+3000]) {
		t.Error("READ: other data")
	}
	word := b.mem[16384:]
	binary.NativeEndian.PutUint64(word, 40)
	atomic := abi.SendWR{ID: 3, Opcode: uint32(roce.FetchAdd), SG: a.sge(0, 8), NumSGE: 1, RemoteAddr: b.info.Addr + 16384, RKey: b.info.RKey, CompareAdd: 2}
	a.send(atomic)
	a.want(3, roce.StatusSuccess)
	if got, old := binary.NativeEndian.Uint64(word), binary.NativeEndian.Uint64(a.mem); got != 42 || old != 40 {
		t.Errorf("FETCH_ADD makes %d of %d", got, old)
	}
	atomic.ID, atomic.Opcode, atomic.CompareAdd, atomic.Swap = 4, uint32(roce.CompareSwap), 42, 7
	a.send(atomic)
	a.want(4, roce.StatusSuccess)
	if got := binary.NativeEndian.Uint64(word); got != 7 {
		t.Errorf("CMP_SWAP makes %d", got)
	}
	a.send(abi.SendWR{ID: 5, Opcode: uint32(roce.AtomicWrite), RemoteAddr: b.info.Addr + 16384, RKey: b.info.RKey, AtomicWrite: 0x1122334455667788})
	if wc := a.want(5, roce.StatusSuccess); wc.Opcode != uint32(roce.WCAtomicWrite) {
		t.Errorf("completion of opcode %d", wc.Opcode)
	}
	if got := binary.NativeEndian.Uint64(word); got != 0x1122334455667788 {
		t.Errorf("ATOMIC_WRITE makes %#x", got)
	}
}

// The call must report the first refused work request, and post those before it.
func TestBadWR(t *testing.T) {
	a, b := pair(t, roce.RC)
	for i := range 60 {
		b.recv(uint64(i), 0, 64)
	}
	good := abi.SendWR{Opcode: uint32(roce.Send), SG: a.sge(0, 8), NumSGE: 1, Flags: uint32(roce.Signaled)}
	bad := map[string]struct {
		change func(*abi.SendWR)
		errno  syscall.Errno
	}{
		"opcode":        {func(wr *abi.SendWR) { wr.Opcode = 99 }, syscall.EINVAL},
		"TSO":           {func(wr *abi.SendWR) { wr.Opcode = 10 }, syscall.EINVAL},
		"flags":         {func(wr *abi.SendWR) { wr.Flags |= 1 << 20 }, syscall.EINVAL},
		"elements":      {func(wr *abi.SendWR) { wr.NumSGE = 5 }, syscall.EINVAL},
		"many elements": {func(wr *abi.SendWR) { wr.NumSGE = 1 << 30 }, syscall.EINVAL},
		"negative":      {func(wr *abi.SendWR) { wr.NumSGE = -1 }, syscall.EINVAL},
		"no list":       {func(wr *abi.SendWR) { wr.SG = nil }, syscall.EFAULT},
		"window":        {func(wr *abi.SendWR) { wr.Opcode = uint32(roce.BindMW) }, syscall.EINVAL},
	}
	for name, test := range bad {
		t.Run(name, func(t *testing.T) {
			for _, at := range []int{0, 1, 3} {
				wrs := []abi.SendWR{good, good, good, good}
				test.change(&wrs[at])
				n, _, err := PostSend(a.qp, wrs, 1)
				if n != at {
					t.Errorf("posts %d, want %d", n, at)
				}
				wantErrno(t, "post", err, test.errno)
				for range n {
					a.want(0, roce.StatusSuccess)
				}
			}
		})
	}
	wrs := make([]abi.SendWR, 100) // the queue has room for 64
	for i := range wrs {
		wrs[i] = good
	}
	n, _, err := PostSend(a.qp, wrs, 1)
	if n < 64 || n == len(wrs) {
		t.Errorf("posts %d of %d", n, len(wrs))
	}
	wantErrno(t, "full queue", err, syscall.ENOMEM)
}

func TestPostRecvBad(t *testing.T) {
	e := newEnd(t, device0)
	e.create(e.config(roce.RC))
	good := abi.RecvWR{SG: e.sge(0, 64), NumSGE: 1}
	_, err := PostRecv(e.qp, []abi.RecvWR{good})
	wantErrno(t, "in RESET", err, syscall.EINVAL)
	e.init()
	bad := good
	bad.NumSGE = 33
	n, err := PostRecv(e.qp, []abi.RecvWR{good, good, bad})
	if n != 2 {
		t.Errorf("posts %d, want 2", n)
	}
	wantErrno(t, "elements", err, syscall.EINVAL)
	wrs := make([]abi.RecvWR, 100)
	for i := range wrs {
		wrs[i] = good
	}
	n, err = PostRecv(e.qp, wrs)
	if n < 62 || n == len(wrs) {
		t.Errorf("posts %d of %d", n, len(wrs))
	}
	wantErrno(t, "full queue", err, syscall.ENOMEM)
}

func TestDatagrams(t *testing.T) {
	a, b := newEnd(t, device0), newEnd(t, device1)
	for _, e := range []*end{a, b} {
		e.create(e.config(roce.UD))
		ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateInit), Port: 1, QKey: 0x1234}, uint32(roce.AttrState|roce.AttrPKeyIndex|roce.AttrPort|roce.AttrQKey)))
		ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateRTR)}, uint32(roce.AttrState)))
		ok(t, ModifyQP(e.qp, &abi.QPAttr{State: uint32(roce.StateRTS)}, uint32(roce.AttrState|roce.AttrSQPSN)))
	}
	to := a.to(b)
	ah := must[abi.Handle](t)(CreateAH(a.pd, &to))
	b.recv(1, 0, 1000)
	wr := abi.SendWR{ID: 2, Opcode: uint32(roce.Send), SG: a.sge(0, 100), NumSGE: 1, AH: ah, RemoteQPN: b.qpn, RemoteQKey: 0x1234}
	a.send(wr)
	a.want(2, roce.StatusSuccess)
	wc := b.want(1, roce.StatusSuccess)
	const ipv4 = 2
	if wc.ByteLen != 140 || wc.SrcQPN != a.qpn || wc.Flags != uint32(roce.WCGRH) || wc.SL != ipv4 {
		t.Errorf("completion %+v", wc)
	}
	wantErrno(t, "close domain of a handle", DeallocPD(a.pd), syscall.EBUSY)
	ok(t, DestroyAH(ah))
	wantErrno(t, "again", DestroyAH(ah), syscall.EINVAL)
	_, _, err := PostSend(a.qp, []abi.SendWR{wr}, 1)
	wantErrno(t, "dead handle", err, syscall.EINVAL)
	to.IsGlobal = 0
	_, err = CreateAH(a.pd, &to)
	wantErrno(t, "no GRH", err, syscall.EINVAL)
}

// Posting and polling must not allocate.
func TestAllocations(t *testing.T) {
	if raceEnabled {
		t.Skip("sync.Pool allocates under the race detector")
	}
	a, b := pair(t, roce.RC)
	wrs := make([]abi.SendWR, 8)
	for i := range wrs {
		wrs[i] = abi.SendWR{Opcode: uint32(roce.Write), SG: a.sge(0, 32), NumSGE: 1, RemoteAddr: b.info.Addr, RKey: b.info.RKey,
			Flags: uint32(roce.Signaled) | uint32(i%2)*8}
	}
	rounds := func() {
		if n, _, err := PostSend(a.qp, wrs, 1); n != len(wrs) || err != nil {
			t.Fatal(n, err)
		}
		var wcs [8]abi.WC
		for got := 0; got < len(wrs); {
			n, _ := PollCQ(a.cq, wcs[:])
			got += n
		}
	}
	rounds()
	if n := testing.AllocsPerRun(200, rounds); n >= 1 {
		t.Errorf("%v allocations a round", n)
	}
}

func BenchmarkPollEmpty(b *testing.B) {
	ctx, err := Open(device0, -1)
	if err != nil {
		b.Fatal(err)
	}
	defer Close(ctx)
	cq, _, err := CreateCQ(ctx, 64, 0, 0, 0)
	if err != nil {
		b.Fatal(err)
	}
	wcs := make([]abi.WC, 16)
	for b.Loop() {
		PollCQ(cq, wcs)
	}
}

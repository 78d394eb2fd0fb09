//go:build linux && (amd64 || arm64) && !race

package qp_test

import (
	"encoding/binary"
	"flag"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

var large = flag.Bool("large", false, "transfer 2 GiB at the smallest path MTU too, which takes ten seconds more")

// huge maps n bytes of memory that takes no room until it is written.
func huge(t testing.TB, n int) []byte {
	t.Helper()
	b, err := syscall.Mmap(-1, 0, n, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE|syscall.MAP_NORESERVE)
	if err != nil {
		t.Skipf("no %d bytes of address space: %v", n, err)
	}
	t.Cleanup(func() { syscall.Munmap(b) })
	return b
}

const (
	most   = qp.MaxMessage // bytes of a message
	pieces = qp.MaxSGE     // of its scatter/gather list, all in the same memory
	piece  = most / pieces
)

// marks are places in a piece whose contents tell the pieces apart.
var marks = [...]int{0, 8, piece/2 - 4, piece - 8}

func mark(i, k int) uint64 { return uint64(i+1)<<32 | uint64(k+1) }

// TestLargest transfers a message of the largest size, 2 GiB, by READ and WRITE. At one end it is one region of
// memory, most of which is never touched. At the other end all elements are the same memory. PSNs wrap, and at the
// smallest MTU the message has half of all PSNs.
func TestLargest(t *testing.T) {
	if testing.Short() {
		t.Skip("takes a second")
	}
	mtus := []bth.MTU{bth.MTU4096}
	if *large {
		mtus = append(mtus, bth.MTU256)
	}
	for _, mtu := range mtus {
		for _, op := range []qp.Opcode{qp.Read, qp.Write} {
			t.Run(op.String()+" "+mtu.String(), func(t *testing.T) { transferMost(t, op, mtu) })
		}
	}
}

func transferMost(t *testing.T, op qp.Opcode, mtu bth.MTU) {
	const start = bth.PSN(0xFFF000)
	na, nb, _ := newPair(t, 1, impairment{}, pairConfig{mtu: mtu, psnA: start, rd: 2,
		caps: qp.Caps{MaxSendWR: 4, MaxRecvWR: 1, MaxSendSGE: pieces}})
	a, b := newWire(na, false), newWire(nb, false)
	whole, part := huge(t, most), huge(t, piece)
	rm := must(nb.mem.Register(nb.pd, whole, mr.LocalWrite|mr.RemoteWrite|mr.RemoteRead, mr.Options{}))
	lm := must(na.mem.Register(na.pd, part, mr.LocalWrite, mr.Options{}))
	wr := qp.SendWR{Opcode: op, Flags: qp.Signaled, RemoteAddr: rm.Addr(), RKey: rm.RKey()}
	for range pieces {
		wr.SG = append(wr.SG, lm.SGE(0, piece))
	}
	put := func(b []byte, i, k int) { binary.LittleEndian.PutUint64(b[marks[k]:], mark(i, k)) }
	for k := range marks {
		if op == qp.Write {
			put(part, 0, k)
			continue
		}
		for i := range pieces {
			put(whole[i*piece:], i, k)
		}
	}
	must(0, na.PostSend(&wr))
	must(0, na.PostSend(&qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled}))

	i, k := 0, 0 // the next mark
	arrived := func() {
		data, to := &a.data, whole[i*piece:]
		if op == qp.Read {
			data, to = &b.data, part
		}
		if *data < i*piece+marks[k]+8 {
			return
		}
		if got := binary.LittleEndian.Uint64(to[marks[k]:]); got != mark(i, k) {
			t.Fatalf("piece %d at %d: %#x, want %#x", i, marks[k], got, mark(i, k))
		}
		if op == qp.Write {
			put(part, i+1, k) // for the next piece
		}
		if k++; k == len(marks) {
			if op == qp.Write {
				syscall.Madvise(whole[i*piece:(i+1)*piece], syscall.MADV_DONTNEED)
			}
			i, k = i+1, 0
		}
	}
	wcs := ferry(t, a, b, 2, func() {
		for range marks {
			if i < pieces {
				arrived()
			}
		}
	})
	if i != pieces || wcs[0].ByteLen != most {
		t.Errorf("%d of %d pieces, %d bytes", i, pieces, wcs[0].ByteLen)
	}
	attr, _ := na.Query()
	peer, _ := nb.Query()
	if end := start.Add(most/mtu.Bytes() + 1); attr.SQPSN != end || peer.RQPSN != end {
		t.Errorf("next PSN %v, expected %v, want %v", attr.SQPSN, peer.RQPSN, end)
	}
	if c := na.cnt; c.RetransPkts+c.ImpliedNAK+nb.cnt.DuplicateRequest+nb.cnt.OutOfSeqRequest > 0 {
		t.Errorf("recovered on a perfect network: %+v", c)
	}
}

// TestLargestReadRequest: a peer may request 2 GiB with one READ, at the smallest MTU with half of all PSNs. The next
// request has the PSN behind these, and the responder answers a repeated part.
func TestLargestReadRequest(t *testing.T) {
	b := newBench(t, pairConfig{mtu: bth.MTU256, psnB: e0})
	whole := huge(t, most)
	region := must(b.mem.Register(b.pd, whole, mr.RemoteRead|mr.LocalWrite, mr.Options{}))
	const packets = most / 256
	at := e0.Add(1) // of the READ
	b.HandlePacket(1, build(t, b.peer.path, b.Num(), packet{op: bth.RCWriteOnly, psn: e0, ack: true}))
	b.HandlePacket(1, build(t, b.peer.path, b.Num(), packet{op: bth.RCReadRequest, psn: at, va: region.Addr(), key: region.RKey(), length: most}))
	if attr, _ := b.Query(); attr.RQPSN != at.Add(packets) {
		t.Fatalf("expects PSN %v, want %v", attr.RQPSN, at.Add(packets))
	}
	b.room = 3
	b.Emit(1, limited{b})
	b.wantSent(line{bth.RCAck, e0}, line{bth.RCReadResponseFirst, at}, line{bth.RCReadResponseMiddle, at.Add(1)})
	b.HandlePacket(1, build(t, b.peer.path, b.Num(), packet{op: bth.RCWriteOnly, psn: at.Add(packets), ack: true}))
	b.HandlePacket(1, build(t, b.peer.path, b.Num(), packet{op: bth.RCReadRequest, psn: at.Add(packets - 1), va: region.Addr() + most - 256, key: region.RKey(), length: 256}))
	if b.cnt.DuplicateRequest != 1 || b.cnt.DupDropped != 0 || b.cnt.OutOfSeqRequest != 0 {
		t.Errorf("counters %+v", b.cnt)
	}
	b.wantState(qp.RTS)
}

// TestHoldBehindLongestREAD: the longest READ that there is, over the smallest packets, has half of all PSNs.
// The requests that were held are among them: none is executed.
func TestHoldBehindLongestREAD(t *testing.T) {
	b, _, _ := holding(t, pairConfig{mtu: bth.MTU256, rd: 4})
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(256 - 1), payload: []byte("held")})
	b.inject(packet{op: bth.RCSendOnly, psn: e0.Add(1), payload: []byte("held")})
	b.sent()
	whole := must(b.mem.Register(b.pd, huge(t, most), mr.RemoteRead, mr.Options{}))
	b.handle(packet{op: bth.RCReadRequest, psn: e0, va: whole.Addr(), key: whole.RKey(), length: most})
	b.handle(packet{op: bth.RCSendOnly, psn: e0.Add(most / 256), payload: []byte("next")})
	if n := len(drain(b.recv)); n != 1 {
		t.Errorf("%d receives complete, want that of the SEND behind the READ", n)
	}
	if n := b.repair.Lent(); n != 0 {
		t.Errorf("%d bytes are lent, and nothing is missing", n)
	}
	if b.NextTimeout() != mono.Never {
		t.Error("a timer runs on")
	}
}

package scenario_test

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// maskedPair makes two connected queue pairs. a and b tell which of them have masked atomics enabled.
func maskedPair(t testing.TB, a, b bool) (x, y *peer) {
	t.Helper()
	return atomicPair(t, roce.QPConfig{MaskedAtomics: a}, roce.QPConfig{MaskedAtomics: b})
}

// atomicPair connects queue pairs of two configurations, which have the rest in common.
func atomicPair(t testing.TB, a, b roce.QPConfig) (x, y *peer) {
	t.Helper()
	n := newNetwork(t)
	make := func(addr string, c roce.QPConfig) *peer {
		p := newPeer(t, n.device(addr), 64)
		check(t, p.qp.Close())
		c.SendCQ, c.Caps = p.cq, deepCaps
		p.qp = ok(p.pd.CreateQP(c))(t)
		check(t, p.qp.Init(roce.DefaultQPAccess, 0))
		return p
	}
	x, y = make("10.0.0.1", a), make("10.0.0.2", b)
	connect(t, x, y)
	return x, y
}

// TestMaskedAtomics: masked atomics work between two ends that have them enabled; otherwise the requester gets no answer.
func TestMaskedAtomics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := maskedPair(t, true, true)
		binary.NativeEndian.PutUint64(b.buf, 0xFF_01)
		wr := a.wr(roce.MaskedFetchAdd, 0, 8, b, 0)
		wr.CompareAdd, wr.Boundary = 0x01_01, 0x80_80
		check(t, a.qp.PostSend(wr))
		if wc := a.wait(); wc.Opcode != cq.OpMaskedFetchAdd || wc.ByteLen != 8 {
			t.Errorf("completion %+v", wc)
		}
		if was, is := binary.NativeEndian.Uint64(a.buf), binary.NativeEndian.Uint64(b.buf); was != 0xFF_01 || is != 0x00_02 {
			t.Errorf("was %#x, is %#x", was, is)
		}
		wr = a.wr(roce.MaskedCompareSwap, 0, 2, b, 10)
		wr.CompareMask, wr.Swap, wr.SwapMask = 1, 0xFFFF, 0x8001
		check(t, a.qp.PostSend(wr))
		a.wait()
		if is := binary.NativeEndian.Uint16(b.buf[10:]); is != 0x8001 {
			t.Errorf("is %#x", is)
		}
	})
	bubble(t, func(t *testing.T) {
		a, b := maskedPair(t, true, false)
		check(t, a.qp.PostSend(a.wr(roce.MaskedFetchAdd, 0, 8, b, 0)))
		a.waitFor(cq.RetryExcErr)
	})
}

// TestWideAtomics: operands of 32 bytes, and answers in network byte order, of the standard's atomics, too.
func TestWideAtomics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		wide := roce.QPConfig{MaskedAtomics: true, MaxAtomicArg: 32}
		big := wide
		big.BigEndianReply = true
		a, b := atomicPair(t, big, wide)
		at := int(-b.mr.Addr() & 31)
		for i := range uint64(4) {
			binary.NativeEndian.PutUint64(b.buf[at+8*int(i):], 10+i)
		}
		wr := a.wr(roce.MaskedFetchAdd, 0, 32, b, at)
		wr.Args = &roce.MaskedArgs{CompareAdd: roce.Words{1, 2, 3, 4}}
		check(t, a.qp.PostSend(wr))
		if wc := a.wait(); wc.ByteLen != 32 {
			t.Errorf("completion %+v", wc)
		}
		for i := range uint64(4) {
			was, is := binary.BigEndian.Uint64(a.buf[8*i:]), binary.NativeEndian.Uint64(b.buf[at+8*int(i):])
			if was != 10+i || is != 11+2*i {
				t.Errorf("word %d was %d, is %d", i, was, is)
			}
		}
		check(t, a.qp.PostSend(a.wr(roce.FetchAdd, 40, 8, b, at)))
		a.wait()
		if was := binary.BigEndian.Uint64(a.buf[40:]); was != 11 {
			t.Errorf("FETCH_ADD returned %#x in network byte order", was)
		}
		check(t, b.qp.PostSend(b.wr(roce.FetchAdd, at&^7, 8, a, 0)))
		b.wait()
		if was := binary.NativeEndian.Uint64(b.buf[at&^7:]); was != binary.NativeEndian.Uint64(a.buf) {
			t.Errorf("FETCH_ADD returned %#x in the byte order of the host", was)
		}
	})
}

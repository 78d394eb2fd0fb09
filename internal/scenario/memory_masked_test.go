package scenario_test

import (
	"encoding/binary"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// maskedPair makes two connected queue pairs with masked atomics, if either may.
func maskedPair(t testing.TB, a, b bool) (x, y *peer) {
	t.Helper()
	n := newNetwork(t)
	make := func(addr string, masked bool) *peer {
		p := newPeer(t, n.device(addr), 64)
		check(t, p.qp.Close())
		p.qp = ok(p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq, Caps: deepCaps, MaskedAtomics: masked}))(t)
		check(t, p.qp.Init(roce.DefaultQPAccess, 0))
		return p
	}
	x, y = make("10.0.0.1", a), make("10.0.0.2", b)
	connect(t, x, y)
	return x, y
}

// TestMaskedAtomics: between two ends that have them enabled; else the requester
// gets no answer.
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

package bth

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// touchBTH calls the accessors that also work after an error of Parse, if the
// packet has a BTH.
func touchBTH(p *Packet) {
	_, _, _, _, _, _ = p.Solicited(), p.MigReq(), p.Pad(), p.PKey(), p.FECN(), p.BECN()
	_, _, _, _ = p.DestQPN(), p.AckReq(), p.PSN(), p.Flags()
}

// touch calls every accessor.
func touch(p *Packet) {
	touchBTH(p)
	_, _, _, _, _ = p.VA(), p.RKey(), p.DMALen(), p.Swap(), p.Compare()
	_, _, _, _, _ = p.Syndrome(), p.MSN(), p.AtomicValue(), p.Imm(), p.InvKey()
	_, _, _, _, _, _ = p.QKey(), p.SrcQPN(), p.SRQN(), p.EEContext(), p.FlushType(), p.FlushSelectivity()
	_, _, _ = p.SwapMask(), p.CompareMask(), p.OperandSize()
	_, _ = p.DCETH(), p.DCCETH()
	_, _, _ = p.Payload(), p.PayloadLen(), p.ICRC()
}

// sample returns a packet of op with every field set, and its fields.
func sample(op Opcode, payload int) ([]byte, Fields) {
	f := Fields{BTH: BTHFields{Op: op, Flags: Solicited | MigReq | AckReq | FECN | BECN, PKey: 0x8001, DestQPN: 0xABCDEF, PSN: 0xFEDCBA}}
	has := func(h HeaderSet) bool { return op.Info().Headers&h != 0 }
	if has(HasRDETH) {
		f.RDETH = &RDETHFields{0x112233}
	}
	if has(HasDETH) {
		f.DETH = &DETHFields{0x11111112, 0x445566}
	}
	if has(HasXRCETH) {
		f.XRCETH = &XRCETHFields{0x778899}
	}
	if has(HasFETH) {
		f.FETH = &FETHFields{FlushGlobal | FlushPersistent, FlushMR}
	}
	if has(HasRETH) {
		f.RETH = &RETHFields{0x0102030405060708, 0x11121314, 0x21222324}
	}
	if has(HasAtomicETH) {
		f.AtomicETH = &AtomicETHFields{0x0102030405060708, 0x11121314, 0x3132333435363738, 0x4142434445464748}
	}
	if has(HasMaskETH) {
		f.MaskETH = &MaskETHFields{0x8182838485868788, 0x9192939495969798, 4}
	}
	if has(HasDCETH) {
		f.DCETH = &DCETHFields{QPN: 0xB1B2B3, Context: 0xC1C2C3C4}
	}
	if has(HasDCCETH) {
		f.DCCETH = &DCCETHFields{Key: 0xA1A2A3A4A5A6A7A8, Connection: 0xD1D2D3D4, Depth: 16, MTU: 5, Reason: DCKeyViolation}
	}
	if has(HasAETH) {
		f.AETH = &AETHFields{NAKRemoteOp, 0xAABBCC}
	}
	if has(HasAtomicAckETH) {
		f.AtomicAckETH = &AtomicAckETHFields{0x5152535455565758}
	}
	if has(HasImm) {
		v := uint32(0x61626364)
		f.Imm = &v
	}
	if has(HasIETH) {
		k := RKey(0x71727374)
		f.IETH = &k
	}
	if payload > 0 {
		f.Payload = bytes.Repeat([]byte{0xA5}, payload)
	}
	return append(f.Append(nil), 0xEF, 0xBE, 0xAD, 0xDE), f
}

func known(t *testing.T, f func(t *testing.T, op Opcode)) {
	for i := range 256 {
		if op := Opcode(i); op.Known() {
			t.Run(op.String(), func(t *testing.T) { f(t, op) })
		}
	}
}

func TestParseEveryOpcode(t *testing.T) {
	known(t, func(t *testing.T, op Opcode) {
		for payload := range 9 {
			data, want := sample(op, payload)
			var p Packet
			if err := p.Parse(data); err != nil {
				t.Fatalf("%d bytes: %v", payload, err)
			}
			touch(&p)
			got := Decode(&p)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
			if p.Pad() != Pad(payload) || p.PayloadLen() != payload || p.ICRC() != 0xDEADBEEF || p.Info != op.Info() {
				t.Errorf("pad %d, payload %d, ICRC %#x", p.Pad(), p.PayloadLen(), p.ICRC())
			}
			checkAbsent(t, &p)
		}
	})
}

// checkAbsent checks that the accessors of headers that are not there give 0.
func checkAbsent(t *testing.T, p *Packet) {
	t.Helper()
	for _, a := range []struct {
		in    HeaderSet
		value uint64
	}{
		{HasRETH | HasAtomicETH, p.VA()}, {HasRETH | HasAtomicETH, uint64(p.RKey())}, {HasRETH, uint64(p.DMALen())},
		{HasAtomicETH, p.Swap()}, {HasAtomicETH, p.Compare()}, {HasAETH, uint64(p.Syndrome())}, {HasAETH, uint64(p.MSN())},
		{HasAtomicAckETH, p.AtomicValue()}, {HasImm, uint64(p.Imm())}, {HasIETH, uint64(p.InvKey())},
		{HasDETH, uint64(p.QKey())}, {HasDETH, uint64(p.SrcQPN())}, {HasXRCETH, uint64(p.SRQN())},
		{HasRDETH, uint64(p.EEContext())}, {HasFETH, uint64(p.FlushType())}, {HasFETH, uint64(p.FlushSelectivity())},
	} {
		if present := p.Info.Headers&a.in != 0; present != (a.value != 0) {
			t.Errorf("%v: %s is %#x", p.Op, a.in.names(), a.value)
		}
	}
}

// TestParseTruncated cuts packets of every opcode at every length.
func TestParseTruncated(t *testing.T) {
	known(t, func(t *testing.T, op Opcode) {
		data, _ := sample(op, 6)
		need := int(op.Info().HeaderLen) + ICRCLen
		for n := range len(data) {
			var p Packet
			err := p.Parse(data[:n:n])
			switch {
			case n < need:
				if err != ErrShort {
					t.Errorf("%d bytes: %v, want %v", n, err, ErrShort)
				}
				continue
			case (n-need)%4 != 0 || n-need < Pad(6):
				if err != ErrPad {
					t.Errorf("%d bytes: %v, want %v", n, err, ErrPad)
				}
				touchBTH(&p)
			case err != nil:
				t.Errorf("%d bytes: %v", n, err)
			default:
				touch(&p)
			}
		}
	})
}

func TestParseErrors(t *testing.T) {
	for _, tt := range []struct {
		name string
		hex  string
		err  error
	}{
		{"good", "0400ffff000000110000000100000000", nil},
		{"empty", "", ErrShort},
		{"BTH without ICRC", "0400ffff0000001100000001000000", ErrShort},
		{"TVer 1", "0401ffff000000110000000100000000", ErrVersion},
		{"TVer 15", "040fffff000000110000000100000000", ErrVersion},
		{"reserved opcode", "1500ffff000000110000000100000000", ErrOpcode},
		{"manufacturer opcode", "ff00ffff000000110000000100000000", ErrOpcode},
		// Such a packet made rxe read beyond its buffer (fixed in 2026).
		{"opcode 0xff, pad 3", "ff30ffff000000110000000100000000", ErrOpcode},
		{"opcode before version", "1501ffff000000110000000100000000", ErrOpcode},
		{"version before length", "0601ffff000000110000000100000000", ErrVersion},
		{"pad without payload", "0410ffff000000110000000100000000", ErrPad},
		{"pad of 3 in 4", "0430ffff00000011000000010000000000000000", nil},
		{"length not a multiple of four", "0400ffff00000011000000010000000000", ErrPad},
		{"ACK without AETH", "1100ffff000000110000000100000000", ErrShort},
		{"all reserved bits", "0400ffff3f0000117f00000100000000", nil},
	} {
		b, err := hex.DecodeString(tt.hex)
		if err != nil {
			t.Fatal(err)
		}
		var p Packet
		if err := p.Parse(b); err != tt.err {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.err)
		} else if err == nil {
			touch(&p)
		}
	}
	for e := range ParseError(8) {
		if e.Error() == "" {
			t.Errorf("ParseError(%d) says nothing", e)
		}
	}
}

// TestReservedBits: reserved bits are ignored on receipt, and zero in sent
// packets.
func TestReservedBits(t *testing.T) {
	known(t, func(t *testing.T, op Opcode) {
		clean, want := sample(op, 4)
		dirty := bytes.Clone(clean)
		info := op.Info()
		dirty[4] |= 0x3F
		dirty[8] |= 0x7F
		set := func(h HeaderSet, hdr, at int, bits ...byte) {
			if info.Headers&h != 0 {
				for i, b := range bits {
					dirty[int(info.off[hdr])+at+i] |= b
				}
			}
		}
		set(HasAETH, hdrAETH, 0, 0x80)
		set(HasDETH, hdrDETH, 4, 0xFF)
		set(HasXRCETH, hdrXRCETH, 0, 0xFF)
		set(HasRDETH, hdrRDETH, 0, 0xFF)
		set(HasFETH, hdrFETH, 0, 0xFF, 0xFF, 0xFF, 0xC0)
		set(HasCNPReserved, hdrCNPReserved, 0, bytes.Repeat([]byte{0xFF}, CNPReservedLen)...)
		var p Packet
		if err := p.Parse(dirty); err != nil {
			t.Fatal(err)
		}
		got := Decode(&p)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if again := got.Append(nil); !bytes.Equal(again, clean[:len(clean)-ICRCLen]) {
			t.Errorf("sent %x, want %x", again, clean)
		}
	})
}

func TestPutBTH(t *testing.T) {
	for _, tt := range []struct {
		op   Opcode
		f    BTHFlags
		pad  int
		pkey PKey
		dest QPN
		psn  PSN
		want string
	}{
		{RCSendOnly, AckReq, 2, DefaultPKey, 0x31, 0xFFFFF0, "0420ffff0000003180fffff0"},
		{CNP, BECN, 0, DefaultPKey, 0x118, 0, "8100ffff4000011800000000"},
		{UCSendOnly, Solicited | MigReq, 3, 0x7FFF, QPNMulticast, 1, "24f07fff00ffffff00000001"},
		{0xFF, Solicited | MigReq | AckReq | FECN | BECN, 3, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, "fff0ffffc0ffffff80ffffff"},
	} {
		b := bytes.Repeat([]byte{0x5A}, BTHLen)
		if n := PutBTH(b, tt.op, tt.f, tt.pad, tt.pkey, tt.dest, tt.psn); n != BTHLen || hex.EncodeToString(b) != tt.want {
			t.Errorf("%d %x, want %s", n, b, tt.want)
		}
		if got := flagsOf(b); got != tt.f {
			t.Errorf("flags %v, want %v", got, tt.f)
		}
	}
}

// TestPutLengths checks that each put function writes as many bytes as it says.
func TestPutLengths(t *testing.T) {
	for name, put := range map[string]struct {
		n   int
		put func(b []byte) int
	}{
		"BTH":          {BTHLen, func(b []byte) int { return PutBTH(b, 0xFF, 0xFF, 3, 0xFFFF, PSNMask, PSNMask) }},
		"RETH":         {RETHLen, func(b []byte) int { return PutRETH(b, ^uint64(0), ^RKey(0), ^uint32(0)) }},
		"AtomicETH":    {AtomicETHLen, func(b []byte) int { return PutAtomicETH(b, ^uint64(0), ^RKey(0), ^uint64(0), ^uint64(0)) }},
		"MaskETH":      {MaskETHLen, func(b []byte) int { return PutMaskETH(b, ^uint64(0), ^uint64(0), 8) }},
		"AETH":         {AETHLen, func(b []byte) int { return PutAETH(b, 0xFF, PSNMask) }},
		"AtomicAckETH": {AtomicAckETHLen, func(b []byte) int { return PutAtomicAckETH(b, ^uint64(0)) }},
		"Imm":          {ImmLen, func(b []byte) int { return PutImm(b, ^uint32(0)) }},
		"IETH":         {IETHLen, func(b []byte) int { return PutIETH(b, ^RKey(0)) }},
		"DETH":         {DETHLen, func(b []byte) int { return PutDETH(b, ^QKey(0), ^QPN(0)) }},
		"XRCETH":       {XRCETHLen, func(b []byte) int { return PutXRCETH(b, ^SRQN(0)) }},
		"RDETH":        {RDETHLen, func(b []byte) int { return PutRDETH(b, ^uint32(0)) }},
		"FETH":         {FETHLen, func(b []byte) int { return PutFETH(b, 0xFF, 0xFF) }},
		"ICRC":         {ICRCLen, func(b []byte) int { return PutICRC(b, 0) }},
	} {
		b := make([]byte, put.n+1)
		if n := put.put(b); n != put.n || b[put.n] != 0 || b[put.n-1] == 0 {
			t.Errorf("%s: returned %d, wrote %x", name, n, b)
		}
	}
}

func TestFieldsString(t *testing.T) {
	imm, key := uint32(7), RKey(8)
	for _, tt := range []struct {
		f    Fields
		want string
	}{
		{Fields{BTH: BTHFields{RCWriteFirst, AckReq, DefaultPKey, 0x12, 0x345678}, RETH: &RETHFields{0x7F00, 0x51C, 4096}, Payload: make([]byte, 1024)},
			"RC WRITE_FIRST qpn 0x12 psn 0x345678 A va 0x7f00 rkey 0x51c len 4096 payload 1024"},
		{Fields{BTH: BTHFields{RCCompareSwap, 0, 0x7FFF, 1, 2}, AtomicETH: &AtomicETHFields{1, 2, 3, 4}},
			"RC COMPARE_SWAP qpn 0x1 psn 0x000002 pkey 0x7fff va 0x1 rkey 0x2 compare 0x4 swap 0x3"},
		{Fields{BTH: BTHFields{XRCSendLastImm, Solicited, DefaultPKey, 1, 2}, XRCETH: &XRCETHFields{5}, Imm: &imm},
			"XRC SEND_LAST_WITH_IMM qpn 0x1 psn 0x000002 SE srq 0x5 imm 0x7"},
		{Fields{BTH: BTHFields{RCSendLastInv, MigReq | FECN, DefaultPKey, 1, 2}, IETH: &key},
			"RC SEND_LAST_WITH_INV qpn 0x1 psn 0x000002 M|F inv 0x8"},
		{Fields{BTH: BTHFields{RCFlush, 0, DefaultPKey, 1, 2}, FETH: &FETHFields{FlushPersistent, FlushMR}, RETH: &RETHFields{}},
			"RC FLUSH qpn 0x1 psn 0x000002 type 2 selectivity 1 va 0x0 rkey 0x0 len 0"},
		{Fields{BTH: BTHFields{MaskedCompareSwap, AckReq, DefaultPKey, 1, 2}, AtomicETH: &AtomicETHFields{1, 2, 3, 4}, MaskETH: &MaskETHFields{5, 6, 8}},
			"MFR MASKED_COMPARE_SWAP qpn 0x1 psn 0x000002 A va 0x1 rkey 0x2 compare 0x4 swap 0x3 compare mask 0x6 swap mask 0x5 size 8"},
		{Fields{BTH: BTHFields{MaskedFetchAdd, 0, DefaultPKey, 1, 2}, AtomicETH: &AtomicETHFields{1, 2, 3, 0}, MaskETH: &MaskETHFields{0x80, 0, 1}},
			"MFR MASKED_FETCH_ADD qpn 0x1 psn 0x000002 va 0x1 rkey 0x2 add 0x3 boundary 0x80 size 1"},
		{Fields{BTH: BTHFields{DCConnect, 0, DefaultPKey, 1, 2}, DCETH: &DCETHFields{QPN: 3}, DCCETH: &DCCETHFields{Key: 0x99, Connection: 4, Depth: 5, MTU: 3}},
			"DC CONNECT qpn 0x1 psn 0x000002 from 0x3 context 0x0 connection 4 depth 5 mtu 3"},
		{Fields{BTH: BTHFields{DCReject, 0, DefaultPKey, 1, 2}, DCETH: &DCETHFields{QPN: 3}, DCCETH: &DCCETHFields{Connection: 4, Reason: DCKeyViolation}},
			"DC REJECT qpn 0x1 psn 0x000002 from 0x3 context 0x0 connection 4 depth 0 mtu 0 access key violation"},
		{Fields{BTH: BTHFields{0x51, 0, DefaultPKey, 1, 2}, RDETH: &RDETHFields{9}, AETH: &AETHFields{AckNoCredits, 3}},
			"RD ACKNOWLEDGE qpn 0x1 psn 0x000002 ee 0x9 ACK msn 3"},
	} {
		if got := tt.f.String(); got != tt.want {
			t.Errorf("%q, want %q", got, tt.want)
		}
	}
}

// TestFieldsAppend: Append writes zeros for headers that are nil, leaves out headers that the
// opcode does not have, and keeps the bytes in dst.
func TestFieldsAppend(t *testing.T) {
	f := Fields{BTH: BTHFields{Op: RCWriteOnlyImm}, AETH: &AETHFields{1, 1}, Payload: []byte{1}}
	want := "ee" + "0b300000" + "0000000000000000" + "00000000000000000000000000000000" + "00000000" + "01000000"
	if got := hex.EncodeToString(f.Append([]byte{0xEE})); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestNoAllocations(t *testing.T) {
	data, _ := sample(RCWriteOnlyImm, 64)
	bad := append([]byte{0xFF}, data[1:]...)
	buf, payload := make([]byte, 256), make([]byte, 64)
	var p Packet
	if n := testing.AllocsPerRun(100, func() {
		if p.Parse(data) != nil {
			panic("parse")
		}
		touch(&p)
		_ = p.Parse(bad)
		n := PutBTH(buf, RCWriteOnlyImm, AckReq, 0, DefaultPKey, 1, 2)
		n += PutRETH(buf[n:], 1, 2, 3)
		n += PutImm(buf[n:], 4)
		c := CRCSeed.UpdateBTH(buf).Update(buf[BTHLen:n]).Copy(buf[n:], payload)
		PutICRC(buf[n+len(payload):], c)
		var h [20]byte
		c.UpdateShort(h[:])
	}); n != 0 {
		t.Errorf("%v allocations per packet", n)
	}
}

func FuzzParse(f *testing.F) {
	for i := range 256 {
		for _, n := range []int{0, 5} {
			data, _ := sample(Opcode(i), n)
			f.Add(data)
		}
	}
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		var p Packet
		if err := p.Parse(data); err != nil {
			if err != ErrShort {
				touchBTH(&p)
			}
			return
		}
		touch(&p)
		if int(p.Info.HeaderLen)+p.PayloadLen()+p.Pad()+ICRCLen != len(data) {
			t.Fatalf("parts of %d bytes: %d header, %d payload, %d pad", len(data), p.Info.HeaderLen, p.PayloadLen(), p.Pad())
		}

		// The encoded fields parse to the same fields, and encoding these again gives the same
		// bytes.
		one := Decode(&p)
		b := padICRC(one.Append(nil))
		var q Packet
		if err := q.Parse(b); err != nil {
			t.Fatalf("%v: own encoding: %v", &one, err)
		}
		two := Decode(&q)
		if diff := cmp.Diff(one, two); diff != "" {
			t.Fatal(diff)
		}
		if c := padICRC(two.Append(nil)); !bytes.Equal(b, c) {
			t.Fatalf("%x, then %x", b, c)
		}
		if len(b) != len(data) || one.String() == "" {
			t.Fatalf("%d bytes became %d", len(data), len(b))
		}
	})
}

// padICRC appends room for an ICRC.
func padICRC(b []byte) []byte { return append(b, make([]byte, ICRCLen)...) }

func ExamplePacket() {
	data, _ := hex.DecodeString("1100ffff0000001100b66df11f000001485b680d")
	var p Packet
	if err := p.Parse(data); err != nil {
		fmt.Println(err)
		return
	}
	if p.Info.Headers&HasAETH != 0 {
		fmt.Println(p.Op, p.DestQPN(), p.PSN(), p.Syndrome().Kind(), p.MSN())
	}
	// Output: RC ACKNOWLEDGE 0x11 0xb66df1 ACK 1
}

func ExampleFields_Append() {
	f := Fields{
		BTH:     BTHFields{Op: RCSendOnly, Flags: AckReq, PKey: DefaultPKey, DestQPN: 0x31, PSN: 0xFFFFF0},
		Payload: []byte("hello"),
	}
	fmt.Println(&f)
	fmt.Printf("%x\n", f.Append(nil))
	// Output:
	// RC SEND_ONLY qpn 0x31 psn 0xfffff0 A payload 5
	// 0430ffff0000003180fffff068656c6c6f000000
}

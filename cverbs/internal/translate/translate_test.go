package translate

import (
	"errors"
	"math"
	"reflect"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

func TestNetwork(t *testing.T) {
	want := uint32(0x04030201)
	if bigEndian {
		want = 0x01020304
	}
	if got := Network(0x01020304); got != want {
		t.Errorf("Network = %#x, want %#x", got, want)
	}
}

// full is a work request with a different value in every field.
func full(op roce.Opcode) abi.SendWR {
	return abi.SendWR{ID: 1, Opcode: uint32(op), Flags: uint32(roce.Signaled | roce.Fence), Imm: 2, RemoteAddr: 3, RKey: 4, CompareAdd: 5,
		Swap: 6, FlushType: 1, FlushLevel: 1, FlushLength: 7}
}

func TestSendWR(t *testing.T) {
	const f = roce.Signaled | roce.Fence
	for _, want := range []roce.SendWR{
		{ID: 1, Opcode: roce.Send, Flags: f},
		{ID: 1, Opcode: roce.SendImm, Flags: f, Imm: Network(2)},
		{ID: 1, Opcode: roce.SendInv, Flags: f, InvKey: 2},
		{ID: 1, Opcode: roce.LocalInv, Flags: f, InvKey: 2},
		{ID: 1, Opcode: roce.Write, Flags: f, RemoteAddr: 3, RKey: 4},
		{ID: 1, Opcode: roce.WriteImm, Flags: f, RemoteAddr: 3, RKey: 4, Imm: Network(2)},
		{ID: 1, Opcode: roce.Read, Flags: f, RemoteAddr: 3, RKey: 4},
		{ID: 1, Opcode: roce.CompareSwap, Flags: f, RemoteAddr: 3, RKey: 4, CompareAdd: 5, Swap: 6},
		{ID: 1, Opcode: roce.FetchAdd, Flags: f, RemoteAddr: 3, RKey: 4, CompareAdd: 5, Swap: 6},
		{ID: 1, Opcode: roce.AtomicWrite, Flags: f, RemoteAddr: 3, RKey: 4},
		{ID: 1, Opcode: roce.Flush, Flags: f, RemoteAddr: 3, RKey: 4, FlushType: roce.PlaceGlobal, Selectivity: roce.FlushMR, Length: 7},
	} {
		src := full(want.Opcode)
		got := roce.SendWR{Swap: 99, SG: make([]roce.SGE, 1)} // old values must be overwritten
		if inline, err := SendWR(&got, &src); inline || err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %+v, %v, want %+v", want.Opcode, got, err, want)
		}
	}
	src := full(roce.Send)
	src.Flags |= sendInline
	var got roce.SendWR
	if inline, err := SendWR(&got, &src); !inline || err != nil || got.Flags != f {
		t.Errorf("inline: %v, %v, flags %v", inline, err, got.Flags)
	}
}

func TestSendWRRefused(t *testing.T) {
	for name, change := range map[string]func(*abi.SendWR){
		"TSO":          func(wr *abi.SendWR) { wr.Opcode = 10 },
		"DRIVER1":      func(wr *abi.SendWR) { wr.Opcode = 11 },
		"REG_MR":       func(wr *abi.SendWR) { wr.Opcode = 32 },
		"opcode":       func(wr *abi.SendWR) { wr.Opcode = 256 + 2 },
		"IP_CSUM":      func(wr *abi.SendWR) { wr.Flags |= 16 },
		"flag":         func(wr *abi.SendWR) { wr.Flags |= 1 << 31 },
		"flush length": func(wr *abi.SendWR) { wr.Opcode, wr.FlushLength = uint32(roce.Flush), math.MaxUint32+1 },
		"flush type":   func(wr *abi.SendWR) { wr.Opcode, wr.FlushType = uint32(roce.Flush), 257 },
		"flush level":  func(wr *abi.SendWR) { wr.Opcode, wr.FlushLevel = uint32(roce.Flush), 257 },
	} {
		src := full(roce.Send)
		change(&src)
		var got roce.SendWR
		if _, err := SendWR(&got, &src); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v, want EINVAL", name, err)
		}
	}
}

func TestBind(t *testing.T) {
	src := abi.SendWR{ID: 1, Flags: uint32(roce.Signaled | roce.Solicited | sendInline), BindAddr: 2, BindLength: 3, BindAccess: 4, NewRKey: 5}
	want := roce.Bind{ID: 1, Flags: roce.Signaled, Addr: 2, Length: 3, Access: 4, Key: 5}
	if got := Bind(&src); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestWC(t *testing.T) {
	all := roce.WC{ID: 1, Status: 2, Opcode: roce.WCRecv, QPN: 3, SrcQPN: 4, ByteLen: 5, VendorErr: 6, PKeyIndex: 7, SLID: 8, DLIDPathBits: 9, Imm: 10, InvKey: 11}
	want := abi.WC{ID: 1, Status: 2, Opcode: 128, QPN: 3, SrcQPN: 4, ByteLen: 5, VendorErr: 6, PKeyIndex: 7, SLID: 8, DLIDPathBits: 9}
	for _, c := range []struct {
		flags roce.WCFlags
		ipv4  bool
		imm   uint32
		sl    uint8
	}{
		{0, false, 0, 0},
		{roce.WCWithImm, false, Network(10), 0},
		{roce.WCWithInv, false, 11, 0},
		{roce.WCGRH, true, 0, 2},
		{roce.WCGRH | roce.WCWithImm, false, Network(10), 1},
	} {
		src, w := all, want
		src.Flags, src.IPv4 = c.flags, c.ipv4
		w.Flags, w.Imm, w.SL = uint32(c.flags), c.imm, c.sl
		got := abi.WC{Imm: 99, SL: 99}
		if WC(&got, &src); got != w {
			t.Errorf("%v: %+v, want %+v", c.flags, got, w)
		}
	}
}

// Values that do not fit must not become valid values.
func TestAttrNarrow(t *testing.T) {
	a := Attr(&abi.QPAttr{State: 256 + 3, CurState: 1 << 31, PathMTU: 256 + 3, PathMigState: 256, RQPSN: 0xFF123456, SQPSN: 0xFF123456, DestQPN: 1 << 24})
	if a.State != 0xFF || a.CurState != 0xFF || a.PathMTU != 0xFF || a.PathMigState != 0xFF {
		t.Errorf("attributes %+v", a)
	}
	if a.RQPSN != 0x123456 || a.SQPSN != 0x123456 {
		t.Errorf("PSNs %v, %v", a.RQPSN, a.SQPSN)
	}
	if c := Caps(&abi.Caps{MaxSendWR: math.MaxUint32}); c.MaxSendWR >= 0 {
		t.Errorf("sizes %+v", c)
	}
}

// Attr reads what QPAttr writes.
func TestAttrRoundTrip(t *testing.T) {
	want := roce.Attr{State: roce.StateRTS, CurState: roce.StateRTS, SQDNotify: true, Access: roce.RemoteRead, PKeyIndex: 1, Port: 2,
		QKey: 3, PathMTU: roce.MTU2048, DestQPN: 4, RQPSN: 5, SQPSN: 6, Timeout: 7, RetryCnt: 8, RNRRetry: 9, MinRNRTimer: 10, MaxRdAtomic: 11,
		MaxDestRdAtomic: 12, AltPKeyIndex: 13, AltPort: 14, AltTimeout: 15, PathMigState: roce.MigArmed}
	var c abi.QPAttr
	QPAttr(&c, &want)
	if got := Attr(&c); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

func TestAttrMask(t *testing.T) {
	for mask, want := range map[uint32]error{0: nil, attrMask: nil, 1 << 21: syscall.EINVAL, 1 << 25: syscall.EOPNOTSUPP, 1 << 30: syscall.EINVAL} {
		if m, err := AttrMask(roce.RC, mask); err != want || err == nil && uint32(m) != mask {
			t.Errorf("%#x: %#x, %v, want %v", mask, m, err, want)
		}
	}
}

func TestAHAttr(t *testing.T) {
	in := abi.AHAttr{DGID: [16]byte{1}, FlowLabel: math.MaxUint32, SGIDIndex: 2, HopLimit: 3, TrafficClass: 4, IsGlobal: 1, Port: 1}
	got, err := AHAttr(&in)
	want := roce.AHAttr{DGID: roce.GID{1}, FlowLabel: FlowLabelMask, SGIDIndex: 2, HopLimit: 3, TrafficClass: 4, Port: 1}
	if err != nil || got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	var back abi.AHAttr
	FromAHAttr(&back, &got)
	if in.FlowLabel = FlowLabelMask; back != in {
		t.Errorf("back: %+v, want %+v", back, in)
	}
	for _, bad := range []abi.AHAttr{{Port: 1}, {IsGlobal: 1}} {
		if _, err := AHAttr(&bad); err != syscall.EINVAL {
			t.Errorf("%+v: %v, want EINVAL", bad, err)
		}
	}
}

func TestEventType(t *testing.T) {
	if n, ok := EventType(roce.EventLastWQE); n != 16 || !ok {
		t.Errorf("LAST_WQE_REACHED is %d, %v", n, ok)
	}
	for _, none := range []roce.EventType{roce.EventPortChange, roce.EventPathMTU} {
		if _, ok := EventType(none); ok {
			t.Errorf("%v is an event of the verbs", none)
		}
	}
}

// TestAttrMaskXRC: attributes that an end of XRC does not use are ignored.
func TestAttrMaskXRC(t *testing.T) {
	both := uint32(roce.AttrState | roce.AttrMinRNRTimer | roce.AttrMaxDestRdAtomic | roce.AttrMaxRdAtomic | roce.AttrRetryCnt | roce.AttrRNRRetry | roce.AttrTimeout)
	for typ, want := range map[roce.QPType]roce.AttrMask{
		roce.XRCSend: roce.AttrState | roce.AttrMaxRdAtomic | roce.AttrRetryCnt | roce.AttrRNRRetry | roce.AttrTimeout,
		roce.XRCRecv: roce.AttrState | roce.AttrMinRNRTimer | roce.AttrMaxDestRdAtomic | roce.AttrTimeout,
	} {
		if got, err := AttrMask(typ, both); got != want || err != nil {
			t.Errorf("%v: %v, %v, want %v", typ, got, err, want)
		}
	}
}

package bth

import (
	"fmt"
	"strings"
	"testing"
)

// One line per opcode as the standard's tables have it, written out by hand:
// code, name, headers, bytes before the payload, position (S start, E end of
// message), whether it may carry payload (p) and takes a receive (r).
const opcodeLines = `
00 SEND_FIRST              -          12 S  pr
01 SEND_MIDDLE             -          12 -  p
02 SEND_LAST               -          12 E  p
03 SEND_LAST_WITH_IMM      Imm        16 E  p
04 SEND_ONLY               -          12 SE pr
05 SEND_ONLY_WITH_IMM      Imm        16 SE pr
06 WRITE_FIRST             RETH       28 S  p
07 WRITE_MIDDLE            -          12 -  p
08 WRITE_LAST              -          12 E  p
09 WRITE_LAST_WITH_IMM     Imm        16 E  pr
0a WRITE_ONLY              RETH       28 SE p
0b WRITE_ONLY_WITH_IMM     RETH,Imm   32 SE pr
0c READ_REQUEST            RETH       28 SE -
0d READ_RESPONSE_FIRST     AETH       16 S  p
0e READ_RESPONSE_MIDDLE    -          12 -  p
0f READ_RESPONSE_LAST      AETH       16 E  p
10 READ_RESPONSE_ONLY      AETH       16 SE p
11 ACKNOWLEDGE             AETH       16 SE -
12 ATOMIC_ACKNOWLEDGE      AETH,AtomicAckETH 24 SE -
13 COMPARE_SWAP            AtomicETH  40 SE -
14 FETCH_ADD               AtomicETH  40 SE -
16 SEND_LAST_WITH_INV      IETH       16 E  p
17 SEND_ONLY_WITH_INV      IETH       16 SE pr
1c FLUSH                   FETH,RETH  32 SE -
1d ATOMIC_WRITE            RETH       28 SE p
20 SEND_FIRST              -          12 S  pr
21 SEND_MIDDLE             -          12 -  p
22 SEND_LAST               -          12 E  p
23 SEND_LAST_WITH_IMM      Imm        16 E  p
24 SEND_ONLY               -          12 SE pr
25 SEND_ONLY_WITH_IMM      Imm        16 SE pr
26 WRITE_FIRST             RETH       28 S  p
27 WRITE_MIDDLE            -          12 -  p
28 WRITE_LAST              -          12 E  p
29 WRITE_LAST_WITH_IMM     Imm        16 E  pr
2a WRITE_ONLY              RETH       28 SE p
2b WRITE_ONLY_WITH_IMM     RETH,Imm   32 SE pr
40 SEND_FIRST              RDETH,DETH 24 S  pr
41 SEND_MIDDLE             RDETH,DETH 24 -  p
42 SEND_LAST               RDETH,DETH 24 E  p
43 SEND_LAST_WITH_IMM      RDETH,DETH,Imm 28 E p
44 SEND_ONLY               RDETH,DETH 24 SE pr
45 SEND_ONLY_WITH_IMM      RDETH,DETH,Imm 28 SE pr
46 WRITE_FIRST             RDETH,DETH,RETH 40 S p
47 WRITE_MIDDLE            RDETH,DETH 24 -  p
48 WRITE_LAST              RDETH,DETH 24 E  p
49 WRITE_LAST_WITH_IMM     RDETH,DETH,Imm 28 E pr
4a WRITE_ONLY              RDETH,DETH,RETH 40 SE p
4b WRITE_ONLY_WITH_IMM     RDETH,DETH,RETH,Imm 44 SE pr
4c READ_REQUEST            RDETH,DETH,RETH 40 SE -
4d READ_RESPONSE_FIRST     RDETH,AETH 20 S  p
4e READ_RESPONSE_MIDDLE    RDETH      16 -  p
4f READ_RESPONSE_LAST      RDETH,AETH 20 E  p
50 READ_RESPONSE_ONLY      RDETH,AETH 20 SE p
51 ACKNOWLEDGE             RDETH,AETH 20 SE -
52 ATOMIC_ACKNOWLEDGE      RDETH,AETH,AtomicAckETH 28 SE -
53 COMPARE_SWAP            RDETH,DETH,AtomicETH 52 SE -
54 FETCH_ADD               RDETH,DETH,AtomicETH 52 SE -
55 RESYNC                  RDETH,DETH 24 SE -
64 SEND_ONLY               DETH       20 SE pr
65 SEND_ONLY_WITH_IMM      DETH,Imm   24 SE pr
a0 SEND_FIRST              XRCETH     16 S  pr
a1 SEND_MIDDLE             XRCETH     16 -  p
a2 SEND_LAST               XRCETH     16 E  p
a3 SEND_LAST_WITH_IMM      XRCETH,Imm 20 E  p
a4 SEND_ONLY               XRCETH     16 SE pr
a5 SEND_ONLY_WITH_IMM      XRCETH,Imm 20 SE pr
a6 WRITE_FIRST             XRCETH,RETH 32 S p
a7 WRITE_MIDDLE            XRCETH     16 -  p
a8 WRITE_LAST              XRCETH     16 E  p
a9 WRITE_LAST_WITH_IMM     XRCETH,Imm 20 E  pr
aa WRITE_ONLY              XRCETH,RETH 32 SE p
ab WRITE_ONLY_WITH_IMM     XRCETH,RETH,Imm 36 SE pr
ac READ_REQUEST            XRCETH,RETH 32 SE -
ad READ_RESPONSE_FIRST     AETH       16 S  p
ae READ_RESPONSE_MIDDLE    -          12 -  p
af READ_RESPONSE_LAST      AETH       16 E  p
b0 READ_RESPONSE_ONLY      AETH       16 SE p
b1 ACKNOWLEDGE             AETH       16 SE -
b2 ATOMIC_ACKNOWLEDGE      AETH,AtomicAckETH 24 SE -
b3 COMPARE_SWAP            XRCETH,AtomicETH 44 SE -
b4 FETCH_ADD               XRCETH,AtomicETH 44 SE -
b6 SEND_LAST_WITH_INV      XRCETH,IETH 20 E p
b7 SEND_ONLY_WITH_INV      XRCETH,IETH 20 SE pr
bc FLUSH                   XRCETH,FETH,RETH 36 SE -
bd ATOMIC_WRITE            XRCETH,RETH 32 SE p
c0 SEND_FIRST              DCETH      20 S  pr
c1 SEND_MIDDLE             DCETH      20 -  p
c2 SEND_LAST               DCETH      20 E  p
c3 SEND_LAST_WITH_IMM      DCETH,Imm  24 E  p
c4 SEND_ONLY               DCETH      20 SE pr
c5 SEND_ONLY_WITH_IMM      DCETH,Imm  24 SE pr
c6 WRITE_FIRST             DCETH,RETH 36 S p
c7 WRITE_MIDDLE            DCETH      20 -  p
c8 WRITE_LAST              DCETH      20 E  p
c9 WRITE_LAST_WITH_IMM     DCETH,Imm  24 E  pr
ca WRITE_ONLY              DCETH,RETH 36 SE p
cb WRITE_ONLY_WITH_IMM     DCETH,RETH,Imm 40 SE pr
cc READ_REQUEST            DCETH,RETH 36 SE -
cd READ_RESPONSE_FIRST     AETH       16 S  p
ce READ_RESPONSE_MIDDLE    -          12 -  p
cf READ_RESPONSE_LAST      AETH       16 E  p
d0 READ_RESPONSE_ONLY      AETH       16 SE p
d1 ACKNOWLEDGE             AETH       16 SE -
d2 ATOMIC_ACKNOWLEDGE      AETH,AtomicAckETH 24 SE -
d3 COMPARE_SWAP            DCETH,AtomicETH 48 SE -
d4 FETCH_ADD               DCETH,AtomicETH 48 SE -
d8 CONNECT                 DCETH,DCCETH 36 SE -
d9 ACCEPT                  DCETH,DCCETH 36 SE -
da REJECT                  DCETH,DCCETH 36 SE -
db DISCONNECT              DCETH      20 SE -
f2 MASKED_ATOMIC_ACKNOWLEDGE AETH,AtomicAckETH 24 SE p
f3 MASKED_COMPARE_SWAP     AtomicETH,MaskETH 60 SE p
f4 MASKED_FETCH_ADD        AtomicETH,MaskETH 60 SE p
`

var headerNames = [numHeaders]string{"RDETH", "DETH", "XRCETH", "DCETH", "FETH", "RETH", "AtomicETH", "MaskETH", "DCCETH", "AETH", "AtomicAckETH", "Imm", "IETH", "reserved"}

func (h HeaderSet) names() string {
	var s []string
	for i, n := range headerNames {
		if h&(1<<i) != 0 {
			s = append(s, n)
		}
	}
	if s == nil {
		return "-"
	}
	return strings.Join(s, ",")
}

// line is a row of the table in the form of opcodeLines.
func (info *OpcodeInfo) line(op int) string {
	mark := func(s string, f ...OpcodeFlags) string {
		var out string
		for i, f := range f {
			if info.Flags&f != 0 {
				out += s[i : i+1]
			}
		}
		if out == "" {
			return "-"
		}
		return out
	}
	_, name, _ := strings.Cut(info.Name, " ")
	return fmt.Sprintf("%02x %s %s %d %s %s", op, name, info.Headers.names(), info.HeaderLen,
		mark("SE", First, Last), mark("pr", Payload, TakesRecv))
}

func TestOpcodeTable(t *testing.T) {
	want := map[int]string{}
	for line := range strings.Lines(strings.TrimSpace(opcodeLines)) {
		line = strings.Join(strings.Fields(line), " ")
		var op int
		if _, err := fmt.Sscanf(line, "%x", &op); err != nil {
			t.Fatal(err)
		}
		want[op] = line
	}
	for i := range 256 {
		op, info := Opcode(i), Opcode(i).Info()
		if op == CNP {
			continue
		}
		if !op.Known() {
			if want[i] != "" {
				t.Errorf("missing: %s", want[i])
			}
			if info.Headers != 0 || info.Flags != 0 || info.HeaderLen != BTHLen {
				t.Errorf("unknown opcode %#x has headers or flags", i)
			}
			continue
		}
		if got := info.line(i); got != want[i] {
			t.Errorf("have %q, want %q", got, want[i])
		}
		if tr, _, _ := strings.Cut(info.Name, " "); tr != info.Transport.String() || op.Transport() != info.Transport {
			t.Errorf("%#x: name %q, transport %v", i, info.Name, info.Transport)
		}
	}
	if info := CNP.Info(); info.HeaderLen != 28 || info.Flags&(Request|Response) != 0 || CNP.String() != "CNP" {
		t.Errorf("CNP: %+v", info)
	}
}

// TestOpcodeFlags checks what must hold between the flags of any opcode.
func TestOpcodeFlags(t *testing.T) {
	for i := range 256 {
		op, f, h := Opcode(i), Opcode(i).Info().Flags, Opcode(i).Info().Headers
		if !op.Known() || op == CNP {
			continue
		}
		check := func(ok bool, rule string) {
			if !ok {
				t.Errorf("%v: %s", op, rule)
			}
		}
		check((f&Request != 0) != (f&Response != 0), "is either a request or a response")
		check((f&Imm != 0) == (h&HasImm != 0), "Imm means an ImmDt header")
		check((f&Inv != 0) == (h&HasIETH != 0), "Inv means an IETH")
		check(f&(Imm|Inv) == 0 || f&Last != 0, "immediate data and invalidation come last")
		check(f&Response == 0 || h&(HasRETH|HasAtomicETH|HasXRCETH|HasDETH) == 0, "a response has no request header")
		check(h&HasRETH == 0 || h&HasAtomicETH == 0, "RETH and AtomicETH exclude each other")
		check(f&Write == 0 || f&First == 0 || h&HasRETH != 0, "the first packet of a WRITE has a RETH")
		check((f&Masked != 0) == (h&HasMaskETH != 0), "Masked means a MaskETH")
		check(h&HasMaskETH == 0 || h&HasAtomicETH != 0, "a MaskETH follows an AtomicETH")
		check(f&TakesRecv == 0 || f&Write == 0 || f&Imm != 0, "a WRITE takes a receive only for immediate data")
		check(int(Opcode(i).Info().HeaderLen) <= MaxHeaderLen, "MaxHeaderLen")
		check(f&First == 0 || f&Last == 0 || f&Only == Only, "Only")
	}
}

func TestOpcodeConstants(t *testing.T) {
	for _, tt := range []struct {
		op   Opcode
		name string
	}{
		{RCSendFirst, "RC SEND_FIRST"}, {RCWriteLastImm, "RC WRITE_LAST_WITH_IMM"}, {RCReadResponseOnly, "RC READ_RESPONSE_ONLY"},
		{RCAck, "RC ACKNOWLEDGE"}, {RCAtomicAck, "RC ATOMIC_ACKNOWLEDGE"}, {RCCompareSwap, "RC COMPARE_SWAP"}, {RCFetchAdd, "RC FETCH_ADD"},
		{RCSendLastInv, "RC SEND_LAST_WITH_INV"}, {RCSendOnlyInv, "RC SEND_ONLY_WITH_INV"}, {RCFlush, "RC FLUSH"}, {RCAtomicWrite, "RC ATOMIC_WRITE"},
		{UCSendOnly, "UC SEND_ONLY"}, {UCWriteOnlyImm, "UC WRITE_ONLY_WITH_IMM"}, {RDResync, "RD RESYNC"},
		{UDSendOnly, "UD SEND_ONLY"}, {UDSendOnlyImm, "UD SEND_ONLY_WITH_IMM"},
		{XRCSendOnly, "XRC SEND_ONLY"}, {XRCReadRequest, "XRC READ_REQUEST"}, {XRCAck, "XRC ACKNOWLEDGE"}, {XRCFlush, "XRC FLUSH"},
		{MaskedAtomicAck, "MFR MASKED_ATOMIC_ACKNOWLEDGE"}, {MaskedCompareSwap, "MFR MASKED_COMPARE_SWAP"}, {MaskedFetchAdd, "MFR MASKED_FETCH_ADD"},
		{DCConnect, "DC CONNECT"}, {DCDisconnect, "DC DISCONNECT"}, {DCReject, "DC REJECT"},
		{0x15, "opcode 0x15"}, {0x2C, "opcode 0x2c"}, {0xFF, "opcode 0xff"},
	} {
		if got := tt.op.String(); got != tt.name {
			t.Errorf("%#x: %q, want %q", uint8(tt.op), got, tt.name)
		}
	}
	if got := Transport(9).String(); got != "Transport(9)" {
		t.Error(got)
	}
}

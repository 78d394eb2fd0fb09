package dissect

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// Packets captured between two Linux rxe, from the IP header on.
const (
	readRequest = "4500003c10464000401115cf0a4d00010a4d0002fe7a12b7002800000c00ffff0000001180805d1b000056377ff3f8b00000051800000064ef16f21f"
	rnrNAK      = "45000030448e40004011e1920a4d00010a4d0002c5ca12b7001c00001100ffff0000002700fffff02c0000007c4d6c79"
	fetchAdd    = "45000048629240004011c3760a4d00020a4d0001c87212b7003400001400ffff0000002e80fffff000007fdab74c30000000272f000000000000000500000000000000000c727539"
	writeImm    = "4500004061ed40004011c4230a4d00020a4d0001c81612b7002c00000b00ffff0000002d80fffff300000000000000000000000000000000cafe000190121b36"
	udSend      = "4500003c57eb40004011ce290a4d00020a4d0001e0f012b7002800006400ffff000000250063e827111111110000002605c793c5cbd89cb498025ef2"
	rxeFlush    = "4500004022224000401103ef0a4d00020a4d0001c12312b7002c00001c00ffff0000001b80fffff00000000100007f5558df200000000c99000000409fe5339c"
	ack6        = "60000000001c1140fd770000000000000000000000000001fd770000000000000000000000000002e89812b7001c00001100ffff000000110084a0a31f00000123039f9e"
)

// take dissects a packet given in hexadecimal.
func take(t *testing.T, packet string) *Packet {
	t.Helper()
	b, err := hex.DecodeString(packet)
	if err != nil {
		t.Fatal(err)
	}
	p := &Packet{Num: 7, At: 1500 * time.Millisecond, Len: len(b)}
	p.Parse(b, frame.LayoutIP)
	return p
}

// spoiled returns a packet whose ICRC is wrong: it changes the last digit.
func spoiled(packet string) string { return packet[:len(packet)-1] + "0" }

func TestLine(t *testing.T) {
	for _, tt := range []struct{ name, packet, want, label string }{
		{"READ request", readRequest,
			"    7   1.500000  10.77.0.1 > 10.77.0.2  RC READ_REQUEST qpn 0x11 psn 0x805d1b A va 0x56377ff3f8b0 rkey 0x518 len 100  ICRC ok",
			"READ_REQUEST qpn 0x11 psn 0x805d1b A va 0x56377ff3f8b0 rkey 0x518 len 100"},
		{"RNR NAK", rnrNAK,
			"    7   1.500000  10.77.0.1 > 10.77.0.2  RC ACKNOWLEDGE qpn 0x27 psn 0xfffff0 RNR 640µs msn 0  ICRC ok",
			"ACKNOWLEDGE qpn 0x27 psn 0xfffff0 RNR 640µs msn 0"},
		{"FLUSH of rxe", rxeFlush,
			"    7   1.500000  10.77.0.2 > 10.77.0.1  RC FLUSH qpn 0x1b psn 0xfffff0 A type 1 selectivity 0 va 0x7f5558df2000 rkey 0xc99 len 64  ICRC BAD (9c33e59f, as rxe has it for FLUSH)",
			"FLUSH qpn 0x1b psn 0xfffff0 A type 1 selectivity 0 va 0x7f5558df2000 rkey 0xc99 len 64"},
		{"FETCH_ADD", fetchAdd,
			"    7   1.500000  10.77.0.2 > 10.77.0.1  RC FETCH_ADD qpn 0x2e psn 0xfffff0 A va 0x7fdab74c3000 rkey 0x272f add 0x5  ICRC ok",
			"FETCH_ADD qpn 0x2e psn 0xfffff0 A va 0x7fdab74c3000 rkey 0x272f add 0x5"},
		{"UD", udSend,
			"    7   1.500000  10.77.0.2 > 10.77.0.1  UD SEND_ONLY qpn 0x25 psn 0x63e827 qkey 0x11111111 from 0x26 payload 8  ICRC ok",
			"SEND_ONLY qpn 0x25 psn 0x63e827 qkey 0x11111111 from 0x26 payload 8"},
		{"IPv6", ack6,
			"    7   1.500000  fd77::1 > fd77::2  RC ACKNOWLEDGE qpn 0x11 psn 0x84a0a3 ACK msn 1  ICRC ok",
			"ACKNOWLEDGE qpn 0x11 psn 0x84a0a3 ACK msn 1"},
		{"wrong ICRC", spoiled(rnrNAK),
			"    7   1.500000  10.77.0.1 > 10.77.0.2  RC ACKNOWLEDGE qpn 0x27 psn 0xfffff0 RNR 640µs msn 0  ICRC BAD (706c4d7c)",
			"ACKNOWLEDGE qpn 0x27 psn 0xfffff0 RNR 640µs msn 0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := take(t, tt.packet)
			if got := p.Line(); got != tt.want {
				t.Errorf("Line:\n got %s\nwant %s", got, tt.want)
			}
			if got := p.Label(); got != tt.label {
				t.Errorf("Label:\n got %s\nwant %s", got, tt.label)
			}
		})
	}
}

func TestKinds(t *testing.T) {
	otherPort := strings.Replace(readRequest, "12b7", "12b8", 1)
	for _, tt := range []struct {
		name, packet string
		want         Kind
		line         string // part of it
	}{
		{"RoCE", readRequest, RoCE, "RC READ_REQUEST"},
		{"other port", otherPort, Other, "other traffic, 60 bytes"},
		{"empty", "", Malformed, "MALFORMED, 0 bytes"},
		{"cut", readRequest[:len(readRequest)-2], Malformed, "MALFORMED, 59 bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := take(t, tt.packet)
			if p.Kind != tt.want || !strings.Contains(p.Line(), tt.line) {
				t.Errorf("%v: %s", p.Kind, p.Line())
			}
			if _, err := json.Marshal(p.JSON()); err != nil {
				t.Error(err)
			}
		})
	}
}

// Another program can read the JSON object by its field names.
func TestJSON(t *testing.T) {
	for _, tt := range []struct {
		name, packet string
		want         map[string]any
	}{
		{"READ request", readRequest, map[string]any{
			"number": 7., "seconds": 1.5, "kind": "roce", "src": "10.77.0.1", "dst": "10.77.0.2", "src_port": 65146.,
			"opcode": 12., "name": "RC READ_REQUEST", "dest_qpn": 17., "psn": float64(0x805d1b), "pkey": 65535., "ack_req": true,
			"va": "0x56377ff3f8b0", "rkey": "0x518", "dma_len": 100., "payload": 0., "icrc": "1ff216ef", "icrc_ok": true}},
		{"RNR NAK", rnrNAK, map[string]any{"ack": "RNR 640µs", "syndrome": 44., "msn": 0.}},
		{"atomic", fetchAdd, map[string]any{"va": "0x7fdab74c3000", "swap_add": "0x5", "compare": "0x0"}},
		{"immediate", writeImm, map[string]any{"imm": float64(0xcafe0001), "dma_len": 0.}},
		{"UD", udSend, map[string]any{"qkey": float64(0x11111111), "src_qpn": 38., "payload": 8.}},
		{"wrong ICRC", spoiled(rnrNAK), map[string]any{"icrc_ok": false}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b, err := json.Marshal(take(t, tt.packet).JSON())
			if err != nil {
				t.Fatal(err)
			}
			var got map[string]any
			if err := json.Unmarshal(b, &got); err != nil {
				t.Fatal(err)
			}
			for k, want := range tt.want {
				if got[k] != want {
					t.Errorf("%s = %v, want %v", k, got[k], want)
				}
			}
		})
	}
}

func TestSelection(t *testing.T) {
	p := take(t, readRequest)
	for _, tt := range []struct {
		sel  Selection
		want bool
	}{
		{Selection{}, true},
		{Selection{From: 7, To: 7}, true},
		{Selection{From: 8}, false},
		{Selection{To: 6}, false},
		{Selection{QPNs: []bth.QPN{0x10, 0x11}}, true},
		{Selection{QPNs: []bth.QPN{0x10}}, false},
		{Selection{Op: "read"}, true},
		{Selection{Op: "WRITE"}, false},
		{Selection{NoCM: true}, true},
	} {
		if got := tt.sel.Match(p); got != tt.want {
			t.Errorf("%+v: %v, want %v", tt.sel, got, tt.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{readRequest, rnrNAK, fetchAdd, writeImm, udSend, ack6} {
		b, _ := hex.DecodeString(s)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		for _, l := range []frame.Layout{frame.LayoutEthernet, frame.LayoutIP} {
			p := Packet{Len: len(b)}
			p.Parse(b, l)
			if s := p.Line(); strings.Contains(s, "\n") {
				t.Errorf("more than a line: %q", s)
			}
			if _, err := json.Marshal(p.JSON()); err != nil {
				t.Error(err)
			}
			if p.Kind == RoCE {
				p.Label()
			}
		}
	})
}

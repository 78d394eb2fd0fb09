package frame_test

import (
	"bytes"
	"encoding/hex"
	"hash/crc32"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Packets from the IP header on. All were captured from Linux 6.12 rxe, except
// the CNP, which a ConnectX-4 Lx sent and which is in the regression tests of
// scapy.
var packets = []struct {
	name string
	hex  string
	want string // Fields.String
}{
	{"SEND_ONLY 10 bytes, pad 2", "45000038668840004011bf900a4d00020a4d0001 c99212b700240000 0420ffff0000003180fffff0 00070e151c232a31383f0000 424c75f8",
		"RC SEND_ONLY qpn 0x31 psn 0xfffff0 A payload 10"},
	{"IPv6 ACK", "60000000001c1140fd770000000000000000000000000001fd770000000000000000000000000002 e89812b7001c0000 1100ffff000000110084a0a3 1f000001 23039f9e",
		"RC ACKNOWLEDGE qpn 0x11 psn 0x84a0a3 ACK msn 1"},
	{"ACK", "4500003010454000401115dc0a4d00010a4d0002fe7a12b7001c00001100ffff0000001100b66df11f000001485b680d",
		"RC ACKNOWLEDGE qpn 0x11 psn 0xb66df1 ACK msn 1"},
	{"RNR NAK code 12", "45000030448e40004011e1920a4d00010a4d0002c5ca12b7001c00001100ffff0000002700fffff02c0000007c4d6c79",
		"RC ACKNOWLEDGE qpn 0x27 psn 0xfffff0 RNR 640µs msn 0"},
	{"NAK sequence error", "45000030582040004011ce000a4d00010a4d0002c99212b7001c00001100ffff0000003200fffff060000000435ad3eb",
		"RC ACKNOWLEDGE qpn 0x32 psn 0xfffff0 NAK sequence error msn 0"},
	{"NAK remote access", "450000304a7340004011dbad0a4d00010a4d0002c6ba12b7001c00001100ffff0000002a00fffff062000000521863e8",
		"RC ACKNOWLEDGE qpn 0x2a psn 0xfffff0 NAK remote access error msn 0"},
	{"READ_REQUEST 100 bytes", "4500003c10464000401115cf0a4d00010a4d0002fe7a12b7002800000c00ffff0000001180805d1b000056377ff3f8b00000051800000064ef16f21f",
		"RC READ_REQUEST qpn 0x11 psn 0x805d1b A va 0x56377ff3f8b0 rkey 0x518 len 100"},
	{"READ_REQUEST nothing", "4500003c61a840004011c46c0a4d00020a4d0001c7bc12b7002800000c00ffff0000002c80fffff20000000000000000000000000000000085641a29",
		"RC READ_REQUEST qpn 0x2c psn 0xfffff2 A va 0x0 rkey 0x0 len 0"},
	{"READ_RESPONSE_ONLY nothing", "45000030501440004011d60c0a4d00010a4d0002c7bc12b7001c00001000ffff0000002d00fffff21f00000368ff0ca4",
		"RC READ_RESPONSE_ONLY qpn 0x2d psn 0xfffff2 ACK msn 3"},
	{"READ_RESPONSE_ONLY 1 byte", "45000034561d40004011cfff0a4d00010a4d0002c93012b7002000001030ffff0000003100fffff61f00000300000000ef0d6761",
		"RC READ_RESPONSE_ONLY qpn 0x31 psn 0xfffff6 ACK msn 3 payload 1"},
	{"IPv6 READ_RESPONSE_ONLY 1 byte", "6000000000201140fd770000000000000000000000000001fd770000000000000000000000000002c42812b7002000001030ffff0000001c00fffff61f00000300000000dc49779e",
		"RC READ_RESPONSE_ONLY qpn 0x1c psn 0xfffff6 ACK msn 3 payload 1"},
	{"WRITE_ONLY_WITH_IMM nothing", "4500004061ed40004011c4230a4d00020a4d0001c81612b7002c00000b00ffff0000002d80fffff300000000000000000000000000000000cafe000190121b36",
		"RC WRITE_ONLY_WITH_IMM qpn 0x2d psn 0xfffff3 A va 0x0 rkey 0x0 len 0 imm 0xcafe0001"},
	{"FETCH_ADD", "45000048629240004011c3760a4d00020a4d0001c87212b7003400001400ffff0000002e80fffff000007fdab74c30000000272f000000000000000500000000000000000c727539",
		"RC FETCH_ADD qpn 0x2e psn 0xfffff0 A va 0x7fdab74c3000 rkey 0x272f add 0x5"},
	{"ATOMIC_ACKNOWLEDGE", "45000038537a40004011d29e0a4d00010a4d0002c87212b7002400001200ffff0000002f00fffff01f000001312a231c150e07001886342a",
		"RC ATOMIC_ACKNOWLEDGE qpn 0x2f psn 0xfffff0 ACK msn 1 value 0x312a231c150e0700"},
	{"SEND_ONLY_WITH_INV", "4500003803c14000401122580a4d00020a4d0001c2f712b7002400001700ffff0000002180fffff000deadbe00070e151c232a312858545d",
		"RC SEND_ONLY_WITH_INV qpn 0x21 psn 0xfffff0 A inv 0xdeadbe payload 8"},
	{"ATOMIC_WRITE", "45000044600340004011c6090a4d00020a4d0001c12312b7003000001d00ffff0000003a80fffff100007f2324be50200000332400000008313233343536373881186d58",
		"RC ATOMIC_WRITE qpn 0x3a psn 0xfffff1 A va 0x7f2324be5020 rkey 0x3324 len 8 payload 8"},
	{"UD SEND_ONLY", "4500003c57eb40004011ce290a4d00020a4d0001e0f012b7002800006400ffff000000250063e827111111110000002605c793c5cbd89cb498025ef2",
		"UD SEND_ONLY qpn 0x25 psn 0x63e827 qkey 0x11111111 from 0x26 payload 8"},
	{"CNP", "45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff400001180000000000000000000000000000000000000000 82fd002a",
		"CNP qpn 0x118 psn 0x000000 B"},
}

func TestICRC(t *testing.T) {
	for _, tt := range packets {
		t.Run(tt.name, func(t *testing.T) {
			b := unhex(t, tt.hex)
			var p frame.Packet
			if err := p.Parse(b, frame.LayoutIP); err != nil {
				t.Fatal(err)
			}
			f := bth.Decode(&p.Packet)
			if got := f.String(); got != tt.want {
				t.Errorf("fields\n%s, want\n%s", got, tt.want)
			}
			if !p.CheckICRC() || !p.CheckICRCFlushQuirk() {
				t.Error("ICRC does not check")
			}
			// The ICRC by its definition, computed over the packet including its ICRC.
			if got := crc32.ChecksumIEEE(mask(b)); got != bth.ICRCResidue {
				t.Errorf("residue %#x, want %#x", got, bth.ICRCResidue)
			}
			for i := range b {
				if i == 10 || i == 11 { // IPv4 checksum: checked by Parse
					continue
				}
				c := bytes.Clone(b)
				c[i] ^= 0x01
				var q frame.Packet
				if err := q.Parse(c, frame.LayoutIP); err == nil && q.CheckICRC() && bytes.Equal(mask(c), mask(b)) != true {
					t.Errorf("a packet with a flipped bit in byte %d was accepted", i)
				}
			}
			// Other bytes need another ICRC, and PutICRC makes it.
			changed := bytes.Clone(b)
			var q frame.Packet
			if err := q.Parse(changed, frame.LayoutIP); err != nil {
				t.Fatal(err)
			}
			q.Data[9] ^= 0x5A // of the PSN
			q.PutICRC()
			if got := crc32.ChecksumIEEE(mask(changed)); got != bth.ICRCResidue {
				t.Errorf("after PutICRC the residue is %#x, want %#x", got, bth.ICRCResidue)
			}
			if q.PutICRCFlushQuirk(); !q.CheckICRCFlushQuirk() {
				t.Error("after PutICRCFlushQuirk the ICRC does not check")
			}
			id := uint16(0)
			if p.Src.Is4() {
				id = be.Uint16(b[4:])
			}
			if p.SrcPort == 0 {
				return // a Path has no source port 0
			}
			if got := encode(pathOf(t, &p), frame.LayoutIP, id, &f); !bytes.Equal(got, b) {
				t.Errorf("encoded\n%x, want\n%x", got, b)
			}
		})
	}
}

// mask returns the bytes that the ICRC of the packet in b covers, with the masked fields as ones,
// followed by the ICRC.
func mask(b []byte) []byte {
	m := append(bytes.Repeat([]byte{0xFF}, 8), b...)
	ones := func(at ...int) {
		for _, i := range at {
			m[8+i] = 0xFF
		}
	}
	h := 20
	if b[0]>>4 == 4 {
		ones(1, 8, 10, 11)
	} else {
		h = 40
		m[8] |= 0x0F
		ones(1, 2, 3, 7)
	}
	ones(h+6, h+7, h+8+4)
	return m
}

// TestICRCSteps follows two packets header by header.
func TestICRCSteps(t *testing.T) {
	type step struct {
		fed string
		reg bth.CRC
	}
	for _, tt := range []struct {
		name  string
		steps []step // IP, UDP, BTH, rest; masked
		wire  string
	}{
		{"IPv4 SEND_ONLY", []step{
			{"45ff003866884000ff11ffff0a4d00020a4d0001", 0xC9C44588},
			{"c99212b70024ffff", 0x88B4A2E7},
			{"0420ffffff00003180fffff0", 0x254C1565},
			{"00070e151c232a31383f0000", 0x078AB3BD},
		}, "424c75f8"},
		{"IPv6 ACK", []step{
			{"6fffffff001c11fffd770000000000000000000000000001fd770000000000000000000000000002", 0xC78DD53C},
			{"e89812b7001cffff", 0x197360ED},
			{"1100ffffff0000110084a0a3", 0xD8696170},
			{"1f000001", 0x6160FCDC},
		}, "23039f9e"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if seed := ^bth.CRC(crc32.ChecksumIEEE(bytes.Repeat([]byte{0xFF}, 8))); seed != bth.CRCSeed {
				t.Fatalf("seed %#x, want %#x", bth.CRCSeed, seed)
			}
			c := bth.CRCSeed
			for i, s := range tt.steps {
				b := unhex(t, s.fed)
				if got := c.Update(b); got != s.reg {
					t.Errorf("step %d: register %#x, want %#x", i, got, s.reg)
				}
				if i == 2 {
					b[4] = 0x40 // any value will do
					if got := c.UpdateBTH(b); got != s.reg {
						t.Errorf("UpdateBTH: register %#x, want %#x", got, s.reg)
					}
				}
				c = s.reg
			}
			var wire [4]byte
			bth.PutICRC(wire[:], c)
			if want := unhex(t, tt.wire); !bytes.Equal(wire[:], want) {
				t.Errorf("ICRC %x, want %x", wire, want)
			}
		})
	}
}

// TestICRCFromFields builds packets from fields and compares their ICRC with those in scapy's
// regression tests.
func TestICRCFromFields(t *testing.T) {
	payload := unhex(t, "4630818be28935d90e9a95505401be885e50") // and two bytes of pad
	f := bth.Fields{
		BTH:     bth.BTHFields{Op: bth.UCSendOnly, Flags: bth.MigReq, PKey: bth.DefaultPKey, DestQPN: 211, PSN: 13571856},
		Payload: payload,
	}
	for _, tt := range []struct {
		src, dst string
		sport    uint16
		hops     uint8
		icrc     string
	}{
		{"192.168.0.7", "192.168.0.7", 49152, 64, "78f353f3"},
		{"2022::1023", "2023::1024", 49152, 255, "3e5b743b"},
	} {
		path, err := frame.NewPath(frame.PathConfig{Src: gid(t, tt.src), Dst: gid(t, tt.dst), SrcPort: tt.sport, HopLimit: tt.hops})
		if err != nil {
			t.Fatal(err)
		}
		b := encode(path, frame.LayoutUDP, 1144, &f)
		if got, want := b[len(b)-4:], unhex(t, tt.icrc); !bytes.Equal(got, want) {
			t.Errorf("%s: ICRC %x, want %x", tt.src, got, want)
		}
	}
}

// TestFlushQuirk checks two FLUSH packets a program sent to rxe 6.12: it
// ignored the one with the ICRC of the standard and executed the other.
func TestFlushQuirk(t *testing.T) {
	path, err := frame.NewPath(frame.PathConfig{Src: gid(t, "10.77.0.2"), Dst: gid(t, "10.77.0.1"), SrcPort: 0xC123})
	if err != nil {
		t.Fatal(err)
	}
	f := bth.Fields{
		BTH:  bth.BTHFields{Op: bth.RCFlush, Flags: bth.AckReq, PKey: bth.DefaultPKey, DestQPN: 0x1B, PSN: 0xFFFFF0},
		FETH: &bth.FETHFields{Type: bth.FlushGlobal, Selectivity: bth.FlushRange},
		RETH: &bth.RETHFields{VA: 0x7F5558DF2000, RKey: 0xC99, DMALen: 64},
	}
	b := make([]byte, path.HeaderLen(frame.LayoutIP)+36)
	for _, tt := range []struct {
		quirk bool
		id    uint16
		icrc  string
	}{{false, 0x1111, "7975b2f9"}, {true, 0x2222, "9fe5339c"}} {
		body, crc := path.Put(b, frame.LayoutIP, 36, tt.id)
		n := copy(body, f.Append(nil))
		crc = crc.UpdateBTH(body).Update(body[bth.BTHLen:n])
		if tt.quirk {
			crc = crc.UpdateFlushQuirk(body)
		}
		bth.PutICRC(body[n:], crc)
		if want := unhex(t, tt.icrc); !bytes.Equal(body[n:], want) {
			t.Errorf("quirk %v: ICRC %x, want %x", tt.quirk, body[n:], want)
		}
		var p frame.Packet
		if err := p.Parse(b, frame.LayoutIP); err != nil {
			t.Fatal(err)
		}
		if p.CheckICRC() == tt.quirk || p.CheckICRCFlushQuirk() != tt.quirk {
			t.Errorf("quirk %v: plain check %v, quirk check %v", tt.quirk, p.CheckICRC(), p.CheckICRCFlushQuirk())
		}
	}
}

func gid(t testing.TB, s string) bth.GID {
	t.Helper()
	g, err := bth.ParseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

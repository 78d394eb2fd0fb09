package cm

import (
	"bytes"
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/goroce/roce/bth"
)

// mad makes a MAD of hex digits in any grouping, padded with zeros.
func mad(t testing.TB, digits ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(strings.Join(digits, "")), ""))
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > MADLen {
		t.Fatalf("%d bytes", len(b))
	}
	return append(b, make([]byte, MADLen-len(b))...)
}

func gid(s string) bth.GID { return bth.GIDFrom(netip.MustParseAddr(s)) }

// golden has messages that two Linux 6.12 hosts sent each other: rping from 10.77.0.2 to
// 10.77.0.1 port 7174, a refused connection, and udaddy.
var golden = []struct {
	name string
	hex  []string
	want Message
	text string
}{{
	name: "REQ",
	hex: []string{`0107020300000000 00000002608a45fa 0010000000000000`,
		`fa458a60 00000000 0000000001061c06 505400fffe00000b 00000000 00000000 000011 01 000000 01 000000 a0`,
		`805d1b a7 ffff 37 f0 ffff ffff 00000000000000000000ffff0a4d0002 00000000000000000000ffff0a4d0001`,
		`8be58000 00 40 00 88`, strings.Repeat("00", 44),
		`0040cb6e 0000000000000000000000000a4d0002 0000000000000000000000000a4d0001`},
	want: &REQ{
		Header:  Header{TID: 0x2608a45fa},
		LocalID: 0xfa458a60, ServiceID: Service(PortSpaceTCP, 7174), LocalGUID: 0x505400fffe00000b,
		QPN: 0x11, ResponderResources: 1, InitiatorDepth: 1, RemoteResponseTimeout: 20,
		StartingPSN: 0x805d1b, LocalResponseTimeout: 20, RetryCount: 7, PKey: 0xFFFF,
		MTU: bth.MTU1024, RNRRetryCount: 7, MaxCMRetries: 15,
		Primary: Path{LocalLID: 0xFFFF, RemoteLID: 0xFFFF, LocalGID: gid("10.77.0.2"),
			RemoteGID: gid("10.77.0.1"), FlowLabel: FlowLabel(52078, 7174), HopLimit: 64, AckTimeout: 17},
		Private: [92]byte{0, 0x40, 0xcb, 0x6e, 16: 10, 17: 77, 19: 2, 32: 10, 33: 77, 35: 1},
	},
	text: "REQ id fa458a60 svc tcp:7174 guid 5054:00ff:fe00:000b qpn 0x000011 psn 0x805d1b RC mtu 1024 " +
		"res 1/1 retry 7 rnr 7 timeout 20/20 cmretry 15 pkey 0xffff ::ffff:10.77.0.2->::ffff:10.77.0.1 " +
		"fl 0x8be58 tc 0x00 hop 64 ackto 17 ip 10.77.0.2:52078->10.77.0.1",
}, {
	name: "REP",
	hex: []string{`010702030000000000000002608a45fa0013000000000000`,
		`0703e1ef fa458a60 00000000 000011 00 000000 00 b66df1 00 01 01 78 e0 505400fffe00000a`},
	want: &REP{
		Header:  Header{TID: 0x2608a45fa},
		LocalID: 0x0703e1ef, RemoteID: 0xfa458a60, QPN: 0x11, StartingPSN: 0xb66df1,
		ResponderResources: 1, InitiatorDepth: 1, TargetAckDelay: 15, RNRRetryCount: 7,
		LocalGUID: 0x505400fffe00000a,
	},
	text: "REP id 0703e1ef->fa458a60 guid 5054:00ff:fe00:000a qpn 0x000011 psn 0xb66df1 res 1/1 rnr 7 ackdelay 15",
}, {
	name: "RTU",
	hex:  []string{`010702030000000000000002608a45fa0014000000000000 fa458a60 0703e1ef`},
	want: &RTU{Header: Header{TID: 0x2608a45fa}, LocalID: 0xfa458a60, RemoteID: 0x0703e1ef},
	text: "RTU id fa458a60->0703e1ef",
}, {
	name: "DREQ",
	hex:  []string{`010702030000000000000002608a45fa0015000000000000 fa458a60 0703e1ef 000011 00`},
	want: &DREQ{Header: Header{TID: 0x2608a45fa}, LocalID: 0xfa458a60, RemoteID: 0x0703e1ef, RemoteQPN: 0x11},
	text: "DREQ id fa458a60->0703e1ef qpn 0x000011",
}, {
	name: "DREP",
	hex:  []string{`010702030000000000000002608a45fa0016000000000000 0703e1ef fa458a60`},
	want: &DREP{Header: Header{TID: 0x2608a45fa}, LocalID: 0x0703e1ef, RemoteID: 0xfa458a60},
	text: "DREP id 0703e1ef->fa458a60",
}, {
	name: "REJ without listener",
	hex:  []string{`010702030000000000000002608a45fc0012000000000000 00000000 fc458a60 00 00 0008`},
	want: &REJ{Header: Header{TID: 0x2608a45fc}, RemoteID: 0xfc458a60, Reason: RejectInvalidServiceID},
	text: "REJ id 00000000->fc458a60 of REQ reason 8 (invalid service ID)",
}, {
	name: "SIDR_REQ",
	hex: []string{`010702030000000000000002608a45fb0017000000000000 fb458a60 ffff 0000 0000000001111c06`,
		`004090cc 0000000000000000000000000a4d0002 0000000000000000000000000a4d0001`},
	want: &SIDRREQ{Header: Header{TID: 0x2608a45fb}, RequestID: 0xfb458a60, PKey: 0xFFFF,
		ServiceID: Service(PortSpaceUDP, 7174),
		Private:   [216]byte{0, 0x40, 0x90, 0xcc, 16: 10, 17: 77, 19: 2, 32: 10, 33: 77, 35: 1}},
	text: "SIDR_REQ id fb458a60 svc udp:7174 pkey 0xffff ip 10.77.0.2:37068->10.77.0.1",
}, {
	name: "SIDR_REP",
	hex: []string{`010702030000000000000002608a45fb0018000000000000 fb458a60 00 00 0000 000017 00`,
		`0000000001111c06 01234567`},
	want: &SIDRREP{Header: Header{TID: 0x2608a45fb}, RequestID: 0xfb458a60, QPN: 0x17,
		ServiceID: Service(PortSpaceUDP, 7174), QKey: DefaultUDPQKey},
	text: "SIDR_REP id fb458a60 svc udp:7174 status 0 (valid) qpn 0x000017 qkey 0x01234567",
}, { // by the layout in ibta_vol1_c12.h: no other implementation sends these on RoCE
	name: "LAP",
	hex: []string{`0107020300000000 0000001100000020 0019000000000000 00000020 0000beef 00000000 000022 a0 00000000 ffff ffff`,
		`00000000000000000000ffff0a010001 00000000000000000000ffff0a010002 00777 0 20 09 00 00 88 6c6170`},
	want: &LAP{Header: Header{TID: 0x1100000020}, LocalID: ownID, RemoteID: peerID, RemoteQPN: peerQPN, RemoteResponseTimeout: 20,
		Alternate: wire(altSeen(17)), Private: [168]byte{'l', 'a', 'p'}},
	text: "LAP id 00000020->0000beef qpn 0x000022 ::ffff:10.1.0.1->::ffff:10.1.0.2 fl 0x00777 tc 0x20 hop 9 ackto 17 private 6c6170",
}, {
	name: "APR",
	hex:  []string{`0107020300000000 0000001100000020 001a000000000000 0000beef 00000020 01 08 0000 2a`},
	want: &APR{Header: Header{TID: 0x1100000020}, LocalID: peerID, RemoteID: ownID, InfoLen: 1, Status: APInvalidGID, Info: [72]byte{0x2a}},
	text: "APR id 0000beef->00000020 status 8 (alternate GID rejected) info 2a",
}}

func TestGolden(t *testing.T) {
	for _, g := range golden {
		t.Run(g.name, func(t *testing.T) {
			b := mad(t, g.hex...)
			got, err := DecodeMAD(b)
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(g.want, got); d != "" {
				t.Errorf("decoded (-want +got):\n%s", d)
			}
			if got := got.String(); got != g.text {
				t.Errorf("String\n got %s\nwant %s", got, g.text)
			}
			if d := cmp.Diff(b, encode(g.want)); d != "" {
				t.Errorf("encoded (-want +got):\n%s", d)
			}
		})
	}
}

// TestFieldsIndependent sets every field of every message to all ones, one at a
// time: Decode must return it, and no two fields may share a bit.
func TestFieldsIndependent(t *testing.T) {
	ones := func(n int) []byte { return bytes.Repeat([]byte{0xFF}, n) }
	var g bth.GID
	copy(g[:], ones(16))
	path := func(set func(*Path)) Path { var p Path; set(&p); return p }
	var private92 [92]byte
	copy(private92[:], ones(92))
	var private168 [168]byte
	copy(private168[:], ones(168))
	var info [InfoLen]byte
	copy(info[:], ones(InfoLen))
	fields := []Message{
		&REQ{Header: Header{TID: ^uint64(0)}}, &REQ{Header: Header{Modifier: ^uint32(0)}},
		&REQ{LocalID: ^CommID(0)}, &REQ{VendorID: 0xFFFFFF}, &REQ{ServiceID: ^ServiceID(0)}, &REQ{LocalGUID: ^GUID(0)},
		&REQ{QKey: ^bth.QKey(0)}, &REQ{QPN: 0xFFFFFF}, &REQ{LocalEECN: 0xFFFFFF}, &REQ{RemoteEECN: 0xFFFFFF},
		&REQ{ResponderResources: 0xFF}, &REQ{InitiatorDepth: 0xFF}, &REQ{StartingPSN: 0xFFFFFF},
		&REQ{RemoteResponseTimeout: 31}, &REQ{LocalResponseTimeout: 31}, &REQ{MaxCMRetries: 15}, &REQ{Transport: 3},
		&REQ{ExtTransport: 7}, &REQ{FlowControl: true}, &REQ{RetryCount: 7}, &REQ{RNRRetryCount: 7}, &REQ{SRQ: true},
		&REQ{RDC: true}, &REQ{PKey: 0xFFFF}, &REQ{MTU: 15}, &REQ{SAP: true}, &REQ{Private: private92},
		&REP{Header: Header{TID: ^uint64(0)}}, &REP{LocalID: ^CommID(0)}, &REP{RemoteID: ^CommID(0)}, &REP{QKey: ^bth.QKey(0)},
		&REP{QPN: 0xFFFFFF}, &REP{LocalEECN: 0xFFFFFF}, &REP{VendorID: 0xFF0000}, &REP{VendorID: 0xFF00}, &REP{VendorID: 0xFF},
		&REP{StartingPSN: 0xFFFFFF}, &REP{ResponderResources: 0xFF}, &REP{InitiatorDepth: 0xFF}, &REP{TargetAckDelay: 31},
		&REP{Failover: 3}, &REP{FlowControl: true}, &REP{RNRRetryCount: 7}, &REP{SRQ: true}, &REP{LocalGUID: ^GUID(0)},
		&DREQ{LocalID: ^CommID(0)}, &DREQ{RemoteID: ^CommID(0)}, &DREQ{RemoteQPN: 0xFFFFFF},
		&MRA{LocalID: ^CommID(0)}, &MRA{RemoteID: ^CommID(0)}, &MRA{Of: 3}, &MRA{ServiceTimeout: 31},
		&REJ{LocalID: ^CommID(0)}, &REJ{RemoteID: ^CommID(0)}, &REJ{Of: 3}, &REJ{InfoLen: 127}, &REJ{Reason: 0xFFFF}, &REJ{Info: info},
		&SIDRREQ{RequestID: ^CommID(0)}, &SIDRREQ{PKey: 0xFFFF}, &SIDRREQ{ServiceID: ^ServiceID(0)},
		&SIDRREP{RequestID: ^CommID(0)}, &SIDRREP{Status: 0xFF}, &SIDRREP{InfoLen: 0xFF}, &SIDRREP{VendorID: 0xFFFF00},
		&SIDRREP{VendorID: 0xFF}, &SIDRREP{QPN: 0xFFFFFF}, &SIDRREP{ServiceID: ^ServiceID(0)}, &SIDRREP{QKey: ^bth.QKey(0)}, &SIDRREP{Info: info},
		&LAP{LocalID: ^CommID(0)}, &LAP{RemoteID: ^CommID(0)}, &LAP{RemoteQPN: 0xFFFFFF}, &LAP{RemoteResponseTimeout: 31}, &LAP{Private: private168},
		&APR{LocalID: ^CommID(0)}, &APR{RemoteID: ^CommID(0)}, &APR{InfoLen: 0xFF}, &APR{Status: 0xFF}, &APR{Info: info},
	}
	for _, set := range []func(*Path){
		func(p *Path) { p.LocalLID = 0xFFFF }, func(p *Path) { p.RemoteLID = 0xFFFF }, func(p *Path) { p.LocalGID = g },
		func(p *Path) { p.RemoteGID = g }, func(p *Path) { p.FlowLabel = 0xFFFFF }, func(p *Path) { p.Rate = 63 },
		func(p *Path) { p.TrafficClass = 0xFF }, func(p *Path) { p.HopLimit = 0xFF }, func(p *Path) { p.SL = 15 },
		func(p *Path) { p.SubnetLocal = true }, func(p *Path) { p.AckTimeout = 31 },
	} {
		fields = append(fields, &REQ{Primary: path(set)}, &REQ{Alternate: path(set)}, &LAP{Alternate: path(set)})
	}
	taken := map[Attribute][MADLen]byte{}
	for _, f := range fields {
		b := encode(f)
		got, err := DecodeMAD(b)
		if err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		if d := cmp.Diff(f, got); d != "" {
			t.Errorf("%v (-want +got):\n%s", f.Attribute(), d)
		}
		seen := taken[f.Attribute()]
		for i := 4; i < MADLen; i++ {
			if i == 16 || i == 17 { // the attribute itself
				continue
			}
			if seen[i]&b[i] != 0 {
				t.Errorf("%v: byte %d is shared with another field", f, i)
			}
			seen[i] |= b[i]
		}
		taken[f.Attribute()] = seen
	}
}

func TestPrivateDataReachesTheEnd(t *testing.T) {
	for a, offset := range map[Attribute]int{AttrREQ: 140, AttrMRA: 10, AttrREJ: 84, AttrREP: 36, AttrRTU: 8,
		AttrDREQ: 12, AttrDREP: 8, AttrSIDRREQ: 16, AttrSIDRREP: 96, AttrLAP: 64, AttrAPR: 84} {
		m := attributes[a].new()
		b := encode(m)
		for i := headerLen + offset; i < MADLen; i++ {
			b[i] = byte(i)
		}
		if err := m.Decode(b); err != nil {
			t.Fatal(err)
		}
		if got := encode(m); !bytes.Equal(got, b) {
			t.Errorf("%v: private data differs:\n%s", a, cmp.Diff(b, got))
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	good := mad(t, golden[0].hex...)
	for _, g := range golden {
		whole := mad(t, g.hex...)
		for n := range MADLen {
			if _, err := DecodeMAD(whole[:n]); !errors.Is(err, ErrShortMAD) {
				t.Fatalf("%s cut to %d bytes: %v", g.name, n, err)
			}
			if err := attributes[g.want.Attribute()].new().Decode(whole[:n]); !errors.Is(err, ErrShortMAD) {
				t.Fatalf("%s.Decode of %d bytes: %v", g.name, n, err)
			}
		}
	}
	if _, err := DecodeMAD(append(good, 0)); !errors.Is(err, ErrShortMAD) {
		t.Errorf("257 bytes: %v", err)
	}
	for _, tt := range []struct {
		at   int
		v    byte
		want error
	}{{0, 2, ErrVersion}, {1, 3, ErrVersion}, {2, 1, ErrVersion}, {3, 0x81, ErrVersion}, {17, 1, ErrAttribute}, {16, 1, ErrAttribute}} {
		b := bytes.Clone(good)
		b[tt.at] = tt.v
		if _, err := DecodeMAD(b); !errors.Is(err, tt.want) {
			t.Errorf("byte %d = %#x: %v, want %v", tt.at, tt.v, err, tt.want)
		}
	}
	if err := new(REP).Decode(good); !errors.Is(err, ErrAttribute) {
		t.Errorf("a REQ as REP: %v", err)
	}
}

func TestNames(t *testing.T) {
	for got, want := range map[string]string{
		AttrSIDRREP.String(): "SIDR_REP", AttrClassPortInfo.String(): "ClassPortInfo",
		Attribute(0x99).String(): "attribute 0x0099", RejectConsumer.String(): "consumer reject",
		RejectReason(34).String(): "reject reason 34", RejectReason(9999).String(): "reject reason 9999",
		SIDRUnsupported.String(): "service ID not supported", SIDRStatus(9).String(): "SIDR status 9",
		APInvalidSL.String(): "alternate SL rejected", APStatus(77).String(): "AP status 77",
		FailoverRejected.String(): "rejected", Failover(3).String(): "failover 3",
		(&REP{Failover: FailoverUnsupported}).String(): "REP id 00000000->00000000 guid 0000:0000:0000:0000 qpn 0x000000 psn 0x000000 res 0/0 rnr 0 ackdelay 0 failover not supported",
		OfREP.String(): "REP", Subject(3).String(): "message 3", UC.String(): "UC",
		StateMRARepRcvd.String(): "MRA_REP_RCVD", StateTimewait.String(): "TIMEWAIT",
		TimewaitExit.String(): "TIMEWAIT_EXIT", EventKind(0).String(): "event 0",
		GUID(0x505400fffe00000b).String(): "5054:00ff:fe00:000b", PortSpaceIB.String(): "ib",
		PortSpace(7).String(): "port space 0x0007", ServiceID(1 << 40).String(): "0x0000010000000000",
		Service(PortSpaceUDP, 18515).String():                            "udp:18515",
		(&MRA{Of: OfREP, ServiceTimeout: 24}).String():                   "MRA id 00000000->00000000 of REP timeout 24",
		(&REJ{Reason: 4, InfoLen: 2, Of: OfOther}).String():              "REJ id 00000000->00000000 of other reason 4 (timeout) info 0000",
		(&RTU{Private: [224]byte{1, 2, 3}}).String():                     "RTU id 00000000->00000000 private 010203",
		(&DREP{Private: [224]byte{19: 9}}).String():                      "DREP id 00000000->00000000 private 00000000000000000000000000000000… (20 bytes)",
		(&APR{Status: 3, InfoLen: 255, Info: [72]byte{1}}).String()[:57]: "APR id 00000000->00000000 status 3 (rejected) info 010000",
		(&LAP{}).String(): "LAP id 00000000->00000000 qpn 0x000000 ::->:: fl 0x00000 tc 0x00 hop 0 ackto 0",
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestIPHeader(t *testing.T) {
	for _, tt := range []struct {
		name string
		h    IPHeader
		hex  string
	}{
		{"v4", IPHeader{52078, netip.MustParseAddr("10.77.0.2"), netip.MustParseAddr("10.77.0.1")},
			"0040cb6e 0000000000000000000000000a4d0002 0000000000000000000000000a4d0001"},
		{"v6", IPHeader{57713, netip.MustParseAddr("fd00::2"), netip.MustParseAddr("fe80::1")},
			"0060e171 fd000000000000000000000000000002 fe800000000000000000000000000001"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			want := mad(t, tt.hex)[:IPHeaderLen]
			b := [IPHeaderLen]byte(bytes.Repeat([]byte{0xEE}, IPHeaderLen))
			if err := tt.h.Put(b[:]); err != nil || !bytes.Equal(b[:], want) {
				t.Errorf("Put: %x, %v\nwant %x", b, err, want)
			}
			var got IPHeader
			if err := got.Decode(want); err != nil || got != tt.h {
				t.Errorf("Decode: %v, %v; want %v", got, err, tt.h)
			}
			for n := range IPHeaderLen {
				if err := got.Decode(want[:n]); !errors.Is(err, ErrIPHeader) {
					t.Errorf("%d bytes: %v", n, err)
				}
			}
			for at, v := range map[int]byte{0: 1, 1: 0x50} {
				bad := bytes.Clone(want)
				bad[at] = v
				if err := got.Decode(bad); !errors.Is(err, ErrIPHeader) {
					t.Errorf("byte %d = %#x: %v", at, v, err)
				}
			}
		})
	}
	mixed := IPHeader{1, netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")}
	var b [IPHeaderLen]byte
	if err := mixed.Put(b[:]); !errors.Is(err, ErrIPHeader) {
		t.Errorf("mixed families: %v", err)
	}
	if err := new(IPHeader).Put(b[:]); !errors.Is(err, ErrIPHeader) {
		t.Errorf("no addresses: %v", err)
	}
}

func TestServiceID(t *testing.T) {
	id := Service(PortSpaceTCP, 7174)
	if id != 0x0000000001061C06 || id.PortSpace() != PortSpaceTCP || id.Port() != 7174 || !id.IsIP() {
		t.Errorf("%v: %#x %v %v %v", id, uint64(id), id.PortSpace(), id.Port(), id.IsIP())
	}
	for _, id := range []ServiceID{1, 0x1000000001061C06, 0x0000000101061C06, 0x01071C06} {
		if id.IsIP() {
			t.Errorf("%v is taken for rdma_cm's", id)
		}
	}
}

func FuzzDecodeMAD(f *testing.F) {
	for _, g := range golden {
		f.Add(mad(f, g.hex...))
	}
	for a := range attributes {
		f.Add(encode(attributes[a].new()))
		f.Add(append(encode(attributes[a].new())[:headerLen], bytes.Repeat([]byte{0xFF}, MADLen-headerLen)...))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := DecodeMAD(b)
		if err != nil {
			if m != nil {
				t.Fatal("message with an error")
			}
			return
		}
		if m.String() == "" {
			t.Fatal("no text")
		}
		// The first encoding drops reserved bits; the second one must be equal to the first.
		once := encode(m)
		m2, err := DecodeMAD(once)
		if err != nil {
			t.Fatalf("cannot decode what was encoded: %v", err)
		}
		if d := cmp.Diff(m, m2); d != "" {
			t.Fatalf("decode-encode-decode differs:\n%s", d)
		}
	})
}

// encode returns the 256 bytes of m.
func encode(m Message) []byte {
	var b [MADLen]byte
	m.Put(&b)
	return b[:]
}

package fault_test

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/mono"
)

// made returns a whole frame with a UDP checksum, from 10.0.0.1 to 10.0.0.2 or, with v6, between two IPv6
// addresses.
func made(t testing.TB, v6 bool, f bth.Fields) []byte {
	t.Helper()
	path := linktest.Path(t, v6, frame.MAC{0: 2, 5: 1}, frame.MAC{0: 2, 5: 2})
	f.BTH.PKey = bth.DefaultPKey
	body := f.Append(nil)
	n := len(body) + bth.ICRCLen
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	room, crc := path.Put(b, frame.LayoutEthernet, n, 77)
	copy(room, body)
	bth.PutICRC(room[len(body):], crc.UpdateBody(body))
	udp := b[len(b)-n-8:]
	ip := b[14 : len(b)-n-8]
	addrs := ip[12:]
	if v6 {
		addrs = ip[8:]
	}
	sum := ^frame.Fold16(frame.Sum16(addrs) + 17 + uint32(len(udp)) + frame.Sum16(udp))
	udp[6], udp[7] = byte(sum>>8), byte(sum)
	return b
}

func write(psn int, payload string) bth.Fields {
	return bth.Fields{
		BTH:     bth.BTHFields{Op: bth.RCWriteOnly, DestQPN: 0x12, PSN: bth.PSN(psn)},
		RETH:    &bth.RETHFields{VA: 0x1000, RKey: 0x55, DMALen: uint32(len(payload))},
		Payload: []byte(payload),
	}
}

func network(t testing.TB, rules ...string) *fault.Engine {
	t.Helper()
	c := fault.Config{Seed: 3, Track: true}
	for _, text := range rules {
		r, err := fault.ParseRule(text)
		if err != nil {
			t.Fatal(err)
		}
		c.Rules = append(c.Rules, r)
	}
	e, err := fault.NewEngine(c, 0)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// parsed checks the checksums of a frame and returns its packet.
func parsed(t testing.TB, b []byte) *frame.Packet {
	t.Helper()
	p := new(frame.Packet)
	if err := p.Parse(b, frame.LayoutEthernet); err != nil {
		t.Fatalf("the frame does not parse: %v", err)
	}
	return p
}

// TestChoice: which of twelve packets a rule acts on. Packet i is sent at i milliseconds with PSN
// 100+i%6, so that each is sent twice; odd ones go to connection 2.
func TestChoice(t *testing.T) {
	for rule, want := range map[string][]int{
		"drop,every=4":                {3, 7, 11},
		"drop,nth=2,every=4":          {1, 5, 9},
		"drop,nth=2,every=4,count=2":  {1, 5},
		"drop,nth=3":                  {2},
		"drop,after=4ms,until=6ms":    {4, 5},
		"drop,after=10ms":             {10, 11},
		"drop,conn=2,iter=1":          {1, 3, 5},
		"drop,conn=1,rel=2":           {2, 8},
		"drop,rel=2,iter=2":           {8, 9}, // PSN 102 of connection 1, 103 of connection 2
		"drop,conn=3":                 nil,
		"drop,src=10.0.0.1,nth=1":     {0},
		"drop,dst=10.0.0.1":           nil,
		"drop,dst=10.0.0.2,nth=12":    {11},
		"drop,op=WRITE_*,nth=1":       {0},
		"drop,op=READ_*|send_only":    nil,
		"drop,op=RC_WRITE_ONLY|0x0c":  {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11},
		"drop,p=100%,nth=12":          {11},
		"drop,every=2,p=1,count=1":    {1},
		"drop,rel=0,conn=2,qpn=0x13 ": {1, 7},
	} {
		t.Run(rule, func(t *testing.T) {
			e := network(t, strings.TrimSpace(rule))
			var got []int
			for i := range 12 {
				f := write(100+i%6, "some")
				f.BTH.DestQPN += bth.QPN(i % 2)
				v := e.Handle(mono.Time(i)*mono.Time(time.Millisecond), fault.Tx, made(t, false, f), uint64(i))
				if !v.Pass {
					got = append(got, i)
					if v.Rule != 0 || v.Faults != fault.Of(fault.Drop) {
						t.Errorf("packet %d: %+v", i, v)
					}
				}
				if v.Iter != 1+i/6 || v.Place.Conn != 1+i%2 || v.Place.Rel != i%6-i%2 {
					t.Errorf("packet %d: %+v", i, v)
				}
			}
			if !reflect.DeepEqual(got, want) {
				t.Errorf("dropped %v, want %v", got, want)
			}
			if c := e.RuleCounters()[0]; c.Fired != uint64(len(want)) || c.Matched < c.Fired {
				t.Errorf("counters %+v, want %d fired", c, len(want))
			}
		})
	}
}

// TestIterations: transmissions are counted correctly if a whole window of packets lies between them, and
// if the other direction and other hosts use the same queue pair numbers and PSNs.
func TestIterations(t *testing.T) {
	e := network(t)
	count := func(dir fault.Direction, v6 bool, f bth.Fields, want int) {
		t.Helper()
		if v := e.Handle(0, dir, made(t, v6, f), 0); v.Iter != want {
			t.Fatalf("%v %v: transmission %d, want %d", f.BTH.Op, f.BTH.PSN, v.Iter, want)
		}
	}
	ack := func(psn int) bth.Fields {
		return bth.Fields{BTH: bth.BTHFields{Op: bth.RCAck, DestQPN: 0x12, PSN: bth.PSN(psn)}, AETH: new(bth.AETHFields)}
	}
	for turn := range 3 {
		for psn := range 8000 {
			count(fault.Tx, false, write(psn, "some"), turn+1)
			count(fault.Rx, false, ack(psn), turn+1)
			count(fault.Tx, false, ack(psn), turn+1)
			count(fault.Tx, true, write(psn, "some"), turn+1)
		}
	}
	for range 300 {
		e.Handle(0, fault.Tx, made(t, false, write(0, "some")), 0)
	}
	count(fault.Tx, false, write(0, "some"), 256) // the count stops here
	for qpn := range bth.QPN(3000) {
		f := write(0, "some")
		f.BTH.DestQPN = 0x1000 + qpn
		count(fault.Tx, false, f, 1)
	}
}

// TestProbability: a rule with a probability acts on about that share.
func TestProbability(t *testing.T) {
	e := network(t, "drop,p=10%")
	b := made(t, false, write(1, "some"))
	for range 4000 {
		e.Handle(0, fault.Tx, b, 0)
	}
	if tx, _ := e.Counters(); tx.Dropped < 280 || tx.Dropped > 520 {
		t.Errorf("%d of 4000 packets dropped, want about 400", tx.Dropped)
	}
}

// TestRewrite: each field that a packet has can be rewritten, everything else stays, and checksums
// and ICRC are right afterwards.
func TestRewrite(t *testing.T) {
	samples := []bth.Fields{
		write(5, "payload!"),
		{BTH: bth.BTHFields{Op: bth.RCFetchAdd, DestQPN: 0x12, PSN: 5}, AtomicETH: &bth.AtomicETHFields{VA: 0x1000, RKey: 5, Swap: 3}},
		{BTH: bth.BTHFields{Op: bth.RCAck, DestQPN: 0x12, PSN: 5}, AETH: &bth.AETHFields{MSN: 9}},
		{BTH: bth.BTHFields{Op: bth.UDSendOnlyImm, DestQPN: 0x12, PSN: 5}, DETH: &bth.DETHFields{QKey: 1, SrcQPN: 2}, Imm: new(uint32), Payload: make([]byte, 8)},
		{BTH: bth.BTHFields{Op: bth.RCSendOnlyInv, DestQPN: 0x12, PSN: 5}, IETH: new(bth.RKey), Payload: make([]byte, 8)},
	}
	for _, field := range fault.Fields() {
		t.Run(field.String(), func(t *testing.T) {
			had := 0
			for _, v6 := range []bool{false, true} {
				for _, sample := range samples {
					value := uint64(0x5A5A5A5A5A5A5A5A) >> (64 - field.Bits())
					if field.String() == "tver" || field.String() == "pad" {
						value = 0 // the packet would not parse
					}
					if field.String() == "opcode" {
						value = uint64(sample.BTH.Op)
					}
					before := made(t, v6, sample)
					e := network(t, "rewrite,set."+field.String()+"="+"0x"+hex(value))
					b := bytes.Clone(before)
					v := e.Handle(0, fault.Tx, b, 0)
					if !v.Pass {
						t.Fatalf("%+v", v)
					}
					if v.Faults == 0 {
						if v.Refused == "" || !bytes.Equal(b, before) {
							t.Errorf("%v: the packet changed, or the verdict has no reason for the refusal: %+v", sample.BTH.Op, v)
						}
						continue
					}
					had++
					p := parsed(t, b)
					if !p.CheckICRC() {
						t.Errorf("%v: the ICRC is wrong", sample.BTH.Op)
					}
					// Only the field and the checksums have changed.
					changed := 0
					for i := range b[:len(b)-bth.ICRCLen] {
						if b[i] != before[i] {
							changed++
						}
					}
					if limit := field.Bits()/8 + 2 + 4; changed > limit { // and the checksums of UDP and IP
						t.Errorf("%v: %d bytes changed, want at most %d", sample.BTH.Op, changed, limit)
					}
				}
			}
			if had == 0 {
				t.Error("no packet has the field")
			}
		})
	}
}

func hex(v uint64) string {
	const digits = "0123456789abcdef"
	s := ""
	for ; v > 0 || s == ""; v >>= 4 {
		s = string(digits[v&15]) + s
	}
	return s
}

// TestRewriteValues: the accessors of a packet return the rewritten values.
func TestRewriteValues(t *testing.T) {
	e := network(t, "rewrite,set.psn=0x123456,set.migreq=1,set.dest-qpn=0xabcdef,set.rkey=0x01020304,set.va=0x1122334455667788,"+
		"set.dma-length=9,set.dscp=46,set.ecn=3,set.ttl=7,set.src-port=50123,set.ack-req=1,set.becn=1,set.pkey=0x8001")
	for _, v6 := range []bool{false, true} {
		b := made(t, v6, write(5, "payload!"))
		if v := e.Handle(0, fault.Tx, b, 0); v.Faults != fault.Of(fault.Rewrite) {
			t.Fatalf("%+v", v)
		}
		p := parsed(t, b)
		if !p.CheckICRC() || p.PSN() != 0x123456 || !p.MigReq() || p.DestQPN() != 0xabcdef || p.RKey() != 0x01020304 ||
			p.VA() != 0x1122334455667788 || p.DMALen() != 9 || p.TrafficClass != 46<<2|3 || p.HopLimit != 7 || p.SrcPort != 50123 ||
			!p.AckReq() || !p.BECN() || p.PKey() != 0x8001 || string(p.Payload()) != "payload!" {
			t.Errorf("v6 %v: got %v, traffic class %#x, hop limit %d, source port %d", v6, bth.Decode(&p.Packet), p.TrafficClass, p.HopLimit, p.SrcPort)
		}
	}
}

// TestCorruptICRC: after corrupt the ICRC is wrong; with icrc=right it is right and the payload has
// changed. The UDP checksum is right in both cases.
func TestCorruptICRC(t *testing.T) {
	for rule, right := range map[string]bool{"corrupt": false, "corrupt,bits=7": false, "corrupt,icrc=right": true, "corrupt,bits=3,icrc=right": true} {
		for _, v6 := range []bool{false, true} {
			e := network(t, rule)
			for psn := range 50 {
				before := made(t, v6, write(psn, "twelve bytes"))
				b := bytes.Clone(before)
				v := e.Handle(0, fault.Tx, b, 0)
				p := new(frame.Packet)
				if err := p.Parse(b, frame.LayoutEthernet); err != nil && right {
					t.Fatal(err)
				} else if err != nil {
					continue // the damage is in the headers
				}
				switch {
				case v.Faults != fault.Of(fault.Corrupt) || bytes.Equal(b, before):
					t.Fatalf("%s: %+v", rule, v)
				case right && (!p.CheckICRC() || string(p.Payload()) == "twelve bytes" || p.PSN() != bth.PSN(psn)):
					t.Errorf("%s: packet %d: ICRC right: %v, payload %q", rule, psn, p.CheckICRC(), p.Payload())
				case !right && p.CheckICRC():
					t.Errorf("%s: packet %d: the ICRC is right", rule, psn)
				}
			}
		}
	}
	// With icrc=right a packet without payload cannot be corrupted.
	e := network(t, "corrupt,icrc=right")
	ack := made(t, false, bth.Fields{BTH: bth.BTHFields{Op: bth.RCAck, DestQPN: 1}, AETH: new(bth.AETHFields)})
	before := bytes.Clone(ack)
	if v := e.Handle(0, fault.Rx, ack, 0); v.Faults != 0 || v.Refused == "" || !bytes.Equal(ack, before) {
		t.Errorf("an ACK: %+v", v)
	}
}

// TestHeldBack: Next returns delayed, duplicated and reordered packets when they are due, with
// their tags, and NextTimeout returns that time.
func TestHeldBack(t *testing.T) {
	const ms = mono.Time(time.Millisecond)
	e := network(t, "delay,psn=1,time=5ms", "dup,psn=2,copies=2", "reorder,psn=3,by=2,time=9ms", "delay,psn=6,time=1ms,jitter=1ms")
	var out []uint64
	drain := func(now mono.Time) {
		for r, ok := e.Next(now, fault.Tx); ok; r, ok = e.Next(now, fault.Tx) {
			if p := parsed(t, r.Data); int(p.PSN()) != int(r.Tag) || !p.CheckICRC() {
				t.Errorf("PSN %v has tag %d", p.PSN(), r.Tag)
			}
			out = append(out, r.Tag)
		}
	}
	send := func(now mono.Time, psns ...int) {
		for _, psn := range psns {
			b := made(t, false, write(psn, "some"))
			if e.Handle(now, fault.Tx, b, uint64(psn)).Pass {
				out = append(out, uint64(psn))
			}
			clear(b) // the caller's again
			drain(now)
		}
	}
	send(0, 1, 2, 3, 4)
	if due := e.NextTimeout(); due != 5*ms {
		t.Errorf("next at %v, want 5 ms", due)
	}
	send(ms, 5)
	drain(5*ms - 1)
	drain(5 * ms)
	send(6*ms, 6)
	if due := e.NextTimeout(); due < 7*ms || due > 8*ms {
		t.Errorf("next at %v, want 7 to 8 ms", due)
	}
	drain(8 * ms)
	if want := []uint64{2, 2, 2, 4, 5, 3, 1, 6}; !slices.Equal(out, want) {
		t.Errorf("came out as %v, want %v", out, want)
	}
	if tx, rx := e.Counters(); tx.Delayed != 2 || tx.Duplicated != 2 || tx.Reordered != 1 || tx.Held != 0 || rx != (fault.Counters{}) {
		t.Errorf("counters %+v, %+v", tx, rx)
	}
	if e.NextTimeout() != mono.Never {
		t.Error("something is due for ever")
	}
}

// TestOtherFrames pass unchanged, and count.
func TestOtherFrames(t *testing.T) {
	e := network(t, "drop")
	good := made(t, false, write(1, "some"))
	arp := append(bytes.Clone(good[:12]), 8, 6, 0, 1)
	dns := bytes.Clone(good)
	dns[14+20+2], dns[14+20+3] = 0, 53
	short := good[:20]
	for _, b := range [][]byte{arp, dns, short, {}, good[:13]} {
		before := bytes.Clone(b)
		if v := e.Handle(0, fault.Tx, b, 0); !v.Pass || v.Faults != 0 || !bytes.Equal(b, before) {
			t.Errorf("% x: %+v", b, v)
		}
	}
	tagged := slices.Concat(good[:12], []byte{0x88, 0xA8, 0, 5, 0x81, 0, 0, 6}, good[12:])
	if v := e.Handle(0, fault.Tx, tagged, 0); v.Pass {
		t.Errorf("a RoCE packet with two VLAN tags: %+v", v)
	}
}

// TestNoRoom: a packet that cannot be held back passes, and the verdict says why.
func TestNoRoom(t *testing.T) {
	r, err := fault.ParseRule("delay")
	if err != nil {
		t.Fatal(err)
	}
	e, err := fault.NewEngine(fault.Config{Hold: 1, Rules: []fault.Rule{r}}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []bool{false, true} {
		if v := e.Handle(0, fault.Tx, made(t, false, write(i, "some")), 0); v.Pass != want || (v.Refused != "") != want {
			t.Errorf("packet %d: %+v", i, v)
		}
	}
}

// TestRuleText: String returns the flag form that ParseRule got, and ParseRule refuses invalid rules.
func TestRuleText(t *testing.T) {
	for _, text := range []string{
		"rewrite,tx,rel=4,src=10.0.0.1,dst=fd00::2,conn=1,iter=1,nth=2,every=3,count=4,after=1s,until=2s,p=0.5,icrc=wrong,set.psn=0x5",
		"delay,time=2ms,jitter=1ms", "dup,copies=3", "reorder,time=1ms,by=5", "corrupt,bits=2,icrc=right", "drop,op=RC_SEND_FIRST|RC_SEND_ONLY",
	} {
		r, err := fault.ParseRule(text)
		if err != nil {
			t.Error(err)
		} else if got := r.String(); got != text {
			t.Errorf("%s prints as %s", text, got)
		}
	}
	for text, says := range map[string]string{
		"drop,rel=x":                 "not a number",
		"drop,time=1ms":              "drop has no time",
		"delay,set.psn=5":            "delay has no set.psn",
		"rewrite":                    "rewrite sets no field",
		"rewrite,set.psm=5":          "there is no field",
		"rewrite,set.psn=1000000000": "24 bits",
		"rewrite,set.psn=five":       "not a number",
		"drop,after=2s,until=1s":     "ends before it begins",
		"drop,p=2":                   "between 0 and 1",
		"drop,every=0":               "1 or more",
		"drop,op=[":                  "no pattern",
		"drop,op=WRIET_*":            "unknown opcode",
		"corrupt,bits=33":            "more than 32",
		"corrupt,icrc=maybe":         "neither right nor wrong",
		"drop,src=nobody":            "not an IP address",
		"drop,after=soon":            "not a time",
		"drop,colour=red":            "is not",
	} {
		if _, err := fault.ParseRule(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", text, err, says)
		}
	}
}

func BenchmarkHandle(b *testing.B) {
	for name, rules := range map[string][]string{"no rule": nil, "one rule": {"drop,conn=9,rel=4,iter=1"}} {
		b.Run(name, func(b *testing.B) {
			e := network(b, rules...)
			packet := made(b, false, write(1, strings.Repeat("x", 1024)))
			b.ReportAllocs()
			for b.Loop() {
				e.Handle(0, fault.Tx, packet, 0)
			}
		})
	}
}

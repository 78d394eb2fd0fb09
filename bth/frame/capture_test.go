package frame_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// content is the expected content of a capture. Most captures have good packets only.
type content struct {
	good   int           // packets that parse, have the right ICRC and encode to the same bytes
	wrong  map[int]error // expected errors of bad frames, by index; a program has injected them
	quirks int           // FLUSH packets whose ICRC is right only with the quirk of rxe
	odd    int           // good packets with reserved bits set or a pad that is not zero
}

var be = binary.BigEndian

var errICRC = errors.New("wrong ICRC")

var contents = map[string]content{
	"atomic_cs.pcap":    {good: 40},
	"atomic_fa.pcap":    {good: 40},
	"cmtime.pcap":       {good: 100},
	"dup_read.pcap":     {good: 570},
	"loss_atomic.pcap":  {good: 517},
	"loss_rping.pcap":   {good: 415},
	"mckey.pcap":        {good: 5},
	"rc_pingpong.pcap":  {good: 240},
	"rdma_client.pcap":  {good: 10},
	"read_bw.pcap":      {good: 100},
	"riostream.pcap":    {good: 150},
	"rping.pcap":        {good: 85},
	"rping6.pcap":       {good: 41},
	"rstream.pcap":      {good: 292},
	"send_bw.pcap":      {good: 100},
	"send_bw_ud.pcap":   {good: 20},
	"srq_pingpong.pcap": {good: 132},
	"uc_pingpong.pcap":  {good: 55},
	"ucmatose.pcap":     {good: 70},
	"ud_pingpong.pcap":  {good: 8},
	"udaddy.pcap":       {good: 24},
	"write_bw.pcap":     {good: 100},

	// In this capture a program with a raw socket tested which packets rxe accepts. One of the odd
	// packets has 0xFF in byte 4 of the BTH, the other a pad that is not zero; rxe accepted both.
	"rxe612_run1.pcap": {good: 477, odd: 2, wrong: map[int]error{
		1589: bth.ErrVersion,
		1594: frame.ErrUDPChecksum,
		1595: errICRC,
		1740: bth.ErrOpcode,
	}},
	"rxe612_run2_v6_rsocket_cmR.pcap": {good: 507},
	"rxe612_run3_flush.pcap":          {good: 10, quirks: 1},
}

func TestCaptures(t *testing.T) {
	seen := 0
	captures(t, func(t *testing.T, name string, frames [][]byte) {
		want, ok := contents[name]
		if !ok {
			t.Fatal("capture without expected content: add it to the table")
		}
		seen++
		got := content{}
		for i, b := range frames {
			var p frame.Packet
			err := p.Parse(b, frame.LayoutEthernet)
			if err == frame.ErrNotRoCE {
				continue
			}
			if err == nil && !p.CheckICRC() {
				err = errICRC
				if p.CheckICRCFlushQuirk() {
					got.quirks++
					err = nil
				}
			} else if err == nil {
				got.good++
				if !reencode(t, b, &p) {
					got.odd++
				}
				checkUnseen(t, &p)
			}
			if err != want.wrong[i] {
				t.Errorf("frame %d: %v, want %v", i, err, want.wrong[i])
			}
		}
		if got.good == 0 {
			t.Error("no good packet")
		}
		if got.good != want.good || got.quirks != want.quirks || got.odd != want.odd {
			t.Errorf("got %d good, %d with the FLUSH quirk, %d odd; want %d, %d, %d",
				got.good, got.quirks, got.odd, want.good, want.quirks, want.odd)
		}
	})
	if seen != len(contents) && !t.Failed() {
		t.Errorf("%d captures read, %d expected", seen, len(contents))
	}
}

// pathOf is the path a packet came on.
func pathOf(t testing.TB, p *frame.Packet) *frame.Path {
	t.Helper()
	c := frame.PathConfig{
		Src: p.Src, Dst: p.Dst, SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN,
		SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
	}
	if !p.Src.Is4() {
		c.FlowLabel = be.Uint32(p.IP) & 0xFFFFF
	}
	path, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// encode builds the frame of f on a path.
func encode(path *frame.Path, l frame.Layout, id uint16, f *bth.Fields) []byte {
	packet := f.Append(nil)
	n := len(packet) + bth.ICRCLen
	b := make([]byte, path.HeaderLen(l)+n)
	body, crc := path.Put(b, l, n, id)
	end := copy(body, packet)
	bth.PutICRC(body[end:], crc.UpdateBTH(packet).Update(packet[bth.BTHLen:]))
	return b
}

// reencode decodes a packet and encodes it again. It reports whether the result is equal to the
// frame b.
func reencode(t *testing.T, b []byte, p *frame.Packet) bool {
	t.Helper()
	id := uint16(0)
	if p.Src.Is4() {
		id = be.Uint16(p.IP[4:])
	}
	f := bth.Decode(&p.Packet)
	again := encode(pathOf(t, p), frame.LayoutEthernet, id, &f)
	same := len(b) >= len(again) && bytes.Equal(again, b[:len(again)])
	if same {
		return true
	}

	var q frame.Packet
	if err := q.Parse(again, frame.LayoutEthernet); err != nil || !q.CheckICRC() {
		t.Errorf("re-encoded packet: %v", err)
		return false
	}
	if diff := cmp.Diff(f, bth.Decode(&q.Packet)); diff != "" {
		t.Errorf("%v\n%s", &f, diff)
	}
	return false
}

// checkUnseen checks the ICRC of a packet without its headers, as a driver on a UDP socket does.
func checkUnseen(t *testing.T, p *frame.Packet) {
	t.Helper()
	q := frame.Packet{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort}
	if err := q.Parse(p.Data, frame.LayoutUDP); err != nil {
		t.Fatal(err)
	}
	if !q.CheckICRC() {
		t.Errorf("%v: ICRC wrong without the IP header", q.Op)
	}
	if p.Src.Is4() {
		id, ok := q.RecoverIPv4ID()
		if want := be.Uint16(p.IP[4:]); !ok || id != want {
			t.Errorf("recovered IPv4 id %#x %v, want %#x", id, ok, want)
		}
	}
	if n := q.PayloadLen(); n > 0 {
		data := bytes.Clone(p.Data)
		data[len(data)-bth.ICRCLen-n/2-1] ^= 0x10
		if err := q.Parse(data, frame.LayoutUDP); err == nil && q.CheckICRC() {
			t.Errorf("%v: a packet with a flipped bit was accepted", q.Op)
		}
	}
}

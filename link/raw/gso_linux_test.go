package raw

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
)

func TestSegment(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			const size, last, count = 100, 36, 5
			super := packet(t, v6, vlan, (count-1)*size+last)
			e, ok := gso.Look(super)
			if !ok {
				t.Fatal("look does not know the frame")
			}
			var body []byte
			for i := range count {
				want := size
				if i == count-1 {
					want = last
				}
				dst := make([]byte, e.Body+want)
				gso.Segment(dst, super, e, size, i)
				single := packet(t, v6, vlan, want) // as a sender makes it
				if !v6 {
					single[e.IP+5] += byte(i)
					gso.SetLengths(single, e, want)
				}
				if !bytes.Equal(dst[:e.Body], single[:e.Body]) {
					t.Errorf("headers of segment %d\n% x, want\n% x", i, dst[:e.Body], single[:e.Body])
				}
				body = append(body, dst[e.Body:]...)
			}
			if !bytes.Equal(body, super[e.Body:]) {
				t.Errorf("the segments together are not the payload")
			}
		}
	}
}

// TestDescribe: the envelope has the fields that Parse finds, and describe refuses the headers
// that Parse refuses.
func TestDescribe(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			b := packet(t, v6, vlan, 300)
			e, _ := gso.Look(b)
			if v6 {
				b[e.IP+1], b[e.IP+2], b[e.IP+3] = 0x21, 2, 3 // traffic class, flow label
			} else {
				b[e.IP+1] = 2
				gso.SetLengths(b, e, 300)
			}
			var want, got frame.Packet
			var env frame.Envelope
			want.Parse(b, frame.LayoutEthernet)
			_, body := describe(&env, b)
			got.ParseBody(body, &env, 0)
			if !bytes.Equal(body, b[e.Body:]) {
				t.Errorf("payload of %d bytes, want %d", len(body), len(b)-e.Body)
			}
			if got.Src != want.Src || got.Dst != want.Dst || got.SrcPort != want.SrcPort || got.TrafficClass != want.TrafficClass ||
				got.HopLimit != want.HopLimit || got.SrcMAC != want.SrcMAC || got.DstMAC != want.DstMAC || got.VLAN != vlan {
				t.Errorf("packet %+v\nof envelope %+v\nwant %+v", got, env, want)
			}
			if v6 && env.FlowLabel != 0x10203 || !v6 && env.ID != 0x1234 || !env.IDSeen {
				t.Errorf("envelope %+v", env)
			}
			for what, change := range map[string]func(b []byte){
				"UDP length":                 func(b []byte) { b[e.UDP+4] = 9 },
				"no payload":                 func(b []byte) { b[e.UDP+4], b[e.UDP+5] = 0, 8 },
				"no header":                  func(b []byte) { b[e.UDP+4], b[e.UDP+5] = 0, 7 },
				"IP length":                  func(b []byte) { setIPLength(b, e, 40) },
				"IP length beyond the frame": func(b []byte) { setIPLength(b, e, 20000) },
				"mapped or sum": func(b []byte) {
					if v6 {
						copy(b[e.IP+8:], []byte{10: 0xFF, 11: 0xFF, 15: 1})
					} else {
						b[e.IP+10]++
					}
				},
			} {
				bad := bytes.Clone(b)
				change(bad)
				if _, body := describe(&env, bad); body != nil {
					t.Errorf("v6=%v: accepted with a bad %s", v6, what)
				}
			}
		}
	}
}

// TestFlow: a flow that was learnt gives the same envelope and payload as describe, or none. It knows a super-packet with other
// lengths, another Identification and another UDP checksum.
func TestFlow(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		for _, vlan := range []uint16{0, 7} {
			b := packet(t, v6, vlan, 300)
			e, _ := gso.Look(b)
			var flow frame.SuperFlow
			same := func(what string, b []byte) (known bool) {
				var got, want frame.Envelope
				header, body := flow.Match(&got, b)
				if body == nil {
					return false
				}
				if n, payload := describe(&want, b); header != n || !bytes.Equal(body, payload) || got != want {
					t.Errorf("v6=%v, vlan %d, %s: %d bytes of headers, %d of payload, %+v,\nwant %d, %d, %+v", v6, vlan, what, header, len(body), got, n, len(payload), want)
				}
				return true
			}
			if same("nothing learnt", b) {
				t.Error("a flow without headers knows a super-packet")
			}
			var env frame.Envelope
			header, body := describe(&env, b)
			if body == nil {
				t.Fatal("describe refuses the super-packet")
			}
			if flow.Learn(&env, header+vlanTag, b); same("learnt with other headers", b) {
				t.Error("a flow whose headers are not those of the form is known")
			}
			flow.Learn(&env, header, b)
			other := bytes.Clone(b)
			other[e.UDP+6], other[e.UDP+7] = 0x12, 0x34
			if !v6 {
				other[e.IP+5]++
			}
			gso.SetLengths(other, e, 200)
			empty := bytes.Clone(b)
			gso.SetLengths(empty, e, 0)
			if same("no payload", empty) {
				t.Errorf("v6=%v, vlan %d: a super-packet without payload is known", v6, vlan)
			}
			for what, b := range map[string][]byte{"the same": b, "other lengths": other} {
				if !same(what, b) {
					t.Errorf("v6=%v, vlan %d: %s: not known", v6, vlan, what)
				}
			}
			for i := range e.Body {
				for bit := range 8 {
					bad := bytes.Clone(b)
					bad[i] ^= 1 << bit
					same(fmt.Sprintf("byte %d changed to %#x", i, bad[i]), bad)
				}
			}
			for n := range len(b) {
				same(fmt.Sprintf("%d bytes", n), b[:n])
			}
		}
	}
}

// setIPLength sets the length in the IP header alone.
func setIPLength(b []byte, e gso.Headers, n uint16) {
	at := e.IP + 2
	if e.V6 {
		at = e.IP + 4
	}
	binary.BigEndian.PutUint16(b[at:], n)
	if !e.V6 {
		b[e.IP+10], b[e.IP+11] = 0, 0
		binary.BigEndian.PutUint16(b[e.IP+10:], ^frame.Fold16(frame.Sum16(b[e.IP:e.UDP])))
	}
}

func TestClearChecksum(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		b := packet(t, v6, 3, 20)
		e, _ := gso.Look(b)
		want := append([]byte(nil), b...)
		b[e.UDP+6], b[e.UDP+7] = 0x12, 0x34
		gso.ClearChecksum(b)
		if !bytes.Equal(b, want) {
			t.Errorf("v6=%v: after clearChecksum\n% x, want\n% x", v6, b, want)
		}
		var p frame.Packet
		p.Parse(b, frame.LayoutEthernet)
		if p.UDPChecksum != 0 {
			t.Errorf("checksum %#x", p.UDPChecksum)
		}
	}
	gso.ClearChecksum(nil)
	gso.ClearChecksum(make([]byte, 60))
}

// FuzzLook: describe works safely on any received frame.
func FuzzLook(f *testing.F) {
	for _, v6 := range []bool{false, true} {
		f.Add(packet(f, v6, 0, 100), 24)
		f.Add(packet(f, v6, 9, 30), 7)
	}
	f.Fuzz(func(t *testing.T, b []byte, size int) {
		e, ok := gso.Look(b)
		if !ok {
			return
		}
		if e.IP < 14 || e.Body > len(b) {
			t.Fatalf("look: %+v in %d bytes", e, len(b))
		}
		gso.ClearChecksum(b)
		var env frame.Envelope
		_, body := describe(&env, b)
		if body == nil {
			return
		}
		// Parse accepts every super-packet that can be divided.
		var p frame.Packet
		if err, bad := p.Parse(b, frame.LayoutEthernet).(frame.ParseError); bad && b[12] != unix.ETH_P_8021AD>>8 {
			t.Fatalf("% x: %v", b, err)
		}
		if len(body) > len(b)-e.Body || size <= 0 {
			return
		}
		for i := 0; i*size < len(body); i++ {
			gso.Segment(make([]byte, e.Body+size), b[:e.Body+len(body)], e, size, i)
		}
	})
}

package frame_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// recognise calls Match for a frame and, if Match knows its flow, compares the result of ParseBody
// with the result of Parse. It reports whether Match knew the flow.
func recognise(t *testing.T, flows *frame.Flows, b []byte, l frame.Layout) bool {
	t.Helper()
	env, i, body := flows.Match(b, l)
	if (env == nil) != (body == nil) {
		t.Fatalf("envelope %v, body %x", env, body)
	}
	if env == nil {
		return false
	}
	var got, want frame.Packet
	gotErr, wantErr := got.ParseBody(body, env, i), want.Parse(b, l)
	if gotErr != wantErr {
		t.Fatalf("%x: %v, want %v", b, gotErr, wantErr)
	}
	if wantErr != nil {
		return true
	}
	if got.CheckICRC() != want.CheckICRC() {
		t.Fatalf("%x: ICRC right: %v, want %v", b, got.CheckICRC(), want.CheckICRC())
	}
	var gotGRH, wantGRH [frame.GRHLen]byte
	got.PutGRH(&gotGRH)
	want.PutGRH(&wantGRH)
	if gotGRH != wantGRH {
		t.Fatalf("%x: GRH % x, want % x", b, gotGRH, wantGRH)
	}
	type headers struct {
		Src, Dst                bth.GID
		SrcMAC, DstMAC          frame.MAC
		SrcPort, VLAN, Checksum uint16
		TrafficClass, HopLimit  uint8
	}
	of := func(p *frame.Packet) headers {
		return headers{p.Src, p.Dst, p.SrcMAC, p.DstMAC, p.SrcPort, p.VLAN, p.UDPChecksum, p.TrafficClass, p.HopLimit}
	}
	if of(&got) != of(&want) || !bytes.Equal(got.Data, want.Data) {
		t.Fatalf("%x:\n%+v, want\n%+v", b, got, want)
	}
	return true
}

// TestFlows: Match knows the frames of a flow after its second frame, with any length
// and identification. For a damaged frame Match agrees with Parse, or does not know the flow.
func TestFlows(t *testing.T) {
	tagged, tagged6 := config4(t), config6(t)
	tagged.VLAN, tagged.Priority, tagged6.VLAN = 100, 3, 4000
	for name, c := range map[string]frame.PathConfig{"IPv4": config4(t), "IPv6": config6(t), "tagged IPv4": tagged, "tagged IPv6": tagged6} {
		for _, l := range []frame.Layout{frame.LayoutEthernet, frame.LayoutIP} {
			t.Run(fmt.Sprint(name, " ", l), func(t *testing.T) {
				var (
					path  = newPath(t, c)
					flows frame.Flows
					r     = rand.New(rand.NewPCG(1, 2))
					known int
				)
				next := func() []byte {
					f := bth.Fields{BTH: bth.BTHFields{Op: bth.RCSendOnly, PSN: bth.PSN(r.Uint32N(1 << 24))}, Payload: make([]byte, 4*r.IntN(30))}
					return append(encode(path, l, uint16(r.Uint32()), &f), make([]byte, r.IntN(20))...) // with some trailer
				}
				for i := range 100 {
					if got := recognise(t, &flows, next(), l); got != (i > 0) {
						t.Fatalf("frame %d recognised: %v", i, got)
					}
				}
				for range 20_000 {
					flows.NextBatch()
					b := next()
					switch at := r.IntN(path.HeaderLen(l) + 14); r.IntN(4) {
					case 0:
						b = b[:r.IntN(len(b))]
					case 1:
						b[at%len(b)] = byte(r.Uint32())
					case 2:
						b[at%len(b)] ^= 1 << r.IntN(8)
					}
					if recognise(t, &flows, b, l) {
						known++
					}
				}
				if known < 4000 {
					t.Errorf("%d frames recognised", known)
				}
			})
		}
	}
}

// TestFlowsMany: a returned envelope does not change during the batch, and two flows with one
// slot whose frames alternate do not replace each other.
func TestFlowsMany(t *testing.T) {
	var paths []*frame.Path
	for i := range 65 { // the first and the last have the same slot
		c := config4(t)
		c.SrcPort = 0xC000 + uint16(i)
		paths = append(paths, newPath(t, c))
	}
	packet := func(i int) []byte {
		return encode(paths[i], frame.LayoutEthernet, 7, &bth.Fields{BTH: bth.BTHFields{Op: bth.RCSendOnly}})
	}
	var flows frame.Flows
	for i := range 64 {
		if recognise(t, &flows, packet(i), frame.LayoutEthernet) || !recognise(t, &flows, packet(i), frame.LayoutEthernet) {
			t.Fatalf("flow %d is not learned from two frames", i)
		}
	}
	env, i, body := flows.Match(packet(0), frame.LayoutEthernet)
	before := *env
	for range 3 {
		if recognise(t, &flows, packet(64), frame.LayoutEthernet) {
			t.Fatal("a flow takes a slot that is in use in this batch")
		}
	}
	var p frame.Packet
	if *env != before || p.ParseBody(body, env, i) != nil || !p.CheckICRC() {
		t.Fatal("the envelope has changed")
	}
	flows.NextBatch()
	if !recognise(t, &flows, packet(64), frame.LayoutEthernet) || recognise(t, &flows, packet(0), frame.LayoutEthernet) {
		t.Error("in the next batch the slot of flow 0 is not taken")
	}
	flows = frame.Flows{}
	for i := range 300 {
		if recognise(t, &flows, packet(i%3), frame.LayoutEthernet) {
			t.Fatal("a flow is learned although its frames do not come in a row")
		}
	}
}

// TestFlowsLeft: Match does not learn flows that an envelope cannot describe.
func TestFlowsLeft(t *testing.T) {
	for name, change := range map[string]func(b []byte){
		"UDP checksum":       func(b []byte) { b[40], b[41] = 1, 2 },
		"may be fragmented":  func(b []byte) { b[20] = 0; b[24] += 0x40 },
		"not UDP":            func(b []byte) { b[23] = 6; b[25] += 11 },
		"another port":       func(b []byte) { b[37]++ },
		"wrong sum":          func(b []byte) { b[25]++ },
		"longer than the IP": func(b []byte) { b[39] += 2 },
	} {
		b := ack(t, config4(t))
		change(b)
		var flows frame.Flows
		for range 3 {
			if recognise(t, &flows, b, frame.LayoutEthernet) {
				t.Errorf("%s: recognised", name)
			}
		}
		if recognise(t, &flows, b, frame.LayoutUDP) {
			t.Errorf("%s: recognised without headers", name)
		}
	}
}

func TestFlowsAllocate(t *testing.T) {
	b := ack(t, config4(t))
	var flows frame.Flows
	if n := testing.AllocsPerRun(100, func() {
		flows.NextBatch()
		flows.Match(b, frame.LayoutEthernet)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// FuzzFlows: Match agrees with Parse about a frame, after any two other frames.
func FuzzFlows(f *testing.F) {
	for _, c := range []frame.PathConfig{config4(f), config6(f)} {
		b := ack(f, c)
		f.Add(b, b, byte(0))
		f.Add(b, bytes.Clone(b[:len(b)-1]), byte(0))
		f.Add(b[14:], b[14:], byte(1))
	}
	f.Fuzz(func(t *testing.T, a, b []byte, layout byte) {
		l := frame.Layout(layout % 3)
		var flows frame.Flows
		for _, b := range [][]byte{a, a, a, b, b} {
			recognise(t, &flows, b, l)
		}
	})
}

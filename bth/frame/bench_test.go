package frame_test

import (
	"fmt"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

var (
	crcSink  bth.CRC
	bodySink []byte
	okSink   bool
)

func benchPaths(b *testing.B, f func(b *testing.B, p *frame.Path)) {
	b.Run("IPv4", func(b *testing.B) { f(b, newPath(b, config4(b))) })
	b.Run("IPv6", func(b *testing.B) { f(b, newPath(b, config6(b))) })
	b.Run("IPv4 with a Hop", func(b *testing.B) {
		c := config4(b)
		c.Hop = frame.NewHop(nil, macA, macB)
		f(b, newPath(b, c))
	})
}

func BenchmarkPut(b *testing.B) {
	benchPaths(b, func(b *testing.B, p *frame.Path) {
		buf := make([]byte, 128)
		b.ReportAllocs()
		for i := range b.N {
			bodySink, crcSink = p.Put(buf, frame.LayoutEthernet, 28, uint16(i))
		}
	})
}

// BenchmarkSend makes a whole SEND packet: envelope, BTH, payload copied and
// summed, ICRC.
func BenchmarkSend(b *testing.B) {
	benchPaths(b, func(b *testing.B, p *frame.Path) {
		for _, n := range []int{64, 1024, 4096} {
			b.Run(fmt.Sprint(n), func(b *testing.B) {
				size := bth.BTHLen + n + bth.ICRCLen
				buf, payload := make([]byte, p.HeaderLen(frame.LayoutEthernet)+size), make([]byte, n)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for i := range b.N {
					body, crc := p.Put(buf, frame.LayoutEthernet, size, uint16(i))
					h := bth.PutBTH(body, bth.RCSendOnly, bth.AckReq, 0, bth.DefaultPKey, 0x11, bth.PSN(i))
					bth.PutICRC(body[h+n:], crc.UpdateBTH(body).Copy(body[h:], payload))
				}
			})
		}
	})
}

// BenchmarkReceive parses the frames that BenchmarkSend makes, and checks their ICRC.
func BenchmarkReceive(b *testing.B) {
	benchPaths(b, func(b *testing.B, path *frame.Path) {
		for _, n := range []int{64, 1024, 4096} {
			f := bth.Fields{BTH: bth.BTHFields{Op: bth.RCSendOnly}, Payload: make([]byte, n)}
			data := encode(path, frame.LayoutEthernet, 1, &f)
			var p frame.Packet
			b.Run(fmt.Sprintf("Parse/%d", n), func(b *testing.B) {
				b.ReportAllocs()
				for range b.N {
					okSink = p.Parse(data, frame.LayoutEthernet) == nil
				}
			})
			b.Run(fmt.Sprintf("Parse+CheckICRC/%d", n), func(b *testing.B) {
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for range b.N {
					okSink = p.Parse(data, frame.LayoutEthernet) == nil && p.CheckICRC()
				}
			})
			b.Run(fmt.Sprintf("Match+CheckFour/%d", n), func(b *testing.B) {
				var (
					flows  frame.Flows
					bodies [4][]byte
					at     [4]uint16
					env    *frame.Envelope
				)
				b.ReportAllocs()
				b.SetBytes(int64(n))
				for i := range b.N {
					if env, at[i%4], bodies[i%4] = flows.Match(data, frame.LayoutEthernet); i%4 < 3 || env == nil {
						continue
					}
					okSink = true
					for i := range bodies {
						if i == 0 {
							okSink = okSink && p.ParseBody(bodies[i], env, at[i]) == nil
						} else {
							okSink = okSink && p.Next(bodies[i], env, at[i])
						}
					}
					okSink = okSink && env.CheckFour(&bodies, &at)
				}
			})
			b.Run(fmt.Sprintf("unseen IP/%d", n), func(b *testing.B) {
				u := frame.Packet{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort}
				b.SetBytes(int64(n))
				for range b.N {
					okSink = u.Parse(p.Data, frame.LayoutUDP) == nil && u.CheckICRC()
				}
			})
		}
	})
}

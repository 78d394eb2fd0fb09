package bth

import (
	"fmt"
	"testing"
)

var (
	crcSink  CRC
	failSink error
)

func BenchmarkUpdateBTH(b *testing.B) {
	h := make([]byte, BTHLen)
	b.ReportAllocs()
	for range b.N {
		crcSink = CRCSeed.UpdateBTH(h)
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{4, 16, 20, 36, 64, 65, 256, 1024, 1034, 4096} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := make([]byte, n)
			b.SetBytes(int64(n))
			for range b.N {
				crcSink = CRCSeed.Update(p)
			}
		})
	}
}

// BenchmarkNoInstruction measures the CRC without an instruction for it: with tables, and without
// tables.
func BenchmarkNoInstruction(b *testing.B) {
	for _, n := range []int{64, 80, 128, 256, 1024, 4096} {
		p := make([]byte, n)
		for _, how := range []struct {
			name string
			feed func([]byte) CRC
		}{{"tables", CRCSeed.UpdateShort}, {"sparse", CRCSeed.sparse}} {
			b.Run(fmt.Sprintf("%s/%d", how.name, n), func(b *testing.B) {
				b.SetBytes(int64(n))
				for range b.N {
					crcSink = how.feed(p)
				}
			})
		}
	}
}

// BenchmarkBodies computes the CRC of four packets, one after the other and all at once.
func BenchmarkBodies(b *testing.B) {
	for _, n := range []int{28, 80, 92, 272, 528, 1040, 4112} {
		var p [4][]byte
		for i := range p {
			p[i] = make([]byte, n)
		}
		b.Run(fmt.Sprintf("UpdateBody/%d", n), func(b *testing.B) {
			b.SetBytes(4 * int64(n))
			for range b.N {
				for i := range p {
					crcSink = CRCSeed.UpdateBody(p[i])
				}
			}
		})
		b.Run(fmt.Sprintf("UpdateBodies/%d", n), func(b *testing.B) {
			b.SetBytes(4 * int64(n))
			for range b.N {
				c := [4]CRC{CRCSeed, CRCSeed, CRCSeed, CRCSeed}
				UpdateBodies(&c, &p, n)
				crcSink = c[3]
			}
		})
	}
}

func BenchmarkCopy(b *testing.B) {
	for _, n := range []int{64, 1024, 4096} {
		dst, src := make([]byte, n), make([]byte, n)
		b.Run(fmt.Sprintf("Copy/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for range b.N {
				crcSink = CRCSeed.Copy(dst, src)
			}
		})
		b.Run(fmt.Sprintf("copy+Update/%d", n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for range b.N {
				copy(dst, src)
				crcSink = CRCSeed.Update(dst)
			}
		})
	}
}

func BenchmarkParse(b *testing.B) {
	for _, op := range []Opcode{RCAck, RCSendMiddle, RCWriteOnlyImm} {
		data := make([]byte, int(op.Info().HeaderLen)+1024+ICRCLen)
		data[0] = byte(op)
		b.Run(op.String(), func(b *testing.B) {
			b.ReportAllocs()
			var p Packet
			for range b.N {
				failSink = p.Parse(data)
			}
		})
	}
}

// BenchmarkEncode writes BTH, payload and ICRC behind an envelope whose CRC is
// known.
func BenchmarkEncode(b *testing.B) {
	for _, n := range []int{64, 1024} {
		payload, body := make([]byte, n), make([]byte, BTHLen+n+ICRCLen)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(n))
			for i := range b.N {
				h := PutBTH(body, RCSendOnly, AckReq, 0, DefaultPKey, 0x11, PSN(i))
				c := CRCSeed.UpdateBTH(body).Copy(body[h:], payload)
				PutICRC(body[h+n:], c)
			}
		})
	}
}

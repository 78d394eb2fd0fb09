package bth

import (
	"bytes"
	"hash/crc32"
	"math/rand/v2"
	"testing"
)

// bitwise computes the CRC by its definition, bit by bit.
func bitwise(c CRC, b []byte) CRC {
	for _, v := range b {
		c ^= CRC(v)
		for range 8 {
			c = c>>1 ^ 0xEDB88320&-(c&1)
		}
	}
	return c
}

func random(n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(n)})
	b := make([]byte, n)
	r.Read(b)
	return b
}

func TestCRC(t *testing.T) {
	for n := range 300 {
		b := random(n)
		want := bitwise(CRCSeed, b)
		if got := CRCSeed.Update(b); got != want {
			t.Fatalf("Update of %d bytes: %#x, want %#x", n, got, want)
		}
		if got := CRCSeed.UpdateShort(b); got != want {
			t.Fatalf("UpdateShort of %d bytes: %#x, want %#x", n, got, want)
		}
		cut := n * 3 / 7
		if got := CRCSeed.Update(b[:cut]).Update(b[cut:]); got != want {
			t.Fatalf("%d bytes in two pieces: %#x, want %#x", n, got, want)
		}
		if got := CRC(0xFFFFFFFF).Update(b).Sum(); got != crc32.ChecksumIEEE(b) {
			t.Fatalf("%d bytes: %#x is not what hash/crc32 has", n, got)
		}
	}
}

// TestSparse: the CRC is linear, so if sparse is right for the string of zeros and for each string
// with a single one, it is right for all strings of that length.
func TestSparse(t *testing.T) {
	for _, n := range []int{sparseBytes, 2*sparseBytes - 1, 2 * sparseBytes, 2*sparseBytes + 1, 3*sparseBytes - 1, 4*sparseBytes + 13} {
		b := make([]byte, n)
		for bit := range 8*n + 1 {
			if bit > 0 {
				b[(bit-1)/8] = 0
			}
			if bit < 8*n {
				b[bit/8] = 1 << (bit % 8)
			}
			if got, want := CRC(0).sparse(b), bitwise(0, b); got != want {
				t.Fatalf("bit %d of %d bytes: %#x, want %#x", bit, n, got, want)
			}
		}
	}
	defer func(v bool) { hardwareCRC = v }(hardwareCRC)
	hardwareCRC = false
	for n := clmulMax; n < clmulMax+300; n++ {
		for _, at := range []int{0, 1, 6} { // however it is aligned
			b := random(n + at)[at:]
			if got, want := CRCSeed.Update(b), bitwise(CRCSeed, b); got != want {
				t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
			}
		}
	}
}

func TestCRCCopy(t *testing.T) {
	for _, n := range []int{0, 1, 63, 64, 1024, 4096, copyChunk - 1, copyChunk, copyChunk + 1, 3*copyChunk + 5} {
		src, dst := random(n), make([]byte, n+1)
		if got := CRCSeed.Copy(dst, src); got != CRCSeed.Update(src) {
			t.Errorf("%d bytes: CRC %#x", n, got)
		}
		if !bytes.Equal(dst[:n], src) || dst[n] != 0 {
			t.Errorf("%d bytes: not copied", n)
		}
	}
}

func TestUpdateBTH(t *testing.T) {
	for i := range 256 {
		b := random(BTHLen + 3)
		b[4] = byte(i)
		m := bytes.Clone(b[:BTHLen])
		m[4] = 0xFF
		if got, want := CRCSeed.UpdateBTH(b), bitwise(CRCSeed, m); got != want {
			t.Fatalf("byte 4 %#x: %#x, want %#x", i, got, want)
		}
	}
}

func TestPutICRC(t *testing.T) {
	b := append(bytes.Repeat([]byte{0xFF}, 8), random(50)...)
	var wire [4]byte
	PutICRC(wire[:], CRCSeed.Update(b[8:]))
	if got := crc32.ChecksumIEEE(append(b, wire[:]...)); got != ICRCResidue {
		t.Errorf("residue %#x, want %#x", got, ICRCResidue)
	}
	if b := random(40); CRCSeed.UpdateFlushQuirk(b) != CRCSeed.Update(b[:32]) {
		t.Error("the quirk feeds 32 bytes")
	}
}

func TestUpdateBody(t *testing.T) {
	for n := BTHLen; n < 600; n++ {
		for _, at := range []int{0, 1, 6} { // however it is aligned
			b := random(n + at)[at:]
			masked := bytes.Clone(b)
			masked[4] = 0xFF
			if got, want := CRCSeed.UpdateBody(b), bitwise(CRCSeed, masked); got != want {
				t.Fatalf("%d bytes: %#x, want %#x", n, got, want)
			}
		}
	}
}

func TestUpdateBodies(t *testing.T) {
	var b [4][]byte
	for n := BTHLen; n < 1100; n++ {
		var c, want [4]CRC
		for i := range b {
			b[i] = random(n + i + 1)[i:]
			c[i] = CRCSeed + CRC(i)
			masked := bytes.Clone(b[i][:n])
			masked[4] = 0xFF
			want[i] = bitwise(c[i], masked)
		}
		if UpdateBodies(&c, &b, n); c != want {
			t.Fatalf("%d bytes: %#x, want %#x", n, c, want)
		}
	}
}

//go:build !purego

package bth

import (
	"math/bits"
	"testing"
)

const polynomial = 1<<32 | 0x04C11DB7

// xMod returns x^n modulo the polynomial in the form for the instruction: with the coefficients in
// reverse order, and multiplied by x.
func xMod(n int) uint64 {
	r := uint64(1)
	for range n {
		if r <<= 1; r>>32 != 0 {
			r ^= polynomial
		}
	}
	return bits.Reverse64(r) >> 31
}

// TestConstants computes the constants in clmul_amd64.s.
func TestConstants(t *testing.T) {
	quotient, rest := uint64(1), uint64(polynomial)&(1<<32-1) // long division of x^64, a digit at a time
	for range 32 {
		rest <<= 1
		quotient = quotient<<1 | rest>>32
		if rest>>32 != 0 {
			rest ^= polynomial
		}
	}
	for _, tt := range []struct {
		name      string
		got, want uint64
	}{
		{"x^160", 0x1751997d0, xMod(128 + 32)},
		{"x^96", 0x0ccaa009e, xMod(128 - 32)},
		{"x^64", 0x163cd6124, xMod(64)},
		{"the polynomial", 0x1db710641, bits.Reverse64(polynomial) >> 31},
		{"x^64 divided by it", 0x1f7011641, bits.Reverse64(quotient) >> 31},
	} {
		if tt.got != tt.want {
			t.Errorf("%s: %#x, want %#x", tt.name, tt.got, tt.want)
		}
	}
}

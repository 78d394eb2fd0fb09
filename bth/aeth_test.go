package bth

import (
	"testing"
	"time"
)

func TestSyndrome(t *testing.T) {
	for _, tt := range []struct {
		s     Syndrome
		kind  AckKind
		value uint8
		str   string
	}{
		{AckNoCredits, KindACK, 31, "ACK"},
		{0x00, KindACK, 0, "ACK credits 0"},
		{0x9F, KindACK, 31, "ACK"}, // reserved bit
		{0x04, KindACK, 4, "ACK credits 4"},
		{0x2C, KindRNR, 12, "RNR 640µs"},
		{RNR(0), KindRNR, 0, "RNR 655.36ms"},
		{0x40, KindReserved, 0, "reserved syndrome 0x40"},
		{NAKSequence, KindNAK, 0, "NAK sequence error"},
		{NAKInvalidRequest, KindNAK, 1, "NAK invalid request"},
		{NAKRemoteAccess, KindNAK, 2, "NAK remote access error"},
		{NAKRemoteOp, KindNAK, 3, "NAK remote operational error"},
		{NAKInvalidRDRequest, KindNAK, 4, "NAK invalid RD request"},
		{0x7F, KindNAK, 31, "NAK code 31"},
	} {
		if tt.s.Kind() != tt.kind || tt.s.Value() != tt.value || tt.s.String() != tt.str {
			t.Errorf("%#x: %v %d %q, want %v %d %q", uint8(tt.s), tt.s.Kind(), tt.s.Value(), tt.s, tt.kind, tt.value, tt.str)
		}
	}
	for k, s := range map[AckKind]string{KindACK: "ACK", KindRNR: "RNR", KindReserved: "RESERVED", KindNAK: "NAK", 4: "AckKind(4)"} {
		if k.String() != s {
			t.Errorf("%v, want %s", k, s)
		}
	}
}

func TestCredits(t *testing.T) {
	want := []int{0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192,
		256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768}
	for code, n := range want {
		s := Syndrome(code)
		if got, ok := s.Credits(); got != n || !ok {
			t.Errorf("code %d: %d %v, want %d", code, got, ok, n)
		}
	}
	for _, s := range []Syndrome{AckNoCredits, NAKSequence, RNR(1), 0x40} {
		if _, ok := s.Credits(); ok {
			t.Errorf("%v has credits", s)
		}
	}
}

func TestRNRTimer(t *testing.T) {
	ms := []float64{655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
		2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52}
	for code, v := range ms {
		d := time.Duration(v*1000+0.5) * time.Microsecond
		c := RNRTimer(code)
		if c.Duration() != d || RNRTimer(code|0xE0).Duration() != d {
			t.Errorf("code %d: %v, want %v", code, c, d)
		}
		if got := RNRTimerFor(d); got != c {
			t.Errorf("RNRTimerFor(%v) = %d, want %d", d, got, code)
		}
		if code > 1 {
			if got := RNRTimerFor(d - 1); got != c {
				t.Errorf("RNRTimerFor(%v) = %d, want %d", d-1, got, code)
			}
		}
	}
	for d, c := range map[time.Duration]RNRTimer{-1: 1, 0: 1, 1: 1, 491520*time.Microsecond + 1: 0, time.Hour: 0} {
		if got := RNRTimerFor(d); got != c {
			t.Errorf("RNRTimerFor(%v) = %d, want %d", d, got, c)
		}
	}
	if s := RNRTimer(25).String(); s != "61.44ms" {
		t.Error(s)
	}
}

func TestAckTimeout(t *testing.T) {
	for code, d := range map[uint8]time.Duration{
		0: 0, 1: 8192, 14: 67108864, 18: 1073741824, 31: 4096 << 31, 32: 0, 46: 67108864,
	} {
		if got := AckTimeout(code); got != d {
			t.Errorf("AckTimeout(%d) = %v, want %v", code, got, d)
		}
	}
}

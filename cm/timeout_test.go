package cm

import (
	"testing"
	"time"
)

func TestResponseTimeout(t *testing.T) {
	for code, want := range map[uint8]time.Duration{
		0: time.Millisecond, 8: time.Millisecond, 9: 2 * time.Millisecond, 16: 256 * time.Millisecond,
		17: 512 * time.Millisecond, 20: 4096 * time.Millisecond, 24: 65536 * time.Millisecond,
		31: 8388608 * time.Millisecond, 200: 8388608 * time.Millisecond,
	} {
		if got := ResponseTimeout(code); got != want {
			t.Errorf("ResponseTimeout(%d) = %v, want %v", code, got, want)
		}
	}
}

func TestAckTimeout(t *testing.T) {
	for _, tt := range []struct{ delay, life, want uint8 }{
		{15, 16, 17}, // rxe
		{16, 16, 18}, {17, 16, 18}, {18, 16, 19}, {19, 16, 19}, {20, 16, 20}, {0, 16, 17},
		{15, 0, 15}, {1, 0, 2}, {0, 0, 2}, {2, 0, 3}, {31, 31, 31}, {31, 0, 31},
	} {
		if got := AckTimeout(tt.delay, tt.life); got != tt.want {
			t.Errorf("AckTimeout(delay %d, life %d) = %d, want %d", tt.delay, tt.life, got, tt.want)
		}
	}
}

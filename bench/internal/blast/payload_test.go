//go:build linux

package blast

import (
	"bytes"
	"testing"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
)

func TestPayload(t *testing.T) {
	const size = 1000
	src, dst := newSource(size), newSink(harness.Spec{Size: size})
	b := make([]byte, size+overhead)
	for range area/size + 10 { // once round
		src.put(b)
		dst.packet(b)
	}
	for _, at := range []int{12, 500, size + 11} { // in one piece, and cut anywhere
		src.put(b)
		dst.pieces(b[:at], b[at:])
	}
	if dst.bad != 0 || dst.packets != uint64(src.seq) {
		t.Fatalf("%d of %d packets arrived, %d wrong", dst.packets, src.seq, dst.bad)
	}
	if n := area / size * size; !bytes.Equal(dst.memory[:n], src.memory[:n]) {
		t.Error("the received payload differs from the sent one")
	}
	for i := range b {
		if i == 4 {
			continue // not covered: routers change it
		}
		b[i] ^= 0x10
		dst.packet(b)
		b[i] ^= 0x10
	}
	if want := uint64(len(b) - 1); dst.bad != want {
		t.Errorf("%d of %d packets with a wrong byte were detected", dst.bad, want)
	}
	dst.bad = 0
	for n := range len(b) {
		dst.packet(b[:n])
	}
	if dst.bad != uint64(len(b)) {
		t.Errorf("%d of %d short packets were detected", dst.bad, len(b))
	}
}

// The time begins with the first packet, and the warm-up does not count.
func TestSink(t *testing.T) {
	src, dst := newSource(64), newSink(harness.Spec{Size: 64, Warmup: -time.Hour, Duration: -time.Hour})
	b := make([]byte, 64+overhead)
	src.put(b)
	batch := func(packets int) bool {
		for range packets {
			dst.packet(b)
		}
		over, err := dst.batch()
		if err != nil {
			t.Fatal(err)
		}
		return over
	}
	for _, packets := range []int{0, 0, 5, 7} { // nothing; the warm-up begins, and ends
		if batch(packets) {
			t.Fatal("over too early")
		}
	}
	if !batch(11) {
		t.Fatal("not over")
	}
	if m := dst.measure; m.Messages != 11 || m.Bytes != 11*64 || m.Seconds <= 0 {
		t.Errorf("%+v", m)
	}
	dst.packet(b[1:])
	if _, err := dst.batch(); err == nil {
		t.Error("a wrong packet was not reported")
	}
}

func TestSegments(t *testing.T) {
	for _, tt := range []struct{ n, want int }{{80, 128}, {1040, 62}, {4112, 15}, {65500, 1}, {70000, 1}} {
		if got := segments(tt.n, 28); got != tt.want {
			t.Errorf("%d segments of %d bytes, want %d", got, tt.n, tt.want)
		}
	}
}

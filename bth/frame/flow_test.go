package frame

import (
	"math/rand/v2"
	"testing"
)

// Headers of which most are like the ones before, and some differ in any byte: what the
// flow remembers must make no difference.
func TestFlow(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var ips [2][]byte
	for i, n := range []int{ipv4Len, ipv6Len} {
		ips[i] = make([]byte, n)
		for k := range ips[i] {
			ips[i][k] = byte(r.Uint32())
		}
	}
	var f flow
	sport := uint16(1)
	for i := range 200_000 {
		ip := ips[r.IntN(2)]
		switch r.IntN(4) {
		case 0:
			ip[r.IntN(len(ip))] = byte(r.Uint32())
		case 1:
			ip[2+r.IntN(4)] = byte(r.Uint32()) // lengths, identification
		case 2:
			sport = uint16(r.IntN(3))
		}
		length := uint16(r.Uint32())
		if got, want := f.register(ip, sport, length), maskedCRC(ip, sport, length); got != want {
			t.Fatalf("round %d, % x, port %d, length %d: %#x, want %#x", i, ip, sport, length, got, want)
		}
	}
}

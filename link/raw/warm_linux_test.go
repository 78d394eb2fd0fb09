package raw

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/linktest"
)

// TestWarmBegin: the sent packets are the same with and without the fast path of Begin.
func TestWarmBegin(t *testing.T) {
	for seed := range uint64(6) {
		warm, cold := script(t, seed, false), script(t, seed, true)
		if !slices.Equal(warm, cold) {
			for i := range warm {
				if i >= len(cold) || warm[i] != cold[i] {
					t.Fatalf("seed %d, line %d: %s, want %s", seed, i, warm[i], cold[min(i, len(cold)-1)])
				}
			}
			t.Fatalf("seed %d: %d lines, want %d", seed, len(warm), len(cold))
		}
	}
}

func script(t *testing.T, seed uint64, cold bool) (log []string) {
	p, _ := superPair(t)
	rng := rand.New(rand.NewPCG(seed, 9))
	refusals := rng.IntN(3)
	now := time.Unix(1e9, 0)
	p.tx.clock = func() time.Time { return now }
	add := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	p.tx.sendmmsg = func(_ int, msgs []unix.Mmsghdr) (int, unix.Errno) {
		if refusals > 0 && rng.IntN(8) == 0 && msgs[0].Hdr.Iov.Len > 1600 { // a super-packet
			e := []unix.Errno{unix.EINTR, unix.EMSGSIZE, unix.EINVAL}[rng.IntN(refusals+1)]
			add("refuse %v", e)
			return 0, e
		}
		n := 1 + rng.IntN(len(msgs))
		for i := range msgs[:n] {
			h := fnv.New64a()
			iov := msgs[i].Hdr.Iov
			h.Write(unsafe.Slice(iov.Base, int(iov.Len)))
			add("message of %d bytes %x", iov.Len, h.Sum64())
		}
		return n, 0
	}
	var paths []*frame.Path
	for k := range 6 {
		c := linktest.Path(t, k%2 == 1, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2}).Config()
		switch k {
		case 2:
			c.TrafficClass = 4
		case 3:
			c.DstMAC[5]++
		}
		path, err := frame.NewPath(c)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	sizes := []int{16, 20, 64, 64, 64, 64, 1000, 1000, 1400, 1480, 4}
	qps := []bth.QPN{5, 5, 5, 64 + 5, 6, bth.QPNGSI}
	for i := range 1500 {
		now = now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		k := rng.IntN(len(paths))
		n, qpn := sizes[rng.IntN(len(sizes))], qps[rng.IntN(len(qps))]
		for range 1 + rng.IntN(12) {
			if rng.IntN(8) == 0 {
				k = (k + 4) % len(paths) // perhaps an equal one
			}
			path := paths[k]
			if rng.IntN(40) == 0 {
				p.Flush()
			}
			if cold {
				p.tx.basePath = nil
			}
			body, crc, ok := p.Begin(path, n)
			if add("%d: begin %d %x %v", i, len(body), uint32(crc), ok); !ok {
				p.Flush()
				continue
			}
			if n > bth.BTHLen+bth.ICRCLen {
				clear(body)
				bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, qpn, bth.PSN(i))
				bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateBody(body[:n-bth.ICRCLen]))
			} else {
				clear(body)
			}
			if rng.IntN(6) == 0 { // a wrapper
				l := p.Lent()
				add("lent %x", fnvSum(l))
				if rng.IntN(4) == 0 {
					l[15] ^= 3
				}
			}
			if rng.IntN(40) == 0 {
				p.Flush()
			}
			if rng.IntN(12) > 0 {
				p.Commit()
			}
		}
	}
	p.Flush()
	s := p.Stats()
	add("%+v", s)
	p.Close()
	return log
}

func fnvSum(b []byte) uint64 {
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}

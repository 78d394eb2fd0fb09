package udp

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
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
	t.Helper()
	any6 := seed%3 == 0
	c := Config{Addr: linktest.Loopback(71)}
	if any6 {
		c.Addr = netip.IPv6Loopback()
	}
	x, err := Open(c)
	if err != nil {
		t.Skip(err)
	}
	p := x.(*Port)
	defer p.Close()
	rng := rand.New(rand.NewPCG(seed, 9))
	refusals := rng.IntN(3)
	now := time.Unix(1e9, 0)
	p.tx.clock = func() time.Time { return now }
	add := func(format string, args ...any) { log = append(log, fmt.Sprintf(format, args...)) }
	p.tx.sendmmsg = func(_ int, msgs []unix.Mmsghdr) (int, unix.Errno) {
		if refusals > 0 && rng.IntN(8) == 0 {
			e := []unix.Errno{unix.EINVAL, unix.EMSGSIZE, unix.EINTR, unix.ENOBUFS, unix.EAGAIN, unix.EHOSTUNREACH}[rng.IntN(6)]
			add("refuse %v", e)
			return 0, e
		}
		n := 1 + rng.IntN(len(msgs))
		for i := range msgs[:n] {
			h := fnv.New64a()
			iov := msgs[i].Hdr.Iov
			b := unsafe.Slice(iov.Base, int(iov.Len))
			h.Write(b)
			h.Write(unsafe.Slice(msgs[i].Hdr.Name, msgs[i].Hdr.Namelen))
			h.Write(unsafe.Slice(msgs[i].Hdr.Control, msgs[i].Hdr.Controllen))
			add("message of %d bytes %x", iov.Len, h.Sum64())
		}
		return n, 0
	}
	var paths []*frame.Path
	for k := range 7 {
		cfg := frame.PathConfig{Src: bth.GIDFrom(linktest.Loopback(71)), Dst: bth.GIDFrom(linktest.Loopback(72)), SrcPort: srcPort}
		if any6 {
			cfg.Src, cfg.Dst = bth.GIDFrom(netip.IPv6Loopback()), bth.GID{15: 9}
		}
		switch k {
		case 1:
			cfg.TrafficClass = 4
		case 2:
			cfg.HopLimit = 9
		case 3:
			cfg.Dst[15]++
		case 4:
			cfg.Src[15]++ // bad
		case 5:
			cfg.Undivided = true
		}
		path, err := frame.NewPath(cfg)
		if err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	sizes := []int{16, 20, 64, 64, 64, 1000, 1000, 4000, 65000, 70000, 0}
	qps := []bth.QPN{5, 5, 5, 64 + 5, 6, bth.QPNGSI}
	for i := range 1500 {
		if rng.IntN(300) == 0 {
			p.Flush()
			add("flush")
		}
		now = now.Add(time.Duration(rng.IntN(1000)) * time.Millisecond)
		path, n, qpn := paths[rng.IntN(len(paths))], sizes[rng.IntN(len(sizes))], qps[rng.IntN(len(qps))]
		for range 1 + rng.IntN(12) {
			if rng.IntN(40) == 0 {
				p.Flush()
			}
			if cold {
				p.tx.like = 0
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
				copy(body, bytes.Repeat([]byte{byte(i)}, n))
			}
			if rng.IntN(10) == 0 && n > 20 { // a wrapper
				if l := p.Lent(); len(l) != n {
					t.Fatal("lent")
				} else {
					l[7] ^= 1
				}
			}
			if rng.IntN(12) > 0 {
				p.Commit()
			}
			if rng.IntN(30) == 0 {
				qpn = qps[rng.IntN(len(qps))]
			}
		}
	}
	p.Flush()
	s := p.Stats()
	add("%+v", s)
	return log
}

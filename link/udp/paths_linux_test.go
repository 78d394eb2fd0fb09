package udp

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link/linktest"
)

// TestEachPathItsMessages: every datagram has the address, the control messages and the ICRC of its own path, in whatever
// order paths, sizes and queue pairs come, and if the kernel takes only a part or refuses super-packets.
func TestEachPathItsMessages(t *testing.T) {
	lab, _ := netlab.Pair(t, netlab.Config{})
	for seed := range uint64(4) {
		var p *Port
		if seed%2 == 0 {
			p, _, _ = loopbackPair(t, byte(75+seed), Config{})
		} else {
			p = start(t, lab, Config{}) // IPv4 and IPv6, with the source address in a control message
		}
		p.tx.gso = true
		rng := rand.New(rand.NewPCG(seed, 4))
		now := time.Unix(1e9, 0)
		p.tx.clock = func() time.Time { return now }
		var paths []*frame.Path
		for k := range 8 {
			cfg := frame.PathConfig{Src: bth.GIDFrom(linktest.Loopback(byte(75 + seed))), Dst: bth.GIDFrom(linktest.Loopback(76)), SrcPort: srcPort}
			if p.v6 && k&4 != 0 {
				cfg.Src, cfg.Dst = bth.GIDFrom(netip.IPv6Loopback()), bth.GID{0: 0xFD, 15: 9}
			}
			if k&1 != 0 {
				cfg.TrafficClass = uint8(4 * k)
			}
			if k&2 != 0 {
				cfg.HopLimit = uint8(9 + k)
			}
			path, err := frame.NewPath(cfg)
			if err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		of := map[bth.PSN]*frame.Path{} // of the committed packets, by PSN
		left, both := map[bth.PSN]bool{}, map[bool]bool{}
		check := func(h *unix.Msghdr) {
			body := unsafe.Slice(h.Iov.Base, int(h.Iov.Len))
			control := unsafe.Slice(h.Control, int(h.Controllen))
			size := len(body)
			if len(control) >= space16 {
				if m := (*unix.Cmsghdr)(unsafe.Pointer(h.Control)); m.Level == unix.IPPROTO_UDP && m.Type == unix.UDP_SEGMENT {
					size = int(binary.NativeEndian.Uint16(control[cmsgHeader:]))
					control = control[space16:]
				}
			}
			for id := uint16(0); len(body) > 0; id++ {
				b := body[:min(size, len(body))]
				body = body[len(b):]
				psn := bth.PSN(binary.BigEndian.Uint32(b[8:]) & 0xFFFFFF)
				path := of[psn]
				if path == nil || left[psn] {
					t.Fatalf("seed %d: packet %v is unknown or has left before", seed, psn)
				}
				left[psn], both[path.Is4()] = true, true
				var want destination
				pc := path.Config()
				want.set(p, &pc)
				if name := unsafe.Slice(h.Name, h.Namelen); !bytes.Equal(name, unsafe.Slice((*byte)(unsafe.Pointer(&want.name)), want.nameLen)) {
					t.Fatalf("seed %d, packet %v: address %x", seed, psn, name)
				}
				if !bytes.Equal(control, want.control.bytes()[space16:want.size]) {
					t.Fatalf("seed %d, packet %v: control messages\n%x, want\n%x", seed, psn, control, want.control.bytes()[space16:want.size])
				}
				_, crc := path.Put(make([]byte, len(b)), frame.LayoutUDP, len(b), id)
				end := len(b) - bth.ICRCLen
				if sum := crc.UpdateBTH(b).Update(b[bth.BTHLen:end]).Sum(); sum != binary.LittleEndian.Uint32(b[end:]) {
					t.Fatalf("seed %d, packet %v, number %d of a message of %d: wrong ICRC", seed, psn, id, len(b))
				}
			}
		}
		p.tx.sendmmsg = func(_ int, msgs []unix.Mmsghdr) (int, unix.Errno) {
			if rng.IntN(4) == 0 {
				return 0, []unix.Errno{unix.EINVAL, unix.EIO, unix.EMSGSIZE, unix.EINTR, unix.ENOBUFS, unix.EAGAIN}[rng.IntN(6)]
			}
			n := 1 + rng.IntN(len(msgs))
			for i := range msgs[:n] {
				check(&msgs[i].Hdr)
			}
			return n, 0
		}
		sizes := []int{20, 20, 24, 64, 100, 1000, 4000}
		committed := 0
		for psn := range bth.PSN(5000) {
			path, n := paths[rng.IntN(len(paths))], sizes[rng.IntN(len(sizes))]
			if rng.IntN(3) > 0 && psn > 0 && of[psn-1] != nil {
				path = of[psn-1]
			}
			body, crc, ok := p.Begin(path, n)
			if !ok {
				p.Flush()
				continue
			}
			clear(body)
			bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, bth.QPN(5+rng.IntN(3)), psn)
			for i := bth.BTHLen; i < n-bth.ICRCLen; i++ {
				body[i] = byte(i) + byte(psn)
			}
			bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateBTH(body).Update(body[bth.BTHLen:n-bth.ICRCLen]))
			of[psn] = path
			p.Commit()
			committed++
			if rng.IntN(20) == 0 {
				p.Flush()
			}
			now = now.Add(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		for p.tx.queued > 0 {
			p.Flush()
			now = now.Add(time.Second)
		}
		s := p.Stats()
		if lost := s.TxDrops + s.TxErrors + s.TxOversize; committed != len(left)+int(lost) || s.TxPackets != uint64(len(left)) {
			t.Errorf("seed %d: %d committed, %d left, %d lost", seed, committed, len(left), lost)
		}
		if p.Close(); len(both) == 2 != p.v6 {
			t.Errorf("seed %d: IPv4 and IPv6: %v", seed, both)
		}
		if len(left) < committed/2 {
			t.Errorf("seed %d: only %d of %d left", seed, len(left), committed)
		}
	}
}

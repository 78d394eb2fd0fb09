package udp

import (
	"math/rand/v2"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// TestOpenMemo: a message is returned with its own addresses, marks and segment size, whatever messages came before it:
// of other strangers, with errors, with truncated control messages, over what earlier messages left in the buffers.
func TestOpenMemo(t *testing.T) {
	const messages = 8
	rng := rand.New(rand.NewPCG(1, 2))
	for _, bound := range []bool{false, true} {
		p := &Port{}
		p.Count = new(link.Counters)
		if bound {
			p.bound = mapped([4]byte{10, 0, 0, 9})
		}
		r := &p.rx
		r.init(messages)
		pick := func(n int) byte { return byte(rng.IntN(n)) }
		for range 5000 {
			r.senders.turn()
			r.next, r.count, r.data = 0, 1+rng.IntN(messages), nil
			for i := range r.msgs[:r.count] {
				r.offer(i)
				n, c := 0, &r.controls[i]
				add := func(level, kind int32, data ...byte) {
					if rng.IntN(8) == 0 {
						return
					}
					var room []byte
					n, room = c.put(n, level, kind, len(data))
					copy(room, data)
				}
				if rng.IntN(2) == 0 {
					a := (*unix.RawSockaddrInet4)(unsafe.Pointer(&r.names[i]))
					a.Family, a.Port, a.Addr = unix.AF_INET, uint16(pick(2)), [4]byte{10, 0, 0, pick(2)}
					add(unix.IPPROTO_IP, unix.IP_TTL, 63+pick(2), 0, 0, 0)
					add(unix.IPPROTO_IP, unix.IP_TOS, pick(4))
					add(unix.IPPROTO_IP, unix.IP_PKTINFO, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, pick(2))
				} else {
					r.names[i] = unix.RawSockaddrInet6{Family: unix.AF_INET6, Port: uint16(pick(2)), Addr: [16]byte{0xFD, 15: pick(2)}}
					add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, 0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, pick(2), 0, 0, 0, 0)
					add(unix.IPPROTO_IPV6, unix.IPV6_HOPLIMIT, 63+pick(2), 0, 0, 0)
					add(unix.IPPROTO_IPV6, ipv6FlowInfo, 0, pick(2)<<4, 0, pick(2))
				}
				if rng.IntN(3) == 0 {
					add(unix.IPPROTO_UDP, unix.UDP_GRO, 40+pick(2), 0, 0, 0)
				}
				if rng.IntN(8) == 0 {
					n = rng.IntN(n + 1)
				}
				m := &r.msgs[i]
				m.Hdr.SetControllen(n)
				m.Len, m.Hdr.Flags = 100, 0
				switch rng.IntN(8) {
				case 0:
					m.Len = 0
				case 1:
					m.Hdr.Flags = unix.MSG_TRUNC
				}
			}
			for r.next < r.count {
				i := r.next
				var want received
				want.take(&r.names[i], &r.controls[i], int(r.msgs[i].Hdr.Controllen))
				if want.dst.IsZero() {
					want.dst = p.bound
				}
				before := p.Count.RxErrors.Load()
				r.data, r.env = nil, nil
				p.open()
				if bad := r.msgs[i].Len == 0 || r.msgs[i].Hdr.Flags != 0 || want.dst.IsZero(); bad {
					if p.Count.RxErrors.Load() != before+1 || r.data != nil {
						t.Fatal("a bad message is not counted, or is returned")
					}
					continue
				}
				size := len(r.data)
				if want.segment > 0 {
					size = want.segment
				}
				e := r.env
				got := received{e.Src, e.Dst, e.SrcPort, e.TrafficClass, e.HopLimit, e.FlowLabel, want.segment}
				if got != want || r.size != size || len(r.data) != 100 {
					t.Fatalf("got %+v with segments of %d bytes, want %+v", got, r.size, want)
				}
				sealed := frame.Envelope{Src: e.Src, Dst: e.Dst, SrcPort: e.SrcPort, TrafficClass: e.TrafficClass, HopLimit: e.HopLimit, FlowLabel: e.FlowLabel}
				if sealed.Seal(); sealed != *e {
					t.Fatal("the envelope is sealed for another message")
				}
			}
		}
	}
}

package script

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Wire is the network between a script and its peer. A Wire serves one script at a time.
type Wire struct {
	Port link.Port
	Own  bth.GID // the address that the script sends from
	Peer bth.GID
	MAC  frame.MAC // of the peer, or of the router to it

	// Quiet is how long the session waits for further responses of a controlled peer.
	Quiet time.Duration

	frames []link.Frame
	qpns   bth.QPN // how many queue pair numbers were allocated
}

// Origin is the host that the source addresses of a packet claim.
type Origin int

// The origins.
const (
	FromPeer     Origin = iota // the peer of the queue pair
	FromStranger               // another host of the network segment
	FromRouter                 // a host in another network: a router has forwarded its packets
)

// Origins are the names of the origins in scripts.
var Origins = [...]string{"peer", "stranger", "router"}

// strangerMAC is the Ethernet address of the stranger on the segment.
var strangerMAC = frame.MAC{2, 0x99, 0, 0, 0, 0x99}

// routed is the address of the stranger behind the router.
var routed = bth.GIDFrom(netip.MustParseAddr("198.51.100.66"))

// neighbour returns another address in the network of g: it replaces the last byte.
func neighbour(g bth.GID, last byte) bth.GID {
	g[15] = last
	return g
}

// qpn allocates a queue pair number. Numbers repeat after 65536 calls.
func (w *Wire) qpn() bth.QPN {
	w.qpns++
	return 0x770000 + w.qpns&0xFFFF
}

// sendLimit is how long queue waits for room in the port's queue.
const sendLimit = 5 * time.Second

// queue puts a packet into the port's queue. Some ports send successive packets to one queue pair from one address as one super-packet.
// All packets of a super-packet have right UDP checksums and the same TTL. Therefore a packet with a wrong checksum or its own TTL is
// sent alone.
func (w *Wire) queue(p *packet) error {
	edited := p.badSum || p.ttl != nil
	if edited {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if p.needsRaw() && w.Port.Info().Layout == frame.LayoutUDP {
		return fmt.Errorf("driver %s sends from its own address and port only: other addresses, ports, TTLs and checksums need raw", w.Port.Info().Driver)
	}
	path, err := frame.NewPath(w.path(p))
	if err != nil {
		return err
	}
	body := p.body
	n := len(body) + p.trailer()
	if room := w.room(); room > 0 && n > room {
		return fmt.Errorf("a packet of %d bytes from the BTH on: the MTU of the interface leaves room for %d", n, room)
	}
	room, crc, ok := w.Port.Begin(path, n)
	for deadline := time.Now().Add(sendLimit); !ok; room, crc, ok = w.Port.Begin(path, n) {
		if time.Now().After(deadline) {
			return errors.New("the interface has no room for a packet: is the link up?")
		}
		if err := w.flush(); err != nil {
			return err
		}
		if err := w.Port.Wait(100 * time.Millisecond); err != nil {
			return err
		}
	}
	at := copy(room, body)
	if !p.noICRC {
		sum := crc.Update(room[:min(at, bth.BTHLen)])
		if at >= bth.BTHLen {
			sum = crc.UpdateBTH(room[:bth.BTHLen]).Update(room[bth.BTHLen:at])
		}
		bth.PutICRC(room[at:], sum)
		if p.badICRC {
			room[at] ^= 0x80
		}
	}
	if edited {
		p.edit(w.Port.Lent(), n, w.Own.Is4())
	}
	w.Port.Commit()
	if edited {
		return w.flush()
	}
	return nil
}

// edit changes the UDP checksum and the TTL of a frame with n bytes from the BTH on. The ICRC does not cover these fields.
func (p *packet) edit(f []byte, n int, is4 bool) {
	const ip4, ip6, udpLen = 20, 40, 8
	udp := len(f) - n - udpLen
	if p.badSum {
		f[udp+6], f[udp+7] = 0x12, 0x34
	}
	if p.ttl == nil {
		return
	}
	if !is4 {
		f[udp-ip6+7] = *p.ttl
		return
	}
	ip := f[udp-ip4 : udp]
	ip[8], ip[10], ip[11] = *p.ttl, 0, 0
	binary.BigEndian.PutUint16(ip[10:], ^uint16(frame.Sum16(ip)))
}

// room returns how many bytes from the BTH on fit into the MTU of the interface, 0 if the interface has no MTU.
func (w *Wire) room() int {
	const ip4, ip6, udp = 20, 40, 8
	m := w.Port.Info().MTU
	switch {
	case m <= 0:
		return 0
	case w.Own.Addr().Unmap().Is4():
		return m - ip4 - udp
	}
	return m - ip6 - udp
}

func (w *Wire) flush() error {
	if err := w.Port.Flush(); err != nil {
		return fmt.Errorf("sending: %w", err)
	}
	return nil
}

// path returns the addresses and the other header fields with which a packet is sent.
func (w *Wire) path(p *packet) frame.PathConfig {
	i := w.Port.Info()
	c := frame.PathConfig{Src: w.Own, Dst: w.Peer, SrcMAC: i.MAC, DstMAC: w.MAC, SrcPort: 0xC123, HopLimit: 64, TrafficClass: p.tos}
	if i.SrcPort != 0 {
		c.SrcPort = i.SrcPort
	}
	switch p.from {
	case FromStranger:
		c.Src, c.SrcMAC = neighbour(w.Own, 98), strangerMAC
	case FromRouter:
		c.Src, c.HopLimit = routed, 63
	}
	if p.src != nil {
		c.Src = neighbour(w.Own, *p.src)
	}
	if p.dst != nil {
		c.Dst = neighbour(w.Peer, *p.dst)
	}
	if p.sport != 0 {
		c.SrcPort = p.sport
	}
	return c
}

// receive calls f for each packet that has arrived. If there is none, it waits up to d for the first.
func (w *Wire) receive(d time.Duration, f func(p *frame.Packet, icrc bool)) error {
	if w.frames == nil {
		w.frames = make([]link.Frame, 64)
	}
	for deadline := time.Now().Add(d); ; {
		n, err := w.Port.Recv(w.frames)
		if err != nil {
			return fmt.Errorf("receiving: %w", err)
		}
		for _, fr := range w.frames[:n] {
			var p frame.Packet
			if fr.Parse(&p, w.Port.Info().Layout) == nil {
				f(&p, p.CheckICRC())
			}
		}
		left := time.Until(deadline)
		if n > 0 || left <= 0 {
			return nil
		}
		if err := w.Port.Wait(left); err != nil {
			return fmt.Errorf("waiting for packets: %w", err)
		}
	}
}

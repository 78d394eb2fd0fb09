package linktest

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Bare wraps a Port with Ethernet frames as one that leaves the headers to the
// kernel, like a UDP socket: Begin lends only BTH to ICRC, and received packets
// have an envelope. Packets that could be of one super-packet share one envelope. With
// idSeen the envelope has the IPv4 Identification. Bare drops frames other than
// whole RoCEv2 packets.
func Bare(inner link.Port, idSeen bool) link.Port { return &bare{Port: inner, idSeen: idSeen} }

type bare struct {
	link.Port
	idSeen bool
	n      int // of the packet lent
	envs   [link.Batch]frame.Envelope
	packet frame.Packet
}

func (b *bare) Info() link.Info {
	i := b.Port.Info()
	i.Layout = frame.LayoutUDP
	return i
}

func (b *bare) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	b.n = n
	return b.Port.Begin(p, n)
}

func (b *bare) Lent() []byte {
	f := b.Port.Lent()
	if f == nil {
		return nil
	}
	return f[len(f)-b.n:]
}

func (b *bare) Recv(fr []link.Frame) (int, error) {
	fr = fr[:min(len(fr), len(b.envs))]
	got, err := b.Port.Recv(fr)
	p, n, before := &b.packet, 0, uint16(0)
	for i := range fr[:got] {
		e := p.Parse(fr[i].Data, frame.LayoutEthernet)
		if _, envelope := e.(frame.ParseError); envelope || p.Data == nil {
			continue
		}
		env := &b.envs[n]
		*env = frame.Envelope{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
			SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN}
		at := uint16(n)
		zero := uint16(0) // the Identification of segment 0, if the sender numbers segments consecutively
		if len(p.IP) == 20 {
			zero = binary.BigEndian.Uint16(p.IP[4:]) - at
		}
		if env.ID, env.IDSeen = -at, b.idSeen; b.idSeen {
			env.ID = zero
		}
		if n > 0 && zero == before {
			env.ID = fr[n-1].Env.ID
		}
		env.Seal()
		if n > 0 && zero == before && *env == *fr[n-1].Env {
			env = fr[n-1].Env
		}
		before = zero
		fr[n] = link.Frame{Data: p.Data, Env: env, Segment: at}
		n++
	}
	return n, err
}

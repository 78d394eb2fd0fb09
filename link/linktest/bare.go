package linktest

import (
	"encoding/binary"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Bare makes of a Port with Ethernet frames one that leaves the headers to the
// kernel, as a UDP socket does: what is lent is the packet alone, what is
// received comes with an envelope. With idSeen the envelope knows the IPv4
// identification. Frames that are no whole RoCEv2 packets are lost.
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
	p, n := &b.packet, 0
	for i := range fr[:got] {
		e := p.Parse(fr[i].Data, frame.LayoutEthernet)
		if _, envelope := e.(frame.ParseError); envelope || p.Data == nil {
			continue
		}
		env := &b.envs[n]
		*env = frame.Envelope{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
			SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN}
		if len(p.IP) == 20 && b.idSeen {
			env.ID = binary.BigEndian.Uint16(p.IP[4:])
		}
		env.IDSeen = b.idSeen
		env.Seal()
		// The segments of a super-packet count from its identification.
		env.ID -= uint16(n)
		fr[n] = link.Frame{Data: p.Data, Env: env, Segment: uint16(n)}
		n++
	}
	return n, err
}

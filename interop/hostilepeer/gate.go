package hostilepeer

import (
	"bytes"
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// Form is the form in which a driver returns received packets.
type Form int

// The forms.
const (
	Frames Form = iota // whole Ethernet frames, as link/mem and xdp
	Bodies             // UDP payloads, as link/udp: the IPv4 Identification is not known
	Merged             // segments of super-packets, as link/raw: the Identification of the first one is known
	forms
)

// String names the form by the driver.
func (f Form) String() string { return [...]string{"mem and xdp", "udp", "raw"}[f] }

// gate is the device's Port: it returns frames from the network, and injected frames.
type gate struct {
	link.Port

	mu       sync.Mutex // guards the fields below
	injected []link.Frame
	passed   int // frames from the network
	heard    [16][]byte
	nheard   int
}

func newGate(inner link.Port, f Form) *gate {
	if f == Bodies {
		inner = linktest.Bare(inner, false)
	}
	return &gate{Port: inner}
}

// Recv returns injected frames if there are any, otherwise frames from the network.
func (g *gate) Recv(fr []link.Frame) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if len(g.injected) > 0 {
		n := copy(fr, g.injected)
		g.injected = g.injected[n:]
		return n, nil
	}
	n, err := g.Port.Recv(fr)
	g.passed += n
	return n, err
}

// inject makes frames the next that the device receives.
func (g *gate) inject(frames []link.Frame) {
	g.mu.Lock()
	g.injected = frames
	g.mu.Unlock()
	g.Wake()
}

// counts returns how many injected frames the device has not received yet, and how many frames from
// the network it has received.
func (g *gate) counts() (left, passed int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.injected), g.passed
}

// Commit records the management datagrams that the device sends: the hostile peer learns
// identifiers from them.
func (g *gate) Commit() {
	const datagram = bth.BTHLen + bth.DETHLen + cm.MADLen + bth.ICRCLen
	if f := g.Port.Lent(); len(f) >= datagram {
		if body := f[len(f)-datagram:]; bth.Opcode(body[0]) == bth.UDSendOnly && bytes.Equal(body[5:8], []byte{0, 0, 1}) {
			g.mu.Lock()
			at := &g.heard[g.nheard%len(g.heard)]
			*at = append((*at)[:0], body[bth.BTHLen+bth.DETHLen:len(body)-bth.ICRCLen]...)
			g.nheard++
			g.mu.Unlock()
		}
	}
	g.Port.Commit()
}

// batch has the packets to be injected.
type batch struct {
	form   Form
	room   [link.Batch][]byte
	envs   [link.Batch]frame.Envelope
	frames []link.Frame
}

// roomSize is more than a frame of the network's MTU, so that some are longer.
const roomSize = 4096

func newBatch(f Form) *batch {
	b := &batch{form: f}
	for i := range b.room {
		b.room[i] = make([]byte, roomSize)
	}
	return b
}

func (b *batch) reset()     { b.frames = b.frames[:0] }
func (b *batch) full() bool { return len(b.frames) == len(b.room) }

// next returns the room for the body of the next packet, after the room for its headers.
func (b *batch) next() []byte { return b.room[len(b.frames)][maxEnvelope:] }

// maxEnvelope is room for Ethernet, IP and UDP headers.
const maxEnvelope = 64

// identification returns the IPv4 Identification of packet i of a run.
func identification(run, i int) uint16 { return uint16(run<<8 + i) }

// add puts the envelope around the n bytes that were written to next, computes their
// ICRC, and adds them to the batch as packet i of a run. Packets of a run share an
// envelope if i is not 0.
func (b *batch) add(p *frame.Path, n, run, i int) []byte {
	at := len(b.frames)
	h := p.HeaderLen(frame.LayoutEthernet)
	whole := b.room[at][maxEnvelope-h : maxEnvelope+n]
	id := identification(run, i)
	body, crc := p.Put(whole, frame.LayoutEthernet, n, id)
	seal(body, crc)
	if b.form == Frames {
		b.frames = append(b.frames, link.Frame{Data: whole})
		return whole
	}
	env := &b.envs[at]
	if i > 0 {
		env = b.frames[at-1].Env
	} else {
		*env = p.Envelope()
		env.ID, env.IDSeen, env.IDMerged = id, b.form == Merged, b.form == Merged
		env.Seal()
	}
	b.frames = append(b.frames, link.Frame{Data: body, Env: env, Segment: uint16(i)})
	return body
}

// seal writes the ICRC of a body.
func seal(body []byte, crc bth.CRC) {
	at := len(body) - bth.ICRCLen
	if at < 0 {
		return
	}
	if at < bth.BTHLen {
		bth.PutICRC(body[at:], crc.Update(body[:at]))
		return
	}
	bth.PutICRC(body[at:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:at]))
}

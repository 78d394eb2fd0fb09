package hostilepeer

import (
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

// generator makes the packets of a batch.
type generator struct {
	*rand.Rand
	rig   *rig
	batch *batch
	run   int // of the packets that share an envelope

	hostile   []*frame.Path // from the peer of the queue pairs
	strangers []*frame.Path // from addresses that are no queue pair's peer
	known     []bth.Opcode
	by        map[bth.Transport][]bth.Opcode
}

// strangers are addresses that are not the peer of any queue pair: on the same network, behind a
// router, the device's own, and some that are not valid in a packet.
var strangers = []string{"10.0.0.77", "10.0.0.3", "203.0.113.5", "10.0.0.1", "127.0.0.1", "0.0.0.0"}

func newGenerator(r *rig, seed uint64) (*generator, error) {
	g := &generator{Rand: rand.New(rand.NewPCG(seed, uint64(r.form))), rig: r, batch: newBatch(r.form), by: map[bth.Transport][]bth.Opcode{}}
	path := func(from netip.Addr, port uint16) (*frame.Path, error) {
		return frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: r.victim.GIDs()[0], SrcMAC: roce.DerivedMAC(hostileAddr),
			DstMAC: roce.DerivedMAC(victimAddr), SrcPort: port, HopLimit: 64})
	}
	for _, port := range []uint16{0xC000, 0xC123} {
		p, err := path(hostileAddr, port)
		if err != nil {
			return nil, err
		}
		g.hostile = append(g.hostile, p)
		for _, s := range strangers {
			p, err := path(netip.MustParseAddr(s), port)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s, err)
			}
			g.strangers = append(g.strangers, p)
		}
	}
	for op := range 256 {
		if o := bth.Opcode(op); o.Known() {
			g.known = append(g.known, o)
			g.by[o.Transport()] = append(g.by[o.Transport()], o)
		}
	}
	return g, nil
}

// one returns true with probability 1/n.
func (g *generator) one(n int) bool { return g.IntN(n) == 0 }

func pick[T any](g *generator, from []T) T { return from[g.IntN(len(from))] }

// fill makes a batch of packets of the hostile peer, of strangers, or of both. It
// returns how many of the packets a device may accept from any source.
func (g *generator) fill(n int, from, others []*frame.Path) (open int) {
	g.batch.reset()
	for len(g.batch.frames) < n {
		path := pick(g, from)
		if len(others) > 0 && g.one(4) {
			path = pick(g, others)
		}
		g.run++
		switch k := g.IntN(32); {
		case k == 0:
			g.add(path, g.mad(g.batch.next(), path), 0)
		case k < 8:
			g.repeat(path)
		default:
			g.series(path)
		}
	}
	for i := range g.batch.frames {
		if g.open(i) {
			open++
		}
	}
	return open
}

// open reports whether packet i is for a queue pair that accepts packets from any source.
func (g *generator) open(i int) bool {
	f := &g.batch.frames[i]
	body := f.Data
	if f.Env == nil {
		const ip, udp = 14, 8
		body = body[min(len(body), ip+20+udp):]
	}
	if len(body) < bth.BTHLen {
		return false
	}
	q := bth.QPN(body[5])<<16 | bth.QPN(body[6])<<8 | bth.QPN(body[7])
	return q == bth.QPNGSI || q == g.rig.ud.q.Num()
}

// add adds the packet that was built, perhaps changed, as packet i of the run.
func (g *generator) add(path *frame.Path, n, i int) {
	room := g.batch.next()
	if g.one(24) {
		n = g.mutate(room, n)
	}
	data := g.batch.add(path, n+bth.ICRCLen, g.run, i)
	if g.one(48) { // damage that the ICRC detects
		data[len(data)-1-g.IntN(len(data)/2)] ^= 1 << g.IntN(8)
	}
	if g.batch.form == Frames && g.one(256) { // damage that the checks of the headers detect
		data[14+g.IntN(28)] ^= 1 << g.IntN(8)
	}
}

// mutate changes n bytes from the BTH on, and returns how many there are then.
func (g *generator) mutate(b []byte, n int) int {
	switch g.IntN(5) {
	case 0: // cut
		return g.IntN(n + 1)
	case 1: // longer
		return min(n+1+g.IntN(64), len(b)-64)
	case 2: // a bit of the headers
		b[g.IntN(min(n, bth.MaxHeaderLen))] ^= 1 << g.IntN(8)
	case 3: // a byte
		b[g.IntN(n)] = pick(g, []byte{0, 1, 0x7F, 0x80, 0xFF})
	case 4: // bytes
		for range 1 + g.IntN(8) {
			b[g.IntN(n)] = byte(g.Uint32())
		}
	}
	return n
}

// repeat adds copies of one packet: a run of equal packets, of which the device parses only the
// first in full.
func (g *generator) repeat(path *frame.Path) {
	e := g.end(path)
	save := *e
	times := 2 + g.IntN(12)
	for i := 0; i < times && !g.batch.full(); i++ {
		*e = save
		g.add(path, g.packet(g.batch.next(), e, save.seed(g)), i)
	}
}

// series adds packets with consecutive PSNs.
func (g *generator) series(path *frame.Path) {
	e := g.end(path)
	times := 1 + g.IntN(8)
	for i := 0; i < times && !g.batch.full(); i++ {
		g.add(path, g.packet(g.batch.next(), e, g.Uint64()), i)
	}
}

// end chooses a queue pair. For a stranger it may be that of the honest connection.
func (g *generator) end(path *frame.Path) *end {
	if path.Config().Src != bth.GIDFrom(hostileAddr) && g.one(3) {
		q := g.rig.near.conn.QP()
		a, _ := q.Query()
		return &end{name: "honest", q: q, typ: roce.RC, expect: a.RQPSN, sent: a.SQPSN}
	}
	return pick(g, g.rig.ends)
}

// seed returns the seed of a packet, which is the same for all packets of a run.
func (e *end) seed(g *generator) uint64 {
	return uint64(e.q.Num())<<32 ^ uint64(g.run)*0x9E3779B97F4A7C15
}

var transports = map[roce.QPType]bth.Transport{roce.RC: bth.RC, roce.UC: bth.UC, roce.UD: bth.UD, roce.XRCRecv: bth.XRC}

// maker makes one packet. A seed determines its choices.
type maker struct {
	*generator
	end *end
	rnd uint64
}

func (m *maker) n(n int) int {
	m.rnd ^= m.rnd << 13
	m.rnd ^= m.rnd >> 7
	m.rnd ^= m.rnd << 17
	return int(m.rnd >> 8 % uint64(n))
}

func (m *maker) one(n int) bool { return m.n(n) == 0 }

// packet writes a packet for a queue pair to b and returns its length without ICRC.
func (g *generator) packet(b []byte, e *end, seed uint64) int {
	m := &maker{g, e, seed | 1}
	op := m.opcode()
	info := op.Info()
	h := int(info.HeaderLen)
	request := info.Flags&bth.Request != 0
	n := m.size(info)
	at := bth.BTHLen
	m.headers(b[at:h], info, n)
	pad := bth.Pad(n)
	if m.one(64) {
		pad = m.n(4)
	}
	flags := bth.BTHFlags(0)
	if m.one(2) {
		flags |= bth.AckReq
	}
	if m.one(4) {
		flags |= bth.Solicited
	}
	if m.one(32) {
		flags |= bth.MigReq
	}
	key := bth.DefaultPKey
	if m.one(128) {
		key = bth.PKey(m.n(1 << 16))
	}
	bth.PutBTH(b, op, flags, pad, key, e.q.Num(), m.psn(request))
	if request {
		m.follow(info, n, b)
	}
	return h + n + pad
}

// opcode chooses an opcode, usually one that is valid for the queue pair and the message in
// progress.
func (m *maker) opcode() bth.Opcode {
	e := m.end
	switch {
	case m.one(64):
		return bth.Opcode(m.n(256))
	case m.one(48):
		return m.known[m.n(len(m.known))]
	}
	base := transports[e.typ]
	if e.name == "RC" && m.one(16) {
		base = bth.Manufacturer
	}
	all := m.by[base]
	for range 8 {
		op := all[m.n(len(all))]
		f := op.Info().Flags
		if f&bth.Request == 0 || m.one(16) {
			return op
		}
		starts := f&bth.First != 0
		if e.inside == 0 == starts && (e.inside == 0 || f&e.inside != 0) {
			return op
		}
	}
	return all[m.n(len(all))]
}

// size chooses the payload.
func (m *maker) size(info *bth.OpcodeInfo) int {
	f := info.Flags
	switch {
	case f&bth.Payload == 0:
		if m.one(32) {
			return m.n(16)
		}
		return 0
	case m.one(32):
		return pmtu + m.n(64)
	case f&bth.AtomicWrite != 0 && !m.one(8):
		return 8
	case f&bth.Masked != 0 && !m.one(8): // the sizes for operands of 8, 16 and 32 bytes
		return []int{0, 32, 96}[m.n(3)]
	case f&bth.Last == 0 && !m.one(16):
		return pmtu
	case f&bth.Write != 0 && f&bth.First == 0 && m.end.left > 0:
		return min(m.end.left, pmtu)
	case m.one(8):
		return m.n(pmtu + 1)
	}
	return m.n(65)
}

// psn chooses a PSN, usually the expected one.
func (m *maker) psn(request bool) bth.PSN {
	switch {
	case m.one(24):
		return bth.PSN(m.n(1 << 24))
	case request && m.one(12):
		return m.end.expect.Add(m.n(64) - 48)
	case request:
		return m.end.expect
	}
	return m.end.sent.Add(m.n(12) - 10)
}

// follow records how a request changes the state of the device, if the device accepts it.
func (m *maker) follow(info *bth.OpcodeInfo, n int, b []byte) {
	e, f := m.end, info.Flags
	step := 1
	if f&bth.Read != 0 {
		step = max(1, (int(uint32(b[24])<<24|uint32(b[25])<<16|uint32(b[26])<<8|uint32(b[27]))+pmtu-1)/pmtu)
	}
	e.expect = e.expect.Add(step & bth.PSNMask)
	if f&bth.Write != 0 && f&bth.First == 0 {
		e.left = max(e.left-n, 0)
	}
	switch {
	case f&bth.Last != 0:
		e.inside = 0
	case f&bth.First != 0:
		e.inside = f & (bth.Send | bth.Write)
	}
}

// headers writes the extended headers.
func (m *maker) headers(b []byte, info *bth.OpcodeInfo, n int) {
	at := 0
	put := func(has bth.HeaderSet, f func([]byte) int) {
		if info.Headers&has != 0 {
			at += f(b[at:])
		}
	}
	put(bth.HasRDETH, func(b []byte) int { return bth.PutRDETH(b, uint32(m.n(1<<24))) })
	put(bth.HasDETH, func(b []byte) int {
		key := bth.QKey(qkey)
		if m.one(16) {
			key ^= 1 << m.n(32)
		}
		return bth.PutDETH(b, key, 0x660000)
	})
	put(bth.HasXRCETH, func(b []byte) int {
		n := m.rig.xsrq.Num()
		if m.one(16) {
			n = bth.SRQN(m.n(1 << 24))
		}
		return bth.PutXRCETH(b, n)
	})
	put(bth.HasFETH, func(b []byte) int { return bth.PutFETH(b, bth.FlushType(m.n(8)), bth.FlushSelectivity(m.n(8))) })
	put(bth.HasRETH, func(b []byte) int {
		va, key := m.remote()
		return bth.PutRETH(b, va, key, m.length(info, n))
	})
	put(bth.HasAtomicETH, func(b []byte) int {
		va, key := m.remote()
		if !m.one(16) {
			va &^= 7
		}
		return bth.PutAtomicETH(b, va, key, m.rnd, m.rnd>>7)
	})
	put(bth.HasMaskETH, func(b []byte) int {
		return bth.PutMaskETH(b, m.rnd, m.rnd<<9, []uint8{8, 8, 8, 4, 16, 32, uint8(m.n(256))}[m.n(7)])
	})
	put(bth.HasAETH, func(b []byte) int {
		s := []bth.Syndrome{bth.AckNoCredits, bth.AckNoCredits, bth.AckNoCredits, 0, bth.NAKSequence, bth.RNR(1), bth.NAKInvalidRequest, bth.Syndrome(m.n(256))}
		return bth.PutAETH(b, s[m.n(len(s))], bth.MSN(m.n(1<<24)))
	})
	put(bth.HasAtomicAckETH, func(b []byte) int { return bth.PutAtomicAckETH(b, m.rnd) })
	put(bth.HasImm, func(b []byte) int { return bth.PutImm(b, uint32(m.rnd)) })
	put(bth.HasIETH, func(b []byte) int {
		_, key := m.remote()
		return bth.PutIETH(b, key)
	})
	put(bth.HasCNPReserved, func(b []byte) int { clear(b[:16]); return 16 })
}

// remote chooses remote memory: usually memory that the peer may use, otherwise memory that it must
// not use, or the edges of memory.
func (m *maker) remote() (va uint64, key bth.RKey) {
	r := m.rig
	a := r.open
	switch m.n(24) {
	case 0:
		a = r.reading
	case 1:
		a = r.local
	case 2:
		a = r.secret
	case 3:
		a = r.recv
	}
	va, key = a.mr.Addr()+uint64(m.n(len(a.buf)-pmtu)), a.mr.RKey()
	switch m.n(32) {
	case 0:
		va = a.mr.Addr() - uint64(m.n(16))
	case 1:
		va = a.mr.Addr() + uint64(len(a.buf)-m.n(16))
	case 2:
		va = ^uint64(0) - uint64(m.n(16))
	case 3:
		va = m.rnd
	case 4:
		key ^= 1 << m.n(32)
	case 5:
		key = bth.RKey(m.rnd)
	}
	return va, key
}

// length chooses the length of a message in the RETH.
func (m *maker) length(info *bth.OpcodeInfo, n int) uint32 {
	f := info.Flags
	switch {
	case m.one(32):
		return []uint32{0, 1, 1 << 31, 1<<31 + 1, 1<<32 - 1, uint32(m.rnd)}[m.n(6)]
	case f&bth.Read != 0:
		return uint32(m.n(5000))
	case f&bth.Write != 0 && f&bth.Last == 0:
		m.end.left = m.n(4 * pmtu)
		return uint32(n + m.end.left)
	}
	return uint32(n)
}

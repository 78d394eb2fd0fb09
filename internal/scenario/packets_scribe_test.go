package scenario_test

import (
	"encoding/binary"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/qp"
)

// scribe turns a script into events of a world: the actions of its program, and the packets of its peers and of
// strangers.
type scribe struct {
	world  *world // all worlds have the same numbers and keys
	script []byte
	psn    map[int]*[2]bth.PSN // the next request and the next answer to each queue pair
	id     uint16
}

func (s *scribe) next() int {
	if len(s.script) == 0 {
		return 0
	}
	x := s.script[0]
	s.script = s.script[1:]
	return int(x)
}

// oneIn is true once in n times.
func (s *scribe) oneIn(n int) bool { return s.next()%n == n-1 }

// actions are the program's actions before an epoch.
func (s *scribe) actions() (out []func(*world)) {
	for range s.next() % 6 {
		i, what, n := s.next()%len(s.world.ends), s.next(), s.next()%300
		if what%16 == 4 && n < 40 && s.world.ends[i].typ == qp.RC {
			delete(s.psn, i) // it is connected anew
		}
		out = append(out, func(w *world) {
			e := w.ends[i]
			wr := roce.SendWR{ID: uint64(n), Flags: roce.Signaled, SG: []roce.SGE{e.mr.SGE(0, n)}, RemoteAddr: 0x1000, RKey: 0x77, RemoteSRQN: 5}
			switch what % 16 {
			case 4: // another peer, or the same one again
				if n < 40 && e.typ == qp.RC {
					e.reconnect(w, []string{peerAddr, peerAddr, peerAddr, strangeAddr}[n%4], peerQPN+bth.QPN(i))
				}
				return
			case 5:
				if e.typ == qp.RC || e.typ == qp.UC {
					e.arm(w, strangeAddr)
				}
				return
			case 0, 1, 2, 3:
				if e.post != nil {
					e.post(&roce.RecvWR{ID: uint64(what), SG: []roce.SGE{e.mr.SGE(1024+n, 2*n)}})
				}
				return
			case 6:
				wr.Opcode = roce.Send
			case 7:
				wr.Opcode = roce.Write
			case 8, 9, 10:
				wr.Opcode = roce.Read
			case 11:
				wr.Opcode, wr.SG = roce.FetchAdd, []roce.SGE{e.mr.SGE(0, 8)}
			case 12, 13: // inside the device
				w.loop[1].post(&roce.RecvWR{ID: uint64(what), SG: []roce.SGE{w.loop[1].mr.SGE(n, n)}})
				e, wr.SG, wr.Opcode = w.loop[0], []roce.SGE{w.loop[0].mr.SGE(0, n)}, roce.Send
			case 14:
				if n < 20 {
					e.qp.Modify(&roce.Attr{State: []roce.QPState{qp.Err, qp.Reset, qp.SQD, qp.RTS}[n%4]}, qp.AttrState)
				}
				return
			case 15:
				if e.typ == qp.RC {
					unconfirm(e.qp)
				}
				return
			}
			if e.typ != qp.XRCRecv && e.typ != qp.UD {
				e.qp.PostSend(&wr)
			}
		})
	}
	return out
}

// frames makes the frames of an epoch: runs of similar packets, of which some are forged or damaged.
func (s *scribe) frames() (out [][]byte) {
	if s.psn == nil {
		s.psn = map[int]*[2]bth.PSN{}
	}
	for range 1 + s.next()%6 {
		i := s.next() % len(s.world.ends)
		e := s.world.ends[i]
		at := s.psn[i]
		if at == nil {
			at = &[2]bth.PSN{firstPSN, firstPSN}
			s.psn[i] = at
		}
		op := e.opcode[s.next()%len(e.opcode)]
		if s.oneIn(32) {
			op = bth.Opcode(s.next())
		}
		psn := &at[0]
		if op.Known() && op.Info().Flags&bth.Request == 0 {
			psn = &at[1]
		}
		n := []int{0, 4, 8, 64, 256, 256, 6, 260}[s.next()%8]
		flags := bth.BTHFlags(0)
		for _, f := range []bth.BTHFlags{bth.AckReq, bth.Solicited, bth.MigReq} {
			if s.oneIn(2) {
				flags |= f
			}
		}
		if s.oneIn(8) { // a gap, or a repetition
			*psn = psn.Add(s.next()%8 - 4)
		}
		peer := peerAddr
		if s.oneIn(8) {
			peer = strangeAddr // the end of an alternate path, or a stranger
		}
		if e == s.world.loop[0] || e == s.world.loop[1] {
			peer = strangeAddr // their peer is the device itself
		}
		shorter := s.next() % 32 // index in the run of the first shorter packet
		for i := range 1 + s.next()%12 {
			if i == shorter {
				n /= 2
			}
			out = append(out, s.packet(e, peer, op, flags, *psn, n))
			*psn = psn.Add(1)
		}
	}
	return out
}

// packet makes a frame. Most are valid packets of the peer; some are forged or damaged.
func (s *scribe) packet(e *worldEnd, peer string, op bth.Opcode, flags bth.BTHFlags, psn bth.PSN, n int) []byte {
	c := frame.PathConfig{SrcMAC: frame.MAC{2, 5: 9}, DstMAC: s.world.dev.Query().Link.MAC, SrcPort: 0xC0DE, HopLimit: 64}
	src, dst, qpn, key := peer, worldAddr, e.qp.Num(), bth.DefaultPKey
	rkey, va, kind := e.mr.RKey(), e.mr.Addr()+uint64(s.next()&^7), s.next()%64
	switch kind {
	case 1, 2, 3:
		src = strangeAddr
	case 4:
		src = worldAddr // that of the device itself
		if e == s.world.loop[0] || e == s.world.loop[1] {
			src = "10.0.0.67"
		}
	case 5:
		dst = otherAddr
	case 6:
		dst = "10.0.0.9"
	case 7:
		qpn++
	case 8:
		key = 0x1234
	case 9:
		key = 0x7FFF // a limited member
	case 10:
		psn = psn.Add(s.next() - 128)
	case 11:
		c.TrafficClass = 3
	case 12:
		c.HopLimit = 1
	case 13:
		c.SrcPort++
	case 14:
		rkey ^= 1
	case 15:
		n += 4
	case 16:
		flags ^= bth.MigReq
	case 17:
		s.id += 1000
	case 18:
		va += 1 << 40
	}
	c.Src, c.Dst = bth.GIDFrom(netip.MustParseAddr(src)), bth.GIDFrom(netip.MustParseAddr(dst))
	path := ok(frame.NewPath(c))(s.world.t)
	header := bth.BTHLen
	if op.Known() {
		header = int(op.Info().HeaderLen)
		if f := op.Info().Flags; f&bth.Payload == 0 {
			n = 0
		}
	}
	pad := -n & 3
	size := header + n + pad + bth.ICRCLen
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+size)
	s.id++
	body, crc := path.Put(b, frame.LayoutEthernet, size, s.id)
	bth.PutBTH(body, op, flags, pad, key, qpn, psn)
	s.headers(body, e, op, va, rkey, uint32(n))
	for i := range n {
		body[header+i] = byte(psn) + byte(i)
	}
	if kind == 19 {
		body[1] |= 5 // transport version
	}
	end := size - bth.ICRCLen
	bth.PutICRC(body[end:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:end]))
	switch kind {
	case 20, 21, 22:
		binary.LittleEndian.PutUint32(body[end:], binary.LittleEndian.Uint32(body[end:])^0xA5000000^uint32(s.next()))
	case 23:
		return b[:len(b)-1-s.next()%8]
	case 24: // Ethernet padding
		return append(b, make([]byte, 1+s.next()%8)...)
	case 25:
		b[14+20+4+1] -= 4 // UDP length
	case 26:
		b[14+10]++ // header checksum
	case 27:
		body[1] ^= 0x30 // pad
	}
	return b
}

// headers fills in the headers between the BTH and the payload.
func (s *scribe) headers(body []byte, e *worldEnd, op bth.Opcode, va uint64, key bth.RKey, n uint32) {
	if !op.Known() {
		return
	}
	at := bth.BTHLen
	has := op.Info().Headers
	if has&bth.HasDETH != 0 {
		qkey := testQKey
		if s.oneIn(8) {
			qkey++
		}
		at += bth.PutDETH(body[at:], qkey, 0x22)
	}
	if has&bth.HasXRCETH != 0 {
		at += bth.PutXRCETH(body[at:], e.srqn)
	}
	if has&bth.HasFETH != 0 {
		at += bth.PutFETH(body[at:], bth.FlushGlobal, bth.FlushRange)
	}
	if has&bth.HasRETH != 0 {
		if op.Info().Flags&bth.Payload == 0 { // READ or FLUSH
			n = uint32(s.next() * 4)
		} else if op.Info().Flags&bth.Last == 0 {
			n += 256
		}
		at += bth.PutRETH(body[at:], va, key, n)
	}
	if has&bth.HasAtomicETH != 0 {
		at += bth.PutAtomicETH(body[at:], va, key, 1, 2)
	}
	if has&bth.HasAETH != 0 {
		syndrome := bth.AckNoCredits
		if s.oneIn(8) {
			syndrome = []bth.Syndrome{bth.NAKSequence, bth.RNR(1), bth.NAKRemoteAccess, bth.NAKInvalidRequest}[s.next()%4]
		}
		at += bth.PutAETH(body[at:], syndrome, 1)
	}
	if has&bth.HasAtomicAckETH != 0 {
		at += bth.PutAtomicAckETH(body[at:], 99)
	}
	if has&(bth.HasImm|bth.HasIETH) != 0 {
		bth.PutImm(body[at:], 0xCAFE)
	}
}

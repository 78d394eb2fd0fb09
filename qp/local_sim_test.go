package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// The simulation of local operations does what storage protocols do. An initiator makes a key for a piece of memory
// (REG_MR or BIND_MW) and tells the target the key in the SEND behind it. The target fills or reads the memory by
// RDMA and answers. Its answer invalidates the key, or the initiator does so with LOCAL_INV. Then the key must open
// nothing, the data must be right, and the memory is used again.

const (
	ioSlots = 6
	ioSize  = 9 << 10
	cmdSize = 24
)

// ioSlot is one command of the initiator.
type ioSlot struct {
	state  ioState
	mem    []byte
	region *mr.MR // bindable
	fast   *mr.MR
	umr    *mr.MR // indirect, made of parts of the region
	w1, w2 *mr.MW
	seed   byte // of the pattern
	write  bool // the target writes; else it reads
	remote bool // the target invalidates
	kind   int  // 0: fast registration, 1: type 1 window, 2: type 2 window, 3: indirect region
	off, n int
	key    bth.RKey
	cycles int
}

type ioState uint8

const (
	ioIdle ioState = iota
	ioUnderWay
	ioInvalidating
)

func pattern(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i*13) + byte(i>>8)
	}
}

// ioInitiator runs the commands.
type ioInitiator struct {
	*node
	rng    *rand.Rand
	slots  [ioSlots]ioSlot
	cmds   []byte // one command each, and receives
	cmdMR  *mr.MR
	cycles int
}

func newIOInitiator(t testing.TB, n *node, rng *rand.Rand) *ioInitiator {
	x := &ioInitiator{node: n, rng: rng}
	x.cmds, x.cmdMR = n.region(t, 2*ioSlots*cmdSize)
	for i := range x.slots {
		s := &x.slots[i]
		s.mem = make([]byte, ioSize)
		s.region = must(n.mem.Register(n.pd, s.mem, mr.LocalWrite|mr.RemoteRead|mr.RemoteWrite|mr.MWBind, mr.Options{}))
		s.umr = must(n.mem.AllocIndirect(n.pd, 8))
		s.fast = must(n.mem.AllocFast(n.pd, mr.FastOptions{MaxPieces: 8}))
		s.w1, s.w2 = must(n.mem.AllocMW(n.pd, mr.MWType1)), must(n.mem.AllocMW(n.pd, mr.MWType2))
		must(0, n.PostRecv(&qp.RecvWR{ID: uint64(i), SG: []mr.SGE{x.cmdMR.SGE((ioSlots+i)*cmdSize, cmdSize)}}))
	}
	return x
}

// begin posts a command: the work request that makes its key, and the SEND that tells the key to the target.
func (x *ioInitiator) begin(i int) error {
	s, r := &x.slots[i], x.rng
	s.seed, s.write, s.remote, s.kind = byte(r.Uint32()), r.IntN(2) == 0, r.IntN(2) == 0, r.IntN(4)
	s.off = r.IntN(ioSize / 2)
	s.n = 1 + r.IntN(ioSize-s.off)
	clear(s.mem)
	if !s.write {
		pattern(s.mem[s.off:s.off+s.n], s.seed)
	}
	need := mr.RemoteRead
	if s.write {
		need = mr.RemoteWrite
	}
	addr := s.region.Addr() + uint64(s.off)
	wr := qp.SendWR{ID: uint64(i), Opcode: qp.BindMW, MR: s.region, BindAddr: addr, BindLength: uint64(s.n), Access: need}
	switch s.kind {
	case 0:
		var sg [][]byte
		for at, end := s.off, s.off+s.n; at < end; {
			k := 1 + r.IntN(end-at)
			if len(sg) == 7 {
				k = end - at
			}
			sg = append(sg, s.mem[at:at+k])
			at += k
		}
		if err := s.fast.Map(sg, mr.Options{IOVA: addr, HasIOVA: true}); err != nil {
			return err
		}
		s.key = mr.IncRKey(s.fast.RKey())
		wr = qp.SendWR{ID: uint64(i), Opcode: qp.RegMR, MR: s.fast, Access: need | mr.LocalWrite}
	case 3:
		var parts []mr.Part
		for at, end := s.off, s.off+s.n; at < end; {
			k := 1 + r.IntN(end-at)
			if len(parts) == 7 {
				k = end - at
			}
			parts = append(parts, mr.Part{MR: s.region, Offset: uint64(at), Length: uint64(k)})
			at += k
		}
		wr = qp.SendWR{ID: uint64(i), Opcode: qp.RegMR, MR: s.umr, Access: need | mr.LocalWrite}
		var err error
		if opt := (mr.Options{IOVA: addr, HasIOVA: true}); r.IntN(2) == 0 {
			wr.Parts, err = s.umr.ListParts(parts, 1, opt)
		} else {
			err = s.umr.MapParts(parts, 1, opt)
		}
		if err != nil {
			return err
		}
		s.key = mr.IncRKey(s.umr.RKey())
	case 1:
		s.remote = false // type 1 is unbound by another bind
		s.key, wr.MW = mr.IncRKey(s.w1.RKey()), s.w1
	case 2:
		s.key, wr.MW = mr.IncRKey(s.w2.RKey()), s.w2
	}
	wr.RKey = s.key
	if r.IntN(4) == 0 {
		wr.Flags = qp.Signaled
	}
	if err := x.PostSend(&wr); err != nil {
		return err
	}
	cmd := x.cmds[i*cmdSize : (i+1)*cmdSize]
	clear(cmd)
	binary.LittleEndian.PutUint64(cmd, addr)
	binary.LittleEndian.PutUint32(cmd[8:], uint32(s.key))
	binary.LittleEndian.PutUint32(cmd[12:], uint32(s.n))
	cmd[16], cmd[17], cmd[18], cmd[19] = byte(i), s.seed, b2i(s.write), b2i(s.remote)
	s.state = ioUnderWay
	return x.PostSend(&qp.SendWR{ID: uint64(i), Opcode: qp.Send, SG: []mr.SGE{x.cmdMR.SGE(i*cmdSize, cmdSize)}})
}

func b2i(b bool) byte {
	if b {
		return 1
	}
	return 0
}

// advance handles completions and begins commands.
func (x *ioInitiator) advance(target int) error {
	for _, wc := range drain(x.send) {
		if wc.Status != cq.Success {
			return fmt.Errorf("initiator: %v %d: %v", wc.Opcode, wc.ID, wc.Status)
		}
		if wc.ID >= ioSlots { // took the key away
			if err := x.end(&x.slots[wc.ID-ioSlots]); err != nil {
				return err
			}
		}
	}
	for _, wc := range drain(x.recv) {
		if err := x.answered(wc); err != nil {
			return err
		}
	}
	for i := range x.slots {
		if x.slots[i].state == ioIdle && x.cycles < target && x.rng.IntN(2) == 0 {
			x.cycles++
			if err := x.begin(i); err != nil {
				return err
			}
		}
	}
	return nil
}

// answered takes the target's answer to a command.
func (x *ioInitiator) answered(wc cq.WC) error {
	if wc.Status != cq.Success {
		return fmt.Errorf("initiator: receive: %v", wc.Status)
	}
	at := (ioSlots + int(wc.ID)) * cmdSize
	s := &x.slots[x.cmds[at]]
	if s.state != ioUnderWay {
		return fmt.Errorf("answer to a command that is not under way")
	}
	must(0, x.PostRecv(&qp.RecvWR{ID: wc.ID, SG: []mr.SGE{x.cmdMR.SGE(at, cmdSize)}}))
	if s.remote {
		if wc.Flags&cq.WithInv == 0 || wc.InvKey != s.key {
			return fmt.Errorf("answer invalidated %v, not %v", wc.InvKey, s.key)
		}
		return x.end(s)
	}
	s.state = ioInvalidating
	wr := qp.SendWR{ID: ioSlots + uint64(x.cmds[at]), Opcode: qp.LocalInv, Flags: qp.Signaled, InvKey: s.key}
	if s.kind == 1 {
		wr = qp.SendWR{ID: wr.ID, Opcode: qp.BindMW, Flags: qp.Signaled, MW: s.w1, RKey: mr.IncRKey(s.key)}
	}
	return x.PostSend(&wr)
}

// end checks the memory and the key of a command that is done.
func (x *ioInitiator) end(s *ioSlot) error {
	if _, _, f := x.mem.Remote(x.pd, x.Num(), s.key, s.region.Addr()+uint64(s.off), 1, 0); f != mr.BadKey {
		return fmt.Errorf("kind %d: the key is not dead: %v", s.kind, f)
	}
	want := make([]byte, ioSize)
	pattern(want[s.off:s.off+s.n], s.seed)
	if !bytes.Equal(s.mem, want) {
		return fmt.Errorf("kind %d: the memory is not what it must be", s.kind)
	}
	s.state = ioIdle
	s.cycles++
	return nil
}

// ioTarget executes the commands.
type ioTarget struct {
	*node
	rng   *rand.Rand
	mem   []byte // per command: data, then the answer
	m     *mr.MR
	recvs []byte
	recvM *mr.MR
	reads map[uint64]byte // seed of the data that a READ must bring, by command
	cmds  [ioSlots][cmdSize]byte
}

func newIOTarget(t testing.TB, n *node, rng *rand.Rand) *ioTarget {
	x := &ioTarget{node: n, rng: rng, reads: map[uint64]byte{}}
	x.mem, x.m = n.region(t, ioSlots*(ioSize+cmdSize))
	x.recvs, x.recvM = n.region(t, ioSlots*cmdSize)
	for i := range ioSlots {
		must(0, n.PostRecv(&qp.RecvWR{ID: uint64(i), SG: []mr.SGE{x.recvM.SGE(i*cmdSize, cmdSize)}}))
	}
	return x
}

func (x *ioTarget) advance() error {
	for _, wc := range drain(x.recv) {
		if wc.Status != cq.Success {
			return fmt.Errorf("target: receive: %v", wc.Status)
		}
		cmd := x.recvs[wc.ID*cmdSize : (wc.ID+1)*cmdSize]
		i := int(cmd[16])
		copy(x.cmds[i][:], cmd)
		must(0, x.PostRecv(&qp.RecvWR{ID: wc.ID, SG: []mr.SGE{x.recvM.SGE(int(wc.ID)*cmdSize, cmdSize)}}))
		if err := x.obey(i); err != nil {
			return err
		}
	}
	for _, wc := range drain(x.send) {
		if wc.Status != cq.Success {
			return fmt.Errorf("target: %v %d: %v", wc.Opcode, wc.ID, wc.Status)
		}
		if wc.Opcode != cq.OpRDMARead {
			continue
		}
		n := int(binary.LittleEndian.Uint32(x.cmds[wc.ID][12:]))
		want := make([]byte, n)
		pattern(want, x.cmds[wc.ID][17])
		if !bytes.Equal(x.mem[int(wc.ID)*ioSize:][:n], want) {
			return fmt.Errorf("target: command %d brought wrong data", wc.ID)
		}
		if err := x.answer(int(wc.ID)); err != nil {
			return err
		}
	}
	return nil
}

func (x *ioTarget) obey(i int) error {
	cmd := x.cmds[i][:]
	n := int(binary.LittleEndian.Uint32(cmd[12:]))
	wr := qp.SendWR{ID: uint64(i), SG: []mr.SGE{x.m.SGE(i*ioSize, n)}, RemoteAddr: binary.LittleEndian.Uint64(cmd),
		RKey: bth.RKey(binary.LittleEndian.Uint32(cmd[8:]))}
	if cmd[18] == 0 {
		wr.Opcode, wr.Flags = qp.Read, qp.Signaled
		return x.PostSend(&wr)
	}
	wr.Opcode = qp.Write
	pattern(x.mem[i*ioSize:][:n], cmd[17])
	if err := x.PostSend(&wr); err != nil {
		return err
	}
	return x.answer(i)
}

// answer posts the SEND that reports a command as done. It follows the data in the send queue.
func (x *ioTarget) answer(i int) error {
	at := ioSlots*ioSize + i*cmdSize
	copy(x.mem[at:at+cmdSize], x.cmds[i][:])
	x.mem[at] = byte(i)
	wr := qp.SendWR{ID: uint64(i), Opcode: qp.Send, SG: []mr.SGE{x.m.SGE(at, cmdSize)}}
	if x.cmds[i][19] == 1 {
		wr.Opcode, wr.InvKey = qp.SendInv, bth.RKey(binary.LittleEndian.Uint32(x.cmds[i][8:]))
	}
	return x.PostSend(&wr)
}

// simulateIO runs one seed.
func simulateIO(t testing.TB, seed uint64) (cycles int, err error) {
	rng := rand.New(rand.NewPCG(seed, 9))
	rate := func(limit float64) float64 {
		if rng.IntN(3) == 0 {
			return 0
		}
		return rng.Float64() * limit
	}
	imp := impairment{loss: rate(0.08), dup: rate(0.2), reorder: rate(0.2), corrupt: rate(0.02),
		delay: time.Duration(1+rng.IntN(50)) * time.Microsecond, jitter: time.Duration(rng.IntN(100)) * time.Microsecond}
	psn := func() bth.PSN { return bth.PSN(rng.Uint32()|0xFFFF00*uint32(rng.IntN(2))) & bth.PSNMask }
	na, nb, w := newPair(t, seed, imp, pairConfig{mtu: bth.MTU(1 + rng.IntN(5)), psnA: psn(), psnB: psn(), rd: uint8(1 + rng.IntN(8)),
		window: []int{0, 8, 33}[rng.IntN(3)]}.mixed(seed))
	a, b := newIOInitiator(t, na, rng), newIOTarget(t, nb, rng)
	const commands = 40
	for range 200_000 {
		if err := a.advance(commands); err != nil {
			return a.cycles, err
		}
		if err := b.advance(); err != nil {
			return a.cycles, err
		}
		if !w.step(na, nb) {
			w.now += 1000
		}
		done := 0
		for i := range a.slots {
			done += a.slots[i].cycles
		}
		if done == commands {
			for i := range a.slots {
				s := &a.slots[i]
				if err := s.region.Deregister(); err != nil {
					return done, err
				}
				if err := s.fast.Deregister(); err != nil {
					return done, err
				}
				if err := s.umr.Deregister(); err != nil {
					return done, err
				}
			}
			return done, quiet(imp, na, nb)
		}
	}
	return a.cycles, fmt.Errorf("no end in sight after %d commands and %v", a.cycles, w.now)
}

// TestSimLocal runs commands over networks that lose, duplicate, reorder and corrupt packets.
func TestSimLocal(t *testing.T) {
	seeds := uint64(*simSeeds) * 2 / 15
	if testing.Short() || raceEnabled {
		seeds = min(seeds, 100)
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		if _, err := simulateIO(t, seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

package conform

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/usage"
)

// These bounds keep a program that can connect to the control port from allocating all memory.
const (
	maxMemory = 4 << 20
	maxDepth  = 256
	maxPeek   = 4096
)

const (
	qkey      roce.QKey = 0x11111111
	allRights           = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic
)

// end is a queue pair with memory. Both the tester and the peer use it.
type end struct {
	*objects.Set
	typ        roce.QPType
	depth      int
	qp         *roce.QP
	srq        *roce.SRQ
	sends      *roce.CQ
	receives   *roce.CQ
	mem        *roce.MR
	index      int // of the local address in the GID table
	psn        roce.PSN
	peer       address
	toPeer     *roce.AH // UD
	cm         bool
	connection *roce.Conn
}

// check returns an error if the spec is not valid.
func (s *spec) check() error {
	if _, ok := services[s.Type]; !ok {
		return usage.Errorf("service %q: want rc, uc or ud", s.Type)
	}
	if s.CM && (s.Type != "rc" || s.SRQ) {
		return usage.Errorf("the connection manager connects queue pairs of rc only, without a shared receive queue")
	}
	return errors.Join(usage.Range("memory", s.Memory, 8, maxMemory), usage.Range("depth", s.Depth, 1, maxDepth))
}

// newEnd creates a queue pair in INIT, with its memory and completion queues. peer is the address of the other end of the control
// connection. With s.CM it does not create the queue pair: the connection manager does that later.
func newEnd(d *roce.Device, s spec, peer netip.Addr) (e *end, err error) {
	if err := s.check(); err != nil {
		return nil, err
	}
	e = &end{Set: objects.New(d), typ: services[s.Type], depth: s.Depth, cm: s.CM, psn: d.RandomPSN()}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	if e.index, err = oob.ChooseGID(d, -1, peer); err != nil {
		return nil, err
	}
	e.sends, e.receives, e.mem = e.CQ(s.Depth), e.CQ(s.Depth), e.MR((s.Memory+7)&^7, allRights|roce.Watched)
	c := e.config()
	if s.SRQ {
		e.srq = e.SRQ(roce.SRQConfig{MaxWR: s.Depth, MaxSGE: 1})
		c.SRQ, c.Caps.MaxRecvWR = e.srq, 0
	}
	if !s.CM {
		e.qp = e.QP(c)
	}
	if err = e.Err(); err == nil && !s.CM {
		var access roce.Access
		if e.typ != roce.UD {
			access = allRights
		}
		err = e.qp.Init(access&^roce.LocalWrite, qkey)
	}
	return e, err
}

func (e *end) config() roce.QPConfig {
	return roce.QPConfig{Type: e.typ, SendCQ: e.sends, RecvCQ: e.receives, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: e.depth, MaxRecvWR: e.depth, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// setup stores the queue pair that the connection manager has created.
func (e *end) setup(q *roce.QP) error {
	e.qp = q
	return nil
}

// dial connects the queue pair by the connection manager.
func (e *end) dial(ctx context.Context, addr string, private []byte) error {
	access := allRights &^ roce.LocalWrite
	return e.connected(e.Dev.Dial(ctx, addr, roce.DialConfig{PD: e.PD, QPConfig: e.config(), Access: &access, Setup: e.setup, Param: roce.ConnParam{PrivateData: private}}))
}

// accept accepts a request of the connection manager for the queue pair.
func (e *end) accept(ctx context.Context, r *roce.ConnRequest) error {
	access := allRights &^ roce.LocalWrite
	return e.connected(r.Accept(ctx, roce.AcceptConfig{PD: e.PD, QPConfig: e.config(), Access: &access, Setup: e.setup}))
}

// connected takes the results of dial or accept.
func (e *end) connected(conn *roce.Conn, err error) error {
	if err == nil {
		e.connection = conn
		e.Add(conn)
	}
	return err
}

// address returns the address of the queue pair and its memory. The queue pair number is zero until the connection manager has created
// the queue pair.
func (e *end) address() address {
	a := address{GID: e.Dev.GIDs()[e.index].String(), PSN: uint32(e.psn), Addr: e.mem.Addr(), RKey: uint32(e.mem.RKey()), Length: e.mem.Len()}
	if e.qp != nil {
		a.QPN = uint32(e.qp.Num())
	}
	return a
}

// gid returns the address of an end.
func (a *address) gid() (roce.GID, error) {
	ip, err := netip.ParseAddr(a.GID)
	if err != nil {
		return roce.GID{}, usage.Errorf("gid %q is no IP address", a.GID)
	}
	return bth.GIDFrom(ip), nil
}

// connect connects the queue pair to that of the other end. If the connection manager connects it, connect only stores the address of
// the other end's memory.
func (e *end) connect(ctx context.Context, peer address, t terms) error {
	e.peer = peer
	if e.cm {
		return nil
	}
	gid, err := peer.gid()
	if err != nil {
		return err
	}
	if peer.QPN>>24 != 0 || peer.PSN>>24 != 0 {
		return usage.Errorf("queue pair number %#x and PSN %#x: want 24 bits each", peer.QPN, peer.PSN)
	}
	to := roce.AHAttr{DGID: gid, SGIDIndex: e.index, TrafficClass: t.TrafficClass}
	if e.typ == roce.UD {
		if err := e.qp.Ready(e.psn); err != nil {
			return err
		}
		e.toPeer, err = e.Dev.CreateAH(ctx, to)
		return err
	}
	mtu := dissect.MTUOf(t.MTU)
	if mtu == 0 {
		return usage.Errorf("path MTU %d: want 256, 512, 1024, 2048 or 4096", t.MTU)
	}
	return e.qp.Connect(ctx, roce.Peer{AHAttr: to, QPN: roce.QPN(peer.QPN), PSN: roce.PSN(peer.PSN), MTU: mtu, Timeout: t.Timeout, RetryCnt: t.Retries,
		RNRRetry: t.RNRRetries, MinRNRTimer: roce.RNRTimer(t.MinRNRTimer), RdAtomic: t.Reads}, e.psn)
}

// inside returns an error unless count pieces of size bytes, step bytes apart, are within the memory.
func (e *end) inside(at, size, step, count int) error {
	if at < 0 || size < 0 || step < 0 || count < 1 || count > maxDepth || size > maxMemory || step > maxMemory || at+step*(count-1)+size > e.mem.Len() {
		return usage.Errorf("%d pieces of %d bytes from %d, %d apart: want 1 to %d within the memory of %d bytes", count, size, at, step, maxDepth, e.mem.Len())
	}
	return nil
}

// fill writes random bytes, the same for the same seed.
func (e *end) fill(seed uint64, at, size int) error {
	if err := e.inside(at, size, 0, 1); err != nil {
		return err
	}
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	b := make([]byte, size)
	rand.NewChaCha8(key).Read(b)
	_, err := e.mem.WriteAt(b, int64(at))
	return err
}

// sum returns a hash of memory.
func (e *end) sum(at, size int) (string, error) {
	b, err := e.read(at, size)
	if err != nil {
		return "", err
	}
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:]), nil
}

// peek returns the contents of memory.
func (e *end) peek(at, size int) ([]byte, error) {
	if size > maxPeek {
		return nil, usage.Errorf("%d bytes: want at most %d", size, maxPeek)
	}
	return e.read(at, size)
}

// read copies memory, which peers may write at the same moment.
func (e *end) read(at, size int) ([]byte, error) {
	if err := e.inside(at, size, 0, 1); err != nil || size == 0 {
		return nil, err
	}
	b := make([]byte, size)
	_, err := e.mem.ReadAt(b, int64(at))
	return b, err
}

// receive posts receives.
func (e *end) receive(at, size, step, count int) error {
	if err := errors.Join(e.inside(at, size, step, count), e.ready()); err != nil {
		return err
	}
	post := e.qp.PostRecv
	if e.srq != nil {
		post = e.srq.PostRecv
	}
	for i := range count {
		if err := post(&roce.RecvWR{ID: uint64(i), SG: e.piece(at+i*step, size)}); err != nil {
			return err
		}
	}
	return nil
}

// piece returns memory as a scatter list, which is empty if the piece is.
func (e *end) piece(at, size int) []roce.SGE {
	if size == 0 {
		return nil
	}
	return []roce.SGE{e.mem.SGE(at, size)}
}

// ready returns an error if the connection manager has not created the queue pair yet.
func (e *end) ready() error {
	if e.qp == nil {
		return errors.New("the queue pair is not connected")
	}
	return nil
}

// post posts work requests.
func (e *end) post(w work) error {
	op, ok := opcodes[w.Op]
	if !ok {
		return usage.Errorf("operation %q is unknown", w.Op)
	}
	if err := errors.Join(e.inside(w.At, w.Size, w.Step, w.Count), e.ready()); err != nil {
		return err
	}
	wrs := make([]roce.SendWR, w.Count)
	for i := range wrs {
		wrs[i] = roce.SendWR{ID: uint64(i), Opcode: op, SG: e.piece(w.At+i*w.Step, w.Size), Imm: w.Imm, CompareAdd: w.Add, Swap: w.Swap,
			RemoteAddr: e.peer.Addr + uint64(w.Far+i*w.FarStep), RKey: roce.RKey(e.peer.RKey),
			AH: e.toPeer, RemoteQPN: roce.QPN(e.peer.QPN), RemoteQKey: qkey}
	}
	_, err := e.qp.PostSends(wrs)
	return err
}

// wait returns the next completions of a queue.
func (e *end) wait(ctx context.Context, queue queueName, count int) ([]done, error) {
	q := e.sends
	switch queue {
	case sends:
	case receives:
		q = e.receives
	default:
		return nil, usage.Errorf("queue %q: want %s or %s", queue, sends, receives)
	}
	if err := usage.Range("count", count, 1, maxDepth); err != nil {
		return nil, err
	}
	list := make([]done, 0, count)
	for range count {
		wc, err := q.Next(ctx)
		if err != nil {
			return list, fmt.Errorf("%d of %d completions: %w", len(list), count, err)
		}
		d := done{Status: wc.Status.String(), Bytes: int(wc.ByteLen)}
		if wc.Status == roce.StatusSuccess && wc.Flags&roce.WCWithImm != 0 {
			d.Imm, d.HasImm = wc.Imm, true
		}
		list = append(list, d)
	}
	return list, nil
}

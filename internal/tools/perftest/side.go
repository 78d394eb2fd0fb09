package perftest

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/usage"
)

// Parameters of the queue pairs, as perftest sets them.
const (
	retryCount  = 7
	rnrRetry    = 7
	minRNRTimer = 12 // 0.64 ms

	qkey roce.QKey = 0x11111111
)

// side is one program: its queue pairs and what they share.
type side struct {
	*objects.Set
	cfg    *Config
	dev    *roce.Device
	server bool
	terms  terms
	size   int // current size of a message in bytes
	index  int // of the local address in the GID table
	cq     *roce.CQ
	lanes  []*end
	wcs    [64]roce.WC
	idle   uint // polls without a completion
}

// end is one queue pair and its memory.
type end struct {
	*side
	lane   int
	qp     *roce.QP
	export *roce.MR // the target of the peer's operations
	local  Dest
	remote Dest
	ah     *roce.AH // UD: where messages go
}

// sends reports whether this side sends the messages of the test.
func (s *side) sends() bool { return !s.server || s.cfg.Both || s.cfg.Test.mutual }

// receives reports whether this side posts receives for them.
func (s *side) receives() bool {
	return s.cfg.Test.TwoSided && (s.server || s.cfg.Both || s.cfg.Test.mutual)
}

// IDs of work requests: a bit for receives, the queue pair, the message.
const (
	laneShift = 48
	recvFlag  = 1 << 63
	indexMask = 1<<laneShift - 1
)

func (e *end) sendID(i int) uint64 { return uint64(e.lane)<<laneShift | uint64(i) }
func (e *end) recvID(i int) uint64 { return e.sendID(i) | recvFlag }

func laneOf(id uint64) int  { return int(id &^ recvFlag >> laneShift) }
func indexOf(id uint64) int { return int(id & indexMask) }

// newSide makes the queue pairs. peer is the address of the other side of the exchange.
func newSide(d *roce.Device, c *Config, t terms, peer netip.Addr, server bool) (s *side, err error) {
	s = &side{Set: objects.New(d), cfg: c, dev: d, server: server, terms: t, size: c.Size}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if s.index, err = oob.ChooseGID(d, c.GIDIndex, peer); err != nil {
		return s, fmt.Errorf("perftest: %w", err)
	}
	if c.Service == roce.UD {
		if c.All {
			s.size = min(s.size, t.mtu.Bytes())
			c.Size = s.size
		}
		if c.Size > t.mtu.Bytes() {
			return s, usage.Errorf("-s %d: a datagram has at most the path MTU, %d bytes", c.Size, t.mtu.Bytes())
		}
	}
	caps := roce.Caps{MaxSendWR: c.TxDepth, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: c.InlineSize}
	s.cq = s.CQ(c.QPs * (c.TxDepth + c.RxDepth))
	for i := range c.QPs {
		e := &end{side: s, lane: i}
		s.lanes = append(s.lanes, e)
		access := roce.LocalWrite | c.Test.access
		if c.Test.Watches() {
			access |= roce.Watched
		}
		e.export, _ = s.register(e.extent(), access)
		e.qp = s.QP(roce.QPConfig{Type: c.Service, SendCQ: s.cq, Caps: caps, SplitWrites: c.SplitWrites})
		if err := s.Err(); err != nil {
			return s, err
		}
		if err := e.qp.Init(c.Test.access, qkey); err != nil {
			return s, err
		}
		e.local = Dest{OutReads: 1, QPN: e.qp.Num(), PSN: d.RandomPSN(), RKey: e.export.RKey(), VAddr: e.export.Addr(), GID: d.GIDs()[s.index]}
		if c.Test.Reads {
			e.local.OutReads = uint32(c.OutReads)
		}
	}
	return s, nil
}

// register registers n bytes, rounded up to words, until the side is closed.
func (s *side) register(n int, access roce.Access) (*roce.MR, error) {
	return s.MR((n+7)&^7, access), s.Err()
}

// connect moves the queue pair to RTS. Each end has at most as many READs and atomics in flight as
// the other accepts.
func (e *end) connect(ctx context.Context, remote Dest) (err error) {
	switch {
	case remote.GID.IsZero():
		return fmt.Errorf("perftest: the peer has no GID; start it with -x and the index of its IP address")
	case remote.GID.Is4() != e.local.GID.Is4():
		return fmt.Errorf("perftest: the peer's address is %v, the own %v: both ends need the same IP version: choose with -x, or the interface with --dev", remote.GID, e.local.GID)
	case remote.OutReads == 0 && e.cfg.Test.Reads:
		return fmt.Errorf("perftest: the peer answers no READs and atomics (out_reads 0)")
	}
	e.remote = remote
	to := roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index}
	if e.cfg.Service == roce.UD {
		if err := e.qp.Ready(e.local.PSN); err != nil {
			return err
		}
		e.ah, err = e.dev.CreateAH(ctx, to)
		return err
	}
	return e.qp.Connect(ctx, roce.Peer{
		AHAttr: to,
		QPN:    remote.QPN, PSN: remote.PSN, MTU: e.terms.mtu, Timeout: e.cfg.Timeout, RetryCnt: retryCount, RNRRetry: rnrRetry,
		MinRNRTimer: minRNRTimer, RdAtomic: uint8(min(remote.OutReads, e.local.OutReads)), DestRdAtomic: uint8(e.local.OutReads),
	}, e.local.PSN)
}

// poll polls for completions. If there are none, it returns no completions: at once if this side busy-polls, otherwise after
// it has slept until one comes.
func (s *side) poll(ctx context.Context) ([]roce.WC, error) {
	if n := s.cq.Poll(s.wcs[:]); n > 0 {
		return s.wcs[:n], nil
	}
	if !s.spinning() {
		return nil, s.cq.Wait(ctx)
	}
	return nil, s.spin(ctx)
}

// spinning reports whether this side busy-polls. If not, it sleeps until a completion comes.
func (s *side) spinning() bool { return s.cfg.Poll && !s.cfg.Events }

// spin is called after a poll without a completion. Now and then it yields the processor.
func (s *side) spin(ctx context.Context) error {
	if s.idle++; s.idle%64 != 0 {
		return nil
	}
	runtime.Gosched()
	return ctx.Err()
}

// Messages cycle through a buffer: message i is at place i modulo the number of places, in the memory of both ends. If a message is
// larger than half the buffer there is only one place, and so it is in all latency tests.

func (e *end) extent() int { return max(e.cfg.Size, e.terms.cycle) }

// step returns the distance between two places.
func (e *end) step() int { return (e.size + e.terms.line - 1) / e.terms.line * e.terms.line }

func (e *end) places() int {
	if e.size > e.terms.cycle/2 || e.cfg.Test.Latency {
		return 1
	}
	return e.terms.cycle / e.step()
}

// place returns the offset of message i.
func (e *end) place(i int) int { return i % e.places() * e.step() }

package perftest

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"runtime"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
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
	cfg    *Config
	dev    *roce.Device
	server bool
	terms  terms
	size   int // bytes of the messages now
	index  int // of the own address
	pd     *roce.PD
	cq     *roce.CQ
	lanes  []*end
	owned  []io.Closer
	wcs    [64]roce.WC
	idle   uint // polls that have found nothing
}

// end is one queue pair and its memory.
type end struct {
	*side
	lane   int
	qp     *roce.QP
	export *roce.MR // what the peer's operations are about
	local  Dest
	remote Dest
	ah     *roce.AH // UD: where messages go
}

// sends reports whether this side sends messages that the test is about.
func (s *side) sends() bool { return !s.server || s.cfg.Both || s.cfg.Test.mutual }

// receives reports whether it gets them as such.
func (s *side) receives() bool {
	return s.cfg.Test.twoSided && (s.server || s.cfg.Both || s.cfg.Test.mutual)
}

// IDs of work requests: what it is, the queue pair, the message.
const (
	laneShift = 48
	recvFlag  = 1 << 63
	indexMask = 1<<laneShift - 1
)

func (e *end) sendID(i int) uint64 { return uint64(e.lane)<<laneShift | uint64(i) }
func (e *end) recvID(i int) uint64 { return e.sendID(i) | recvFlag }

func laneOf(id uint64) int  { return int(id &^ recvFlag >> laneShift) }
func indexOf(id uint64) int { return int(id & indexMask) }

// newSide makes the queue pairs. peer is the address the other side is reached at by
// TCP.
func newSide(d *roce.Device, c *Config, t terms, peer netip.Addr, server bool) (s *side, err error) {
	s = &side{cfg: c, dev: d, server: server, terms: t, size: c.Size, pd: d.AllocPD()}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	s.own(s.pd)
	if s.index, err = oob.ChooseGID(d, c.GIDIndex, peer); err != nil {
		return s, fmt.Errorf("perftest: %w", err)
	}
	if c.Service == roce.UD {
		if c.All {
			s.size = min(s.size, t.mtu.Bytes())
			c.Size = s.size
		}
		if c.Size > t.mtu.Bytes() {
			return s, fmt.Errorf("perftest: size %d: a datagram has at most the path MTU, %d", c.Size, t.mtu.Bytes())
		}
	}
	caps := roce.Caps{MaxSendWR: c.TxDepth, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: c.InlineSize}
	if s.cq, err = d.CreateCQ(c.QPs * (c.TxDepth + c.RxDepth)); err != nil {
		return s, err
	}
	s.own(s.cq)
	for i := range c.QPs {
		e := &end{side: s, lane: i}
		s.lanes = append(s.lanes, e)
		access := roce.LocalWrite | c.Test.access
		if c.Test.Watches() {
			access |= roce.Watched
		}
		if e.export, err = s.register(e.extent(), access); err != nil {
			return s, err
		}
		if e.qp, err = s.pd.CreateQP(roce.QPConfig{Type: c.Service, SendCQ: s.cq, Caps: caps, SplitWrites: c.SplitWrites}); err != nil {
			return s, err
		}
		s.own(e.qp)
		if err := e.qp.Init(c.Test.access, qkey); err != nil {
			return s, err
		}
		e.local = Dest{OutReads: 1, QPN: e.qp.Num(), PSN: d.RandomPSN(), RKey: e.export.RKey(), VAddr: e.export.Addr(), GID: d.GIDs()[s.index]}
		if c.Test.reads {
			e.local.OutReads = uint32(c.OutReads)
		}
	}
	return s, nil
}

// register registers n bytes for as long as the side lives.
func (s *side) register(n int, access roce.Access) (*roce.MR, error) {
	m, err := s.pd.AllocMR((n+7)&^7, access)
	if err != nil {
		return nil, err
	}
	s.own(m)
	return m, nil
}

func (s *side) own(c io.Closer) { s.owned = append(s.owned, c) }

// close frees everything, the last made first.
func (s *side) close() {
	for i := len(s.owned) - 1; i >= 0; i-- {
		s.owned[i].Close()
	}
}

// connect takes the queue pair to RTS. Either end sends what the other answers at a
// time, and perftest may do so whatever its own limit is.
func (e *end) connect(ctx context.Context, remote Dest) (err error) {
	switch {
	case remote.GID.IsZero():
		return fmt.Errorf("perftest: the peer has no GID; start it with -x and the index of its IP address")
	case remote.GID.Is4() != e.local.GID.Is4():
		return fmt.Errorf("perftest: the peer's address is %v, the own %v: one IP version is needed; choose with -x", remote.GID, e.local.GID)
	case remote.OutReads == 0 && e.cfg.Test.reads:
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

// poll takes completions. If there are none it returns after a while, sleeping or
// not as was asked for.
func (s *side) poll(ctx context.Context) ([]roce.WC, error) {
	if n := s.cq.Poll(s.wcs[:]); n > 0 {
		return s.wcs[:n], nil
	}
	if !s.spinning() {
		return nil, s.cq.Wait(ctx)
	}
	return nil, s.spin(ctx)
}

// spinning reports whether this side waits without sleeping.
func (s *side) spinning() bool { return s.cfg.Poll && !s.cfg.Events }

// spin is called when there was nothing to be done. Now and then it lets others have
// the processor.
func (s *side) spin(ctx context.Context) error {
	if s.idle++; s.idle%64 != 0 {
		return nil
	}
	runtime.Gosched()
	return ctx.Err()
}

// Where messages go round: message i, and its counterpart in the peer's memory, is at
// place i modulo the number of places. A message larger than half the buffer stays
// put, and so do all of a latency test.

// extent is how large the buffer is.
func (e *end) extent() int { return max(e.cfg.Size, e.terms.cycle) }

// step is what places are apart.
func (e *end) step() int { return (e.size + e.terms.line - 1) / e.terms.line * e.terms.line }

// places is how many there are.
func (e *end) places() int {
	if e.size > e.terms.cycle/2 || e.cfg.Test.Latency {
		return 1
	}
	return e.terms.cycle / e.step()
}

// place is where message i is.
func (e *end) place(i int) int { return i % e.places() * e.step() }

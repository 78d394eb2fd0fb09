package perftest

import (
	"context"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
)

// Parameters of the queue pair, as perftest sets them.
const (
	retryCount  = 7
	rnrRetry    = 7
	minRNRTimer = 12 // 0.64 ms
)

// end is one side: a queue pair and its memory.
type end struct {
	cfg     *Config
	terms   terms
	cq      *roce.CQ
	qp      *roce.QP
	scratch *roce.MR // what the own operations take from and return to
	export  *roce.MR // what the peer's operations are about
	service service
	local   Dest
	index   int // of the own address
	owned   []io.Closer
}

// newEnd makes a queue pair. peer is the address the other side is reached at by TCP.
func newEnd(d *roce.Device, c *Config, t terms, peer netip.Addr) (e *end, err error) {
	e = &end{cfg: c, terms: t}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.index, err = oob.ChooseGID(d, c.GIDIndex, peer); err != nil {
		return e, fmt.Errorf("perftest: %w", err)
	}
	pd := d.AllocPD()
	e.own(pd)
	access := c.Test.access
	for _, m := range []struct {
		mr     **roce.MR
		size   int
		access roce.Access
	}{{&e.scratch, max(c.Size, c.TxDepth*t.line), roce.LocalWrite}, {&e.export, max(c.Size, t.cycle), roce.LocalWrite | access}} {
		if *m.mr, err = pd.RegMR(make([]byte, m.size), m.access); err != nil {
			return e, err
		}
		e.own(*m.mr)
	}
	if e.cq, err = d.CreateCQ(c.TxDepth); err != nil {
		return e, err
	}
	e.own(e.cq)
	e.qp, err = pd.CreateQP(roce.QPConfig{SendCQ: e.cq, SignalAll: true, Caps: roce.Caps{MaxSendWR: c.TxDepth, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return e, err
	}
	e.own(e.qp)
	if err := e.qp.Init(access, 0); err != nil {
		return e, err
	}
	e.service = c.Test.serve(e)
	e.local = Dest{OutReads: 1, QPN: e.qp.Num(), PSN: d.RandomPSN(), RKey: e.export.RKey(), VAddr: e.export.Addr(), GID: d.GIDs()[e.index]}
	if c.Test.reads {
		e.local.OutReads = uint32(c.OutReads)
	}
	return e, nil
}

func (e *end) own(c io.Closer) { e.owned = append(e.owned, c) }

// close frees everything, the last made first.
func (e *end) close() {
	for i := len(e.owned) - 1; i >= 0; i-- {
		e.owned[i].Close()
	}
}

// connect takes the queue pair to RTS. Either end sends what the other answers at a
// time, and perftest may do so whatever its own limit is.
func (e *end) connect(ctx context.Context, remote Dest) error {
	switch {
	case remote.GID.IsZero():
		return fmt.Errorf("perftest: the peer has no GID; start it with -x and the index of its IP address")
	case remote.GID.Is4() != e.local.GID.Is4():
		return fmt.Errorf("perftest: the peer's address is %v, the own %v: one IP version is needed; choose with -x", remote.GID, e.local.GID)
	case remote.OutReads == 0 && e.cfg.Test.reads:
		return fmt.Errorf("perftest: the peer answers no READs and atomics (out_reads 0)")
	}
	return e.qp.Connect(ctx, roce.Peer{
		AHAttr: roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index},
		QPN:    remote.QPN, PSN: remote.PSN, MTU: e.terms.mtu, Timeout: e.cfg.Timeout, RetryCnt: retryCount, RNRRetry: rnrRetry,
		MinRNRTimer: minRNRTimer, RdAtomic: uint8(min(remote.OutReads, e.local.OutReads)), DestRdAtomic: uint8(e.local.OutReads),
	}, e.local.PSN)
}

// step is what small messages are apart in the buffer they go round in.
func (e *end) step() int { return (e.cfg.Size + e.terms.line - 1) / e.terms.line * e.terms.line }

// places is how many of them fit; a message as large as half the buffer stays put.
func (e *end) places() int {
	if e.cfg.Size > e.terms.cycle/2 {
		return 1
	}
	return e.terms.cycle / e.step()
}

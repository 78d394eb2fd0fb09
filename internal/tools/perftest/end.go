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
	cfg    *Config
	terms  terms
	pd     *roce.PD
	cq     *roce.CQ
	qp     *roce.QP
	export *roce.MR // what the peer's operations are about
	local  Dest
	index  int // of the own address
	owned  []io.Closer
}

// newEnd makes a queue pair. peer is the address the other side is reached at by TCP.
func newEnd(d *roce.Device, c *Config, t terms, peer netip.Addr) (e *end, err error) {
	e = &end{cfg: c, terms: t, pd: d.AllocPD()}
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	e.own(e.pd)
	if e.index, err = oob.ChooseGID(d, c.GIDIndex, peer); err != nil {
		return e, fmt.Errorf("perftest: %w", err)
	}
	if e.export, err = e.register(e.extent(), roce.LocalWrite|c.Test.access); err != nil {
		return e, err
	}
	if e.cq, err = d.CreateCQ(c.TxDepth + c.RxDepth); err != nil {
		return e, err
	}
	e.own(e.cq)
	e.qp, err = e.pd.CreateQP(roce.QPConfig{SendCQ: e.cq, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: c.TxDepth, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return e, err
	}
	e.own(e.qp)
	if err := e.qp.Init(c.Test.access, 0); err != nil {
		return e, err
	}
	e.local = Dest{OutReads: 1, QPN: e.qp.Num(), PSN: d.RandomPSN(), RKey: e.export.RKey(), VAddr: e.export.Addr(), GID: d.GIDs()[e.index]}
	if c.Test.reads {
		e.local.OutReads = uint32(c.OutReads)
	}
	return e, nil
}

// register registers n bytes for as long as the end lives.
func (e *end) register(n int, access roce.Access) (*roce.MR, error) {
	m, err := e.pd.RegMR(make([]byte, n), access)
	if err != nil {
		return nil, err
	}
	e.own(m)
	return m, nil
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

// Where messages go round: message i, and its counterpart in the peer's memory, is at
// place i modulo the number of places. A message larger than half the buffer stays put.

// extent is how large the buffer is.
func (e *end) extent() int { return max(e.cfg.Size, e.terms.cycle) }

// step is what places are apart.
func (e *end) step() int { return (e.cfg.Size + e.terms.line - 1) / e.terms.line * e.terms.line }

// places is how many there are.
func (e *end) places() int {
	if e.cfg.Size > e.terms.cycle/2 {
		return 1
	}
	return e.terms.cycle / e.step()
}

// place is where message i is.
func (e *end) place(i int) int { return i % e.places() * e.step() }

package pingpong

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/roce"
)

// Kind is one of rdma-core's programs.
type Kind uint8

// The programs.
const (
	RC  Kind = iota // ibv_rc_pingpong
	UC              // ibv_uc_pingpong: after a lost message both ends wait for ever
	UD              // ibv_ud_pingpong: like UC, and a message is one packet
	SRQ             // ibv_srq_pingpong: many RC queue pairs with one receive queue
)

// kinds has the properties in which the programs differ.
var kinds = [...]struct {
	name     string
	typ      roce.QPType
	reliable bool
	shared   bool // several queue pairs, one receive queue
	records  int  // addresses that each side sends, used or not
	head     int  // bytes in front of a received message
	size     int  // default size
	pattern  byte // of all bytes of a message
	connect  func(*end, context.Context, *lane, Addr) error
}{
	RC:  {name: "rc", typ: roce.RC, reliable: true, records: 1, size: 4096, pattern: 0x7b, connect: (*end).connectTo},
	UC:  {name: "uc", typ: roce.UC, records: 1, size: 4096, pattern: 0x7b, connect: (*end).connectTo},
	UD:  {name: "ud", typ: roce.UD, records: 1, head: roce.GRHLen, size: 1024, pattern: 0x7b, connect: (*end).aimAt},
	SRQ: {name: "srq", typ: roce.RC, reliable: true, shared: true, records: 256, size: 4096, connect: (*end).connectTo},
}

// String returns the name of the program without its ending.
func (k Kind) String() string { return "ibv_" + kinds[k].name }

// maxQPs is the largest number of queue pairs of ibv_srq_pingpong.
const maxQPs = 255

// Parameters of the queue pairs, as rdma-core's programs set them.
const (
	ackTimeout  = 14 // 67 ms
	retryCount  = 7
	rnrRetry    = 7
	minRNRTimer = 12 // 0.64 ms
	rdAtomic    = 1

	qkey roce.QKey = 0x11111111
)

// connectTo moves an RC or UC queue pair to RTS.
func (e *end) connectTo(ctx context.Context, l *lane, remote Addr) error {
	return l.qp.Connect(ctx, roce.Peer{
		AHAttr: roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index},
		QPN:    remote.QPN, PSN: remote.PSN, MTU: e.cfg.MTU, Timeout: ackTimeout, RetryCnt: retryCount, RNRRetry: rnrRetry,
		MinRNRTimer: minRNRTimer, RdAtomic: rdAtomic,
	}, l.local.PSN)
}

// aimAt moves a UD queue pair to RTS and stores the address of its peer.
func (e *end) aimAt(ctx context.Context, l *lane, remote Addr) (err error) {
	if err := l.qp.Ready(l.local.PSN); err != nil {
		return err
	}
	l.to.RemoteQPN, l.to.RemoteQKey = remote.QPN, qkey
	l.to.AH, err = e.Dev.CreateAH(ctx, roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index})
	return err
}

// connect connects the queue pairs to those of the peer.
func (e *end) connect(ctx context.Context, remote []Addr) error {
	for i, l := range e.lanes {
		switch zero := remote[i].GID.IsZero(); {
		case !zero && remote[i].GID.Is4() != l.local.GID.Is4():
			return fmt.Errorf("pingpong: the peer's address is %v, the own %v: both ends need the same IP version: choose with -g, or the interface with --dev",
				remote[i].GID, l.local.GID)
		case !zero:
		case i == 0:
			return errors.New("pingpong: the peer has no GID: start it with -g and the index of its IP address")
		default:
			return fmt.Errorf("pingpong: the peer has %d queue pairs, this end %d: give both ends the same -q", i, len(e.lanes))
		}
		fmt.Fprintf(e.cfg.Out, "  remote address: %v\n", remote[i])
		if err := kinds[e.cfg.Kind].connect(e, ctx, l, remote[i]); err != nil {
			return err
		}
	}
	return nil
}

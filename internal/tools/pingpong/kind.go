package pingpong

import (
	"context"
	"errors"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/qp"
)

// Kind is one of rdma-core's programs.
type Kind uint8

// The programs.
const (
	RC Kind = iota // ibv_rc_pingpong
	UC             // ibv_uc_pingpong: a lost message ends the game
	UD             // ibv_ud_pingpong: the same, and a message is one packet
)

// kinds says what is different.
var kinds = [...]struct {
	typ      qp.Type
	reliable bool
	head     int // bytes in front of a received message
	size     int // default size
	connect  func(*end, context.Context, Addr) error
}{
	RC: {typ: qp.RC, reliable: true, size: 4096, connect: (*end).connectTo},
	UC: {typ: qp.UC, size: 4096, connect: (*end).connectTo},
	UD: {typ: qp.UD, head: roce.GRHLen, size: 1024, connect: (*end).aimAt},
}

// String returns the name of the program without its ending.
func (k Kind) String() string { return fmt.Sprintf("ibv_%s", [...]string{"rc", "uc", "ud"}[k]) }

// Parameters of the queue pairs, as rdma-core's programs set them.
const (
	ackTimeout  = 14 // 67 ms
	retryCount  = 7
	rnrRetry    = 7
	minRNRTimer = 12 // 0.64 ms
	rdAtomic    = 1

	qkey bth.QKey = 0x11111111
)

// connectTo takes a connected queue pair to RTS.
func (e *end) connectTo(ctx context.Context, remote Addr) error {
	return e.qp.Connect(ctx, roce.Peer{
		AHAttr: roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index},
		QPN:    remote.QPN, PSN: remote.PSN, MTU: e.cfg.MTU, Timeout: ackTimeout, RetryCnt: retryCount, RNRRetry: rnrRetry,
		MinRNRTimer: minRNRTimer, RdAtomic: rdAtomic,
	}, e.local.PSN)
}

// aimAt takes a UD queue pair to RTS and notes where its messages go.
func (e *end) aimAt(ctx context.Context, remote Addr) (err error) {
	if err := e.qp.Ready(e.local.PSN); err != nil {
		return err
	}
	e.to.RemoteQPN, e.to.RemoteQKey = remote.QPN, qkey
	e.to.AH, err = e.dev.CreateAH(ctx, roce.AHAttr{DGID: remote.GID, SGIDIndex: e.index})
	return err
}

// connect gets ready to send to the peer.
func (e *end) connect(ctx context.Context, remote Addr) error {
	if remote.GID.IsZero() {
		return errors.New("pingpong: the peer has no GID; start it with -g and the index of its IP address")
	}
	return kinds[e.cfg.Kind].connect(e, ctx, remote)
}

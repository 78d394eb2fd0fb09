package acceptor

import (
	"context"
	"errors"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce"
)

// attemptLimit is how long One waits for a peer to confirm.
const attemptLimit = 5 * time.Second

// One takes requests of a listener until one becomes a connection. It is for programs that serve one peer at a
// time: a peer that does not confirm delays them, but does not stop them. One fails when ctx or the listener ends,
// or when the handshake fails for a local reason.
func One[C any](ctx context.Context, l *roce.Listener, handshake Handshake[C]) (C, error) {
	for {
		request, err := l.Accept(ctx)
		if err != nil {
			var none C
			return none, err
		}
		attempt, cancel := context.WithTimeout(ctx, attemptLimit)
		c, err := handshake(attempt, request)
		cancel()
		if err == nil || ctx.Err() != nil || !OfPeer(err) {
			return c, err
		}
	}
}

// OfPeer reports whether a handshake failed because of the peer or other peers: the peer did not answer, refused,
// disconnected, or was evicted. The next handshake may succeed. False: the reason is local.
func OfPeer(err error) bool {
	var refused *roce.RejectError
	if errors.As(err, &refused) {
		return true
	}
	return slices.ContainsFunc([]error{context.DeadlineExceeded, roce.ErrDisconnected, syscall.ETIMEDOUT, syscall.EHOSTUNREACH, syscall.ENETUNREACH,
		syscall.ECONNRESET, syscall.ECONNABORTED, syscall.EPROTO}, func(e error) bool { return errors.Is(err, e) })
}

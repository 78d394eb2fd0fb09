package cmprobe

import (
	"context"
	"errors"
	"net/netip"

	"github.com/goroce/roce"
)

// Reject listens at addr ("host:port") and refuses the next count connections,
// 0: all until ctx ends, with private data for the peer's application. seen is
// called for each.
func Reject(ctx context.Context, d *roce.Device, addr string, private []byte, count int, listening, seen func(netip.AddrPort)) error {
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr())
	for n := 0; count == 0 || n < count; n++ {
		request, err := l.Accept(ctx)
		if errors.Is(err, context.Canceled) && count == 0 {
			return nil
		}
		if err != nil {
			return err
		}
		if err := request.Reject(private); err != nil {
			return err
		}
		seen(request.RemoteAddr())
	}
	return nil
}

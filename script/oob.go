package script

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/perftest"
)

// perftestPort is the default of perftest's programs.
const perftestPort = 18515

// connectTCP connects by perftest's exchange over TCP.
func (s *Session) connectTCP(c *connectStep) error {
	if err := s.settings(c); err != nil {
		return err
	}
	host, port := s.wire.Peer.Addr(), s.conn.port
	if c.passive {
		host = s.wire.Own.Addr()
	}
	if s.opts.TCP.IsValid() {
		host = s.opts.TCP
	}
	if port == defaultPort {
		port = perftestPort
	}
	addr := netip.AddrPortFrom(host.Unmap(), port).String()
	ctx, stop := context.WithTimeout(s.ctx, 3*s.opts.Timeout)
	s.closers = append(s.closers, func() error { stop(); return nil })
	var tcp *oob.Conn
	var err error
	if c.passive {
		tcp, err = oob.Accept(ctx, addr, s.opts.Listening)
	} else {
		tcp, err = oob.Dial(ctx, addr)
	}
	if err != nil {
		return fmt.Errorf("connecting to the peer by TCP: %w", err)
	}
	s.closers = append(s.closers, tcp.Close)
	mine := perftest.Dest{OutReads: uint32(s.conn.reads), QPN: s.own, PSN: s.first, RKey: bth.RKey(s.numbers["own.rkey"]), VAddr: s.numbers["own.va"], GID: s.wire.Own}
	type met struct {
		d   perftest.Dest
		mtu bth.MTU
		err error
	}
	done := make(chan met, 1)
	go func() {
		d, m, err := perftest.Introduce(tcp, c.passive, strings.Contains(s.peerProgram, "send"), mine, s.conn.mtu)
		done <- met{d, m, err}
	}()
	for len(done) == 0 { // receives meanwhile, because packets may arrive before the exchange is complete
		if err := s.until(2*time.Millisecond, func() bool { return false }); err != nil {
			return err
		}
	}
	m := <-done
	if m.err != nil {
		return m.err
	}
	s.qpn, s.theirs, s.latest, s.mtu = m.d.QPN, m.d.PSN, m.d.PSN, m.mtu.Bytes()
	s.conn.peerQPN = s.qpn
	s.numbers["mem.va"], s.numbers["mem.rkey"] = m.d.VAddr, uint64(m.d.RKey)
	return nil
}

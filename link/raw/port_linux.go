package raw

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/claim"
	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/link"
)

type base = driver.Socket

// Port is a packet socket on one interface. It implements link.Port.
type Port struct {
	base
	cfg   Config
	queue string       // number of the queue, if there are several
	claim *claim.Claim // of the UDP port
	take  kind         // the packets that its filter accepts
	mads  *Port        // receives the management datagrams, nothing else; nil: they arrive with the data
	place *share.Place // of the first queue, on an interface that processes share
	slots []share.Slot // the filter accepts the packets for these; nil: for all
	owner *share.Owner // of the first queue, on an interface that the device has for itself

	tx tx
	rx rx
}

// newPort returns a Port with an unbound socket.
func newPort(c Config, count *link.Counters) (*Port, error) {
	p := &Port{cfg: c, base: base{Gate: gate.New(), Count: count}}
	p.Fail = func(op string, errno unix.Errno) *errs.Error {
		return driver.Fail("raw", op, c.Interface, errno, hints)
	}
	p.Attach = func(s *driver.Screened) error { return p.listen(p.take, s) }
	var err error
	if p.FD, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		return nil, p.FailStep("socket", err)
	}
	return p, nil
}

// Info implements link.Port.
func (p *Port) Info() link.Info {
	i := p.Desc
	i.Mode = "sendmmsg/recvmmsg"
	if p.tx.gso {
		i.Mode += ", GSO"
		if n := p.tx.plainPeers.Load(); n > 0 {
			i.Mode += fmt.Sprintf(" except to %d peers", n)
		}
	}
	if p.tx.bypass.Load() {
		i.Mode += ", qdisc bypass"
	}
	if p.queue != "" {
		i.Mode += ", " + p.queue
	}
	i.Mode += p.MADMode()
	return i
}

// Stats implements link.Port.
func (p *Port) Stats() link.Stats { return p.base.Stats(countDrops) }

// countDrops adds the socket's count of packets for which the receive buffer was full.
// Reading resets the kernel's counter.
func countDrops(s *base) {
	if got, err := unix.GetsockoptTpacketStats(s.FD, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		s.Count.RxDrops.Add(uint64(got.Drops))
	}
}

// Close implements link.Port. It waits for calls in progress.
func (p *Port) Close() error {
	p.Screen.Close()
	if err := p.base.Close(); err != nil {
		return err
	}
	return p.leave()
}

// leave gives up the interface.
func (p *Port) leave() error {
	p.claim.Release()
	if p.place != nil {
		return p.place.Close()
	}
	return p.owner.Close()
}

// free frees the files of a Port whose opening failed.
func (p *Port) free() {
	p.Free()
	p.leave()
}

// hints are the remedies for errors.
var hints = map[unix.Errno]string{
	unix.EPERM:      needs,
	unix.EACCES:     needs,
	unix.EADDRINUSE: claim.HintShare,
}

const needs = "needs CAP_NET_RAW: run as root, or setcap cap_net_raw+ep on the program"

func failure(op, ifname string, errno unix.Errno) *errs.Error {
	return driver.Fail("raw", op, ifname, errno, hints)
}

package udp

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

// maxRetries is how often a send without room behind the socket is repeated at once.
const maxRetries = 8

// verdict is what an errno of a send means for its message.
type verdict int

const (
	unfit   verdict = iota // it cannot go; perhaps not in this form
	again                  // try again
	starve                 // no room in the socket
	crowded                // no room behind it
	tooLong                // for the way to the peer, it turned out
	absent                 // no way to the peer: or the link is down
	refused                // a firewall or a security module does not let it go
)

var verdicts = map[unix.Errno]verdict{
	unix.EINTR: again, unix.ECONNREFUSED: again,
	unix.EAGAIN:  starve,
	unix.ENOBUFS: crowded, unix.ENOMEM: crowded,
	unix.EMSGSIZE: tooLong,
	unix.ENETDOWN: absent, unix.ENXIO: absent, unix.ENODEV: absent, unix.ENETUNREACH: absent,
	unix.EHOSTUNREACH: absent, unix.EADDRNOTAVAIL: absent,
	unix.EPERM: refused, unix.EACCES: refused,
}

// send sends what is committed. What there is no room for stays.
func (p *Port) send() (err error) {
	t := &p.tx
	if t.queued == 0 {
		return nil
	}
	if !p.Gate.Enter() {
		return link.ErrClosed
	}
	defer p.Gate.Leave()
	t.open = false
	for retries := 0; t.sent < t.queued; {
		n, errno := p.sendBatch(t.build())
		if n > 0 {
			retries = 0
			p.Unblock()
			t.patience.Went()
			p.Alive()
			continue
		}
		m := &t.queue[t.sent]
		switch verdicts[errno] {
		case again:
			// Or something an earlier packet met with, told now.
			if retries++; retries > maxRetries {
				t.drop(&p.Count.TxDrops)
				retries = 0
			}
		case starve:
			p.Count.TxRetries.Add(1)
			p.Await(&p.Starved)
			return err
		case crowded:
			p.Count.TxRetries.Add(1)
			if retries++; retries <= maxRetries {
				runtime.Gosched()
				break
			}
			retries = 0
			if down := p.LinkState("send"); down != nil {
				return p.giveUp(down)
			}
			switch {
			case t.patience.Refused(t.clock()):
				p.Unblock() // there is room in the socket: Wait would not wait
				p.Await(&p.Crowded)
				return err
			case m.count > 1 && !m.split:
				t.split(m, 0) // there may be memory for less
			default:
				t.drop(&p.Count.TxDrops)
			}
		case tooLong:
			t.drop(&p.Count.TxOversize)
		case absent:
			if down := p.LinkState("send"); down != nil {
				return p.giveUp(down)
			}
			err = p.refuse(err, errno)
		case refused:
			err = p.refuse(err, errno)
		default:
			if m.count > 1 && !m.split {
				t.split(m, errno)
				break
			}
			err = p.refuse(err, errno)
		}
	}
	p.empty()
	return err
}

// empty begins the queue again from its front. Nothing is left to wait with.
func (p *Port) empty() {
	t := &p.tx
	t.sent, t.queued, t.tail = 0, 0, 0
	p.Unblock()
	t.stale = t.stale || t.gso && t.alone // whether super-packets may be tried again
}

// refuse gives up the first message. It returns the error to report, the first.
func (p *Port) refuse(err error, errno unix.Errno) error {
	p.tx.drop(&p.Count.TxErrors)
	if err == nil {
		err = p.Fail("send", errno)
	}
	return err
}

// giveUp drops everything because the link is down or gone.
func (p *Port) giveUp(err error) error {
	t := &p.tx
	p.Look()
	for t.sent < t.queued {
		t.drop(&p.Count.TxDrops)
	}
	p.empty()
	return err
}

// drop gives up what is left of the first message.
func (t *tx) drop(counter *atomic.Uint64) {
	counter.Add(uint64(t.queue[t.sent].count - t.part))
	t.sent++
	t.part = 0
}

// sendBatch sends what was built, counts, and returns how many of it went.
func (p *Port) sendBatch(messages int) (int, unix.Errno) {
	t := &p.tx
	order.Sent()
	n, errno := t.sendmmsg(p.FD, t.msgs[:messages])
	if errno != 0 {
		return 0, errno
	}
	packets, bytes := 0, uint64(0)
	for i := range n {
		packets += t.packets[i]
		bytes += uint64(t.iov[i].Len)
		m := &t.queue[t.sent]
		if t.part += t.packets[i]; t.part == m.count {
			if m.count > 1 && (m.errno != 0 || t.supers.Any()) {
				t.judge(m)
			}
			t.sent, t.part = t.sent+1, 0
		}
	}
	p.Count.Sent(packets, bytes)
	return n, 0
}

// judge learns from several packets that have all left. If the kernel has refused them as
// a super-packet it does not take so many, or does not take super-packets to this peer.
func (t *tx) judge(m *message) {
	dst := m.path.Config().Dst
	switch {
	case m.errno == unix.EINVAL && m.count > fewSegments && t.most > fewSegments:
		t.most = fewSegments
	case m.errno != 0:
		t.supers.Failed(t.clock(), dst)
	case !m.split:
		t.supers.Worked(dst)
	}
	t.plainPeers.Store(int32(t.supers.Paused(t.clock())))
	t.stale = true
}

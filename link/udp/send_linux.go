package udp

import (
	"runtime"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/driver"
	"github.com/goroce/roce/internal/order"
	"github.com/goroce/roce/link"
)

// maxRetries is the number of immediate repetitions of a send if there is no room
// behind the socket.
const maxRetries = 8

// verdict is the meaning of a send's errno for its message.
type verdict int

const (
	unfit   verdict = iota // it cannot be sent, perhaps only in this form
	again                  // try again
	starve                 // no room in the socket
	crowded                // no room behind the socket
	tooLong                // too long for the path to the peer
	absent                 // no route to the peer, or the link is down
	refused                // a firewall or a security module blocks it
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

// send sends committed messages. Messages without room stay queued.
func (p *Port) send() (err error) {
	t := &p.tx
	if t.queued == 0 {
		return nil
	}
	if !p.Gate.Enter() {
		return link.ErrClosed
	}
	err = p.sendQueued()
	p.Gate.Leave() // not deferred: that costs each packet time
	return err
}

// sendQueued is send while the socket is in use.
func (p *Port) sendQueued() (err error) {
	t := &p.tx
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
			// The error may also be that of an earlier packet, which the kernel reports only now.
			if retries++; retries > maxRetries {
				t.drop(&p.Count.TxDrops)
				retries = 0
			}
		case starve:
			p.Count.TxRetries.Add(1)
			p.Await(driver.Starved)
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
				p.Await(driver.Crowded)
				return err
			case m.count > 1 && !m.split:
				t.split(m, 0) // there may be memory for smaller messages
			default:
				t.drop(&p.Count.TxDrops)
			}
		case tooLong:
			t.dropTooLong(&p.Count.TxOversize)
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

// empty resets the queue to its front. No message waits for room any more.
func (p *Port) empty() {
	t := &p.tx
	t.sent, t.queued, t.tail = 0, 0, 0
	p.Unblock()
	t.stale = t.stale || t.gso && t.alone // whether super-packets may be tried again
}

// refuse drops the first message. It returns the error to report, which is the
// first one.
func (p *Port) refuse(err error, errno unix.Errno) error {
	p.tx.drop(&p.Count.TxErrors)
	if err == nil {
		err = p.Fail("send", errno)
	}
	return err
}

// giveUp drops all messages because the link is down or the interface was
// removed.
func (p *Port) giveUp(err error) error {
	t := &p.tx
	p.Look()
	for t.sent < t.queued {
		t.drop(&p.Count.TxDrops)
	}
	p.empty()
	return err
}

// drop drops the rest of the first message.
func (t *tx) drop(counter *atomic.Uint64) {
	counter.Add(uint64(t.queue[t.sent].count - t.part))
	t.sent++
	t.part = 0
}

// dropTooLong drops the packets of the first message that are as long as its first one. A shorter one behind them, for
// instance an acknowledgement, may not be too long, so it leaves separately.
func (t *tx) dropTooLong(counter *atomic.Uint64) {
	m := &t.queue[t.sent]
	last := m.count - 1
	if at, end := m.packet(last); t.part == last || end-at == m.size {
		t.drop(counter)
		return
	}
	if !m.split {
		t.split(m, 0)
	}
	m.errno = 0 // the reason was the length, not that it was a super-packet
	counter.Add(uint64(last - t.part))
	t.part = last
}

// sendBatch sends the built messages, counts them, and returns the number of
// sent ones.
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

// judge is called when all packets of a message have left. If the kernel had refused them
// as a super-packet, it does not accept so many, or does not accept super-packets to this
// peer; judge records this.
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

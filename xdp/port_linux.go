package xdp

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/doze"
	"github.com/goroce/roce/internal/gate"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/xsk"
	"github.com/goroce/roce/link"
)

// Port is one or several queues of an interface. It implements link.Port.
type Port struct {
	card   *card
	info   link.Info // without Mode
	name   string    // its number and the number of Ports, if there are several
	queues []int     // it receives from all, and sends by the first
	gate   gate.Gate // descriptors and rings are in use
	count  link.Counters

	tx tx
	rx rx

	// Of Wait.
	sleeper *doze.Sleeper
	starved atomic.Bool // packets wait for room: Wait returns when there is some

	// Of Stats: the part of the kernel's counters that is already in count.
	asked  sync.Mutex
	before unix.XDPStatistics
}

// Owner implements [share.Owned].
func (p *Port) Owner() share.Teller { return p.card.owner.Teller() }

// Info implements link.Port.
func (p *Port) Info() link.Info {
	i := p.info
	i.Mode = p.card.way.name + ", copy"
	if p.card.zero {
		i.Mode = p.card.way.name + ", zero copy"
	}
	if p.tx.inPlace != never {
		i.Mode += ", payload in place"
	}
	if p.card.cfg.BusyPoll > 0 {
		i.Mode += ", busy poll"
	}
	i.Mode += p.card.filter.early.mode()
	if p.name != "" {
		i.Mode += ", " + p.name
	}
	return i
}

// Stats implements link.Port. It asks the kernel whether the link is up. The
// rings do not show that an interface was removed: in that case Stats makes the next Recv
// return the error.
func (p *Port) Stats() link.Stats {
	if p.gate.Enter() {
		if err := p.look("state"); errors.Is(err, link.ErrNoDevice) && !p.rx.ailing.Swap(true) {
			p.Wake()
		}
		p.ask()
		p.gate.Leave()
	}
	return p.count.Stats()
}

// look asks the kernel whether the link is up: see card.linkState. Called with the gate
// held.
func (p *Port) look(op string) (err error) {
	p.count.Look(func() bool {
		err = p.card.linkState(op)
		return err != nil
	})
	return err
}

// The Port calls alive after a packet was received or sent: if the link was down it may
// be up again. The packet may also be older than the failure, so alive asks the kernel.
func (p *Port) alive() {
	if p.count.Down() {
		p.look("state")
	}
}

// ask reads the kernel's counters, and adds their increase to count. Called with the gate held, or
// closed.
func (p *Port) ask() {
	p.asked.Lock()
	defer p.asked.Unlock()
	var now unix.XDPStatistics
	for _, s := range p.sockets() {
		v, err := s.Statistics()
		if err != nil {
			return
		}
		now.Rx_dropped += v.Rx_dropped
		now.Rx_ring_full += v.Rx_ring_full
		now.Rx_invalid_descs += v.Rx_invalid_descs
		now.Tx_invalid_descs += v.Tx_invalid_descs
	}
	old := &p.before
	p.count.RxDrops.Add(now.Rx_dropped - old.Rx_dropped + now.Rx_ring_full - old.Rx_ring_full)
	p.count.RxErrors.Add(now.Rx_invalid_descs - old.Rx_invalid_descs)
	// The Port has counted the descriptors that discard made invalid as
	// dropped.
	bad := now.Tx_invalid_descs - min(now.Tx_invalid_descs, p.tx.voided.Load())
	p.count.TxErrors.Add(bad - min(bad, old.Tx_invalid_descs))
	now.Tx_invalid_descs = max(bad, old.Tx_invalid_descs)
	*old = now
}

// OnLink implements link.Port.
func (p *Port) OnLink(f func(up bool)) { p.count.OnLink(f) }

// roomTick is the longest time that a sender without room waits before it looks
// again: the kernel does not always report that copies have been sent.
const roomTick = time.Millisecond

// Wait implements link.Port.
func (p *Port) Wait(d time.Duration) error {
	if !p.gate.Enter() {
		return link.ErrClosed
	}
	defer p.gate.Leave()
	starved := p.starved.Load()
	if starved && (d < 0 || d > roomTick) {
		d = roomTick
	}
	broken, errno := p.sleeper.Sleep(d, starved)
	if errno != 0 {
		return failure("wait", p.info.Interface, errno)
	}
	if broken {
		p.rx.ailing.Store(true)
	}
	if p.gate.Closed() {
		return link.ErrClosed
	}
	return nil
}

// Wake implements link.Port.
func (p *Port) Wake() {
	if p.gate.Enter() {
		p.sleeper.Wake()
		p.gate.Leave()
	}
}

// Close implements link.Port. It waits until the last call in progress has
// returned.
func (p *Port) Close() error {
	if !p.gate.Close() {
		return link.ErrClosed
	}
	p.sleeper.Wake()
	p.gate.Drain()
	p.ask()
	p.free()
	p.card.leave()
	return nil
}

// free closes the sockets and rings of the Port. Before, the XDP program must
// have stopped redirecting packets to them.
func (p *Port) free() {
	p.sleeper.Close()
	for i := range p.rx.socks {
		p.card.filter.xsks.Delete(uint32(p.queues[i]))
	}
	for _, s := range p.sockets() {
		s.Close()
	}
}

// sockets returns all sockets of the Port.
func (p *Port) sockets() []*xsk.Socket {
	if t := p.tx.sock; t != nil && !slices.Contains(p.rx.socks, t) {
		return append(slices.Clip(p.rx.socks), t)
	}
	return p.rx.socks
}

// Rings returns the memory and the receiving sockets of the Port, for benchmarks of the link
// itself; the first socket has a TX ring. A caller that uses them must not use the Port.
func (p *Port) Rings() (*xsk.Memory, *xsk.Pool, []*xsk.Socket) {
	return p.card.mem, p.tx.pool, p.rx.socks
}

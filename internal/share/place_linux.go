package share

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/ids"
	"github.com/goroce/roce/errs"
)

// Place is a process's share of an address. Its methods may be called from any
// goroutine.
type Place struct {
	config Config
	ns     namespace
	uid    uint32
	pid    int32
	bag    bag   // the sockets of all slots, held by all processes
	files  []int // the sockets in the bag for the slots of this process
	notes  []string
	board  *board
	slots  []Slot
	pass   []int // the sockets of the slots, for packets from other processes

	// State of the connection with the keeper.
	mu           sync.Mutex
	keeper       *keeper // if this process is the keeper
	line         *line   // otherwise the line to the keeper; nil while there is none
	changed      chan struct{}
	seq          uint64
	waiting      map[uint64]chan message
	claims       map[uint64]int // services for which this process listens, with the number of claims
	claiming     map[uint64]int // calls of Claim that wait for the keeper
	closed       bool
	report       func(detail bool) Report
	orphans      func([]Conn)
	earlyOrphans []Conn // orphans from before OnOrphans

	conns   connTable
	traffic traffic
	courier courier
	running sync.WaitGroup
	done    chan struct{}
}

const (
	sendTime  = 2 * time.Second  // to send a message
	callTime  = 5 * time.Second  // to get an answer of the keeper
	joinTime  = 10 * time.Second // to join
	leaveTime = time.Second      // for the kernel to close the files of a killed process

	// leaveTries is the least number of tries. On a busy machine the kernel needs more than
	// leaveTime, but each try takes longer, too. On an idle machine there are more tries than this
	// in leaveTime.
	leaveTries = 200
	deadTime   = 500 * time.Millisecond
	restTime   = 70 * time.Second // the rest time of a queue pair number: see package nic
)

// Shared returns the Place for [Sharer]: nil if there is none.
func (p *Place) Shared() Shared {
	if p == nil {
		return nil // not a nil *Place in an interface
	}
	return p
}

// Slots implements [Shared].
func (p *Place) Slots() []Slot { return p.slots }

// Keys implements [Shared]. Peers see keys. The shuffle hides the slot of a key from them, so that
// they must guess all bits.
func (p *Place) Keys() ids.Part {
	return ids.Part{Residue: uint32(p.slots[0]), Class: Slots, Shuffle: ids.NewShuffle(p.board.secret)}
}

// Sockets returns the sockets of a queue's slot. The Place still owns them.
func (p *Place) Sockets(queue int) []int {
	n := p.config.Medium.Sockets()
	return p.files[queue*n : (queue+1)*n]
}

// openSockets opens the sockets of the process's slots.
func (p *Place) openSockets() error {
	n := p.config.Medium.Sockets()
	for _, s := range p.slots {
		files, err := p.bag.open(int(s)*n, n)
		if err != nil {
			return err
		}
		p.files = append(p.files, files...)
	}
	return nil
}

// Notes describes the features that were missing when the address was opened.
func (p *Place) Notes() []string { return p.notes }

// Owns reports whether a slot belongs to this process.
func (p *Place) Owns(s Slot) bool { return slices.Contains(p.slots, s) }

// Whose implements [Shared].
func (p *Place) Whose(body []byte) (to Slot, other bool) {
	if len(body) < bth.BTHLen {
		return 0, false
	}
	n := qpnOf(body)
	if n == bth.QPNMulticast { // callers ask only for packets that are not to a group: this one is for no process
		return 0, false
	}
	if n != bth.QPNGSI {
		to = SlotOf(n)
		return to, !p.Owns(to) && p.board.owned(to)
	}
	const mad = bth.BTHLen + bth.DETHLen
	if len(body) < mad+madLen {
		return 0, false
	}
	switch a := addresseeOf(body[mad:]); a.by {
	case byNothing:
		return 0, false
	case byService:
		var ok bool
		if to, ok = p.board.listener(a.service); !ok {
			to = p.board.keeperSlot()
		}
	default:
		to = a.slot
	}
	return to, !p.Owns(to) && p.board.owned(to)
}

// Anybodys implements [Shared].
func (p *Place) Anybodys(body []byte) bool { return madFor(body, byNothing) }

// Heard implements [Shared].
func (p *Place) Heard(body []byte) bool {
	return p.config.Medium.Hear() && (madFor(body, byService) || madFor(body, byNothing))
}

// madFor reports whether a packet is a management datagram that names its addressee in
// the given way.
func madFor(body []byte, by naming) bool {
	const mad = bth.BTHLen + bth.DETHLen
	return len(body) >= mad+madLen && qpnOf(body) == bth.QPNGSI && addresseeOf(body[mad:]).by == by
}

func qpnOf(body []byte) bth.QPN { return bth.QPN(body[5])<<16 | bth.QPN(body[6])<<8 | bth.QPN(body[7]) }

// Others implements [Shared].
func (p *Place) Others() (list []Slot) {
	for s := range Slot(Slots) {
		if p.board.owned(s) && !p.Owns(s) && p.board.pages[s].first.Load() != 0 {
			list = append(list, s)
		}
	}
	return list
}

// OnReport implements [Shared].
func (p *Place) OnReport(f func(detail bool) Report) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.report = f
}

// OnOrphans implements [Shared].
func (p *Place) OnOrphans(f func([]Conn)) {
	p.mu.Lock()
	p.orphans = f
	left := p.earlyOrphans
	p.earlyOrphans = nil
	p.mu.Unlock()
	if len(left) > 0 {
		f(left)
	}
}

func (p *Place) tellOrphans(list []Conn) {
	p.mu.Lock()
	f := p.orphans
	if f == nil {
		p.earlyOrphans = append(p.earlyOrphans, list...)
	}
	p.mu.Unlock()
	if f != nil {
		f(list)
	}
}

// Claim implements [Shared].
func (p *Place) Claim(service uint64) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return errs.ErrClosed
	}
	if p.claims[service] > 0 {
		p.claims[service]++
		return nil
	}
	if p.claiming[service] == 0 && !p.board.enter(p.slots[0], service) {
		return errs.New("listen", syscall.ENOMEM, "this process listens for %d services already", maxServices)
	}
	p.claiming[service]++
	err := p.call(message{Op: opClaim, Service: service})
	if p.claiming[service]--; p.claiming[service] == 0 {
		delete(p.claiming, service)
	}
	if err == nil {
		p.claims[service]++
	} else if !p.closed && p.unclaimed(service) {
		p.board.forget(p.slots[0], service)
	}
	return err
}

// unclaimed reports whether no call has or waits for a service, so that its entry can be
// removed. The caller holds the lock.
func (p *Place) unclaimed(service uint64) bool {
	return p.claims[service] == 0 && p.claiming[service] == 0
}

// Drop implements [Shared]. A Place that is closed has no claims.
func (p *Place) Drop(service uint64) {
	k, l := p.drop(service)
	switch {
	case k != nil:
		k.steer()
	case l != nil:
		l.send(message{Op: opDrop}) // on an error the next keeper reads the board
	}
}

// drop ends a claim. If it was the last one, drop returns the keeper, or the line to it.
func (p *Place) drop(service uint64) (*keeper, *line) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, nil
	}
	if p.claims[service]--; p.claims[service] > 0 {
		return nil, nil
	}
	delete(p.claims, service)
	if !p.unclaimed(service) { // a waiting call uses the entry
		return nil, nil
	}
	p.board.forget(p.slots[0], service)
	return p.keeper, p.line
}

// call asks the keeper, and asks the next keeper again if the first leaves meanwhile. The
// caller holds the lock, which call releases while it waits.
func (p *Place) call(m message) error {
	late := time.After(callTime)
	for {
		if p.closed {
			return errs.ErrClosed
		}
		changed := p.changed
		if k := p.keeper; k != nil {
			p.running.Add(1) // Close keeps the board until the answer has arrived
			p.mu.Unlock()
			answer, ok := k.answer(m, p.slots)
			p.running.Done()
			p.mu.Lock()
			if !ok {
				return errs.ErrClosed
			}
			return answer.err()
		}
		answered := make(chan message, 1)
		var who int32
		if l := p.line; l != nil {
			p.seq++
			m.Seq = p.seq
			p.waiting[m.Seq] = answered
			who = l.peer.Pid
			p.mu.Unlock()
			l.send(m) // on an error the line breaks, and follow finds another keeper
		} else {
			p.mu.Unlock()
		}
		var err error
		again := false
		select {
		case answer := <-answered:
			err = answer.err()
		case <-changed:
			again = true
		case <-late:
			err = errs.New("listen", syscall.ETIMEDOUT, "no process hands out the services of %s: are those that share it stopped?", p.config.Key)
			if who != 0 {
				err = errs.New("listen", syscall.ETIMEDOUT, "process %d, which hands out the services of %s, does not answer: is it stopped?", who, p.config.Key)
			}
		}
		p.mu.Lock()
		delete(p.waiting, m.Seq)
		if !again {
			return err
		}
	}
}

// follow reads the messages of the keeper, and finds the next keeper when
// this one leaves.
func (p *Place) follow(l *line) {
	for {
		m, err := l.receiveText()
		if err != nil {
			l.Close()
			if l = p.elect(l); l == nil {
				return
			}
			continue
		}
		p.mu.Lock()
		answered, report := p.waiting[m.Seq], p.report
		p.mu.Unlock()
		switch {
		case m.Op == opReport:
			r := message{Op: opReport, Seq: m.Seq}
			if report != nil {
				now := report(m.Detail)
				now.limit(maxListed, maxQueues)
				r.Report = &now
			}
			l.send(r)
		case answered != nil:
			select {
			case answered <- m:
			default: // already answered
			}
		}
	}
}

// moved records the new keeper. The caller holds the lock.
func (p *Place) moved(k *keeper, l *line) {
	p.keeper, p.line = k, l
	close(p.changed)
	p.changed = make(chan struct{})
}

// elect finds the next keeper after one has left: this process, if it is the first to bind
// the name. It returns the line to another keeper, or nil if there is none to follow.
func (p *Place) elect(old *line) *line {
	p.mu.Lock()
	if p.line == old {
		p.moved(nil, nil)
	}
	p.mu.Unlock()
	for pause := time.Millisecond; ; pause = min(2*pause, deadTime) {
		p.mu.Lock()
		closed := p.closed
		p.mu.Unlock()
		if closed {
			return nil
		}
		var k *keeper
		var l *line
		err := p.ns.do(func() (err error) {
			if k, err = newKeeper(p.config.Key); errors.Is(err, unix.EADDRINUSE) {
				l, err = dialKeeper(p.config.Key)
			}
			return err
		})
		if l != nil && err == nil {
			err = p.back(l)
		}
		p.mu.Lock()
		switch {
		case err != nil, p.closed: // if the Place is closed, the loop ends
		case k != nil:
			k.begin(p)
			p.moved(k, nil)
			k.takeOver()
			p.mu.Unlock()
			return nil
		default:
			p.moved(nil, l)
			p.mu.Unlock()
			return l
		}
		p.mu.Unlock()
		if k != nil {
			k.listener.Close()
		}
		if l != nil {
			l.Close()
		}
		select {
		case <-p.done:
			return nil
		case <-time.After(pause + rand.N(pause)):
		}
	}
}

// back reports the slots of this process to a new keeper.
func (p *Place) back(l *line) error {
	if err := l.send(message{Op: opBack, Protocol: protocol, Version: moduleVersion(), Slots: p.slots}); err != nil {
		return err
	}
	l.SetReadDeadline(time.Now().Add(callTime))
	answered := make(chan struct{})
	defer close(answered)
	go func() {
		select {
		case <-p.done: // Close need not wait for a stopped keeper
			l.Close()
		case <-answered:
		}
	}()
	m, err := l.receiveText()
	if err != nil {
		return err
	}
	l.SetReadDeadline(time.Time{})
	return m.err()
}

// Close gives the slots back. The descriptors of the address stay open in other processes.
func (p *Place) Close() error {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return errs.ErrClosed
	}
	p.closed = true
	k, l := p.keeper, p.line
	close(p.done)
	p.moved(nil, nil)
	p.mu.Unlock()
	p.conns.close(p)
	if k != nil {
		k.leave()
	}
	if l != nil {
		l.Close() // the keeper cleans up
	}
	p.running.Wait()
	p.free()
	return nil
}

// free closes a Place that no goroutine uses any more. It closes the sockets with the slots' names
// last: while they exist, another process that finds the address occupied waits for this one to
// leave.
func (p *Place) free() {
	p.courier.close()
	p.closeFiles()
	p.ns.close()
}

func (p *Place) closeFiles() {
	closeAll(p.files)
	if p.bag.fd >= 0 {
		unix.Close(p.bag.fd)
	}
	closeAll(p.pass)
	if p.board != nil {
		p.board.close()
	}
	p.board, p.files, p.pass, p.bag = nil, nil, nil, bag{-1}
}

// holder describes the process that has an address, for an error.
func holder(c unix.Ucred) string { return fmt.Sprintf("process %d of user %d", c.Pid, c.Uid) }

// namePrefix is the prefix of the names of all sockets. The @ stands for a zero byte: it is
// not the name of a file.
const namePrefix = "@goroce/"

// keeperName is the name of the socket of a keeper, slotName that of the socket of a slot.
func keeperName(key string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: namePrefix + key}
}

func slotName(key string, s Slot) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: fmt.Sprintf(namePrefix+"%s#%d", key, s)}
}

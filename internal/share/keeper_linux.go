package share

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/notify"
)

// keeper manages an address: it gives out slots, grants services and cleans up.
type keeper struct {
	place    *Place // the Place of this process
	listener *net.UnixListener
	joining  sync.Mutex // one process joins at a time, because descriptors in flight are limited
	running  sync.WaitGroup
	missed   notify.Chan // has a token when a process may have died

	mu      sync.Mutex
	members map[*line]*member // all but this process
	asked   uint64
	reports map[uint64]chan *Report
	left    bool

	foreign   int // connections of other users, who do not share
	strangers strangers
}

// maxStrangers is the number of simultaneous connections of users who do not share. They may
// list the processes, but must not use up the descriptors of this process.
const maxStrangers = 8

// member is a process that has slots.
type member struct {
	slots   []Slot
	version string
}

// begin attaches the keeper to the Place of its process.
func (k *keeper) begin(p *Place) {
	k.place, k.reports, k.missed = p, map[uint64]chan *Report{}, notify.New()
}

// serve accepts connections, and starts watch.
func (k *keeper) serve() {
	k.running.Go(k.watch)
	k.running.Go(func() { accept(k.listener, &k.running, k.handle) })
}

// takeOver makes a process with slots the keeper after another one has left. The other processes
// report their slots by themselves. The keeper finds dead processes by the names that the kernel
// has freed. The caller has locked the Place, so that Close waits for all goroutines.
func (k *keeper) takeOver() {
	k.place.board.setKeeper(k.place.slots[0])
	k.serve()
	k.running.Go(func() { k.steer() }) // on an error requests without a listener are lost, not rejected
	k.missed.Notify()
}

// watch calls sweep when a process may have died, until no process is missing.
func (k *keeper) watch() {
	for {
		select {
		case <-k.place.done:
			return
		case <-k.missed:
		}
		for pause := time.Millisecond; k.sweep(); pause = min(2*pause, deadTime) {
			select {
			case <-k.place.done:
				return
			case <-k.missed:
				pause = time.Millisecond
			case <-time.After(pause):
			}
		}
	}
}

// sweep cleans up after processes that have died, and reports whether there are slots whose
// owners are unknown to this keeper. A slot belongs to its owner as long as the owner has the
// socket with the slot's name. Then it belongs to the keeper that binds the name, until that
// keeper has cleaned up: an earlier keeper may not have finished. If another user has bound the
// name, sweep cleans up all the same.
func (k *keeper) sweep() (unknown bool) {
	var dead, missing []Slot
	var names []int
	k.mu.Lock()
	for s := range Slot(Slots) {
		if !k.place.board.owned(s) || k.place.Owns(s) || k.known(s) {
			continue
		}
		if fd, err := k.bind(s); err == nil {
			k.place.board.pages[s].inode.Store(inodeOf(fd))
			dead, names = append(dead, s), append(names, fd)
		} else {
			missing = append(missing, s)
		}
	}
	if len(missing) > 0 {
		strange := k.strangers.find(k.place, missing)
		dead = append(dead, strange...)
		unknown = len(missing) > len(strange)
	}
	k.mu.Unlock()
	k.clean(dead)
	closeAll(names)
	return unknown
}

// known reports whether a slot belongs to a connected process. The caller holds the lock.
func (k *keeper) known(s Slot) bool {
	for _, m := range k.members {
		if slices.Contains(m.slots, s) {
			return true
		}
	}
	return false
}

// bind binds the socket of a slot. It fails with EADDRINUSE while a process has it.
func (k *keeper) bind(s Slot) (fd int, err error) {
	err = k.place.ns.do(func() error {
		fd, err = unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			return err
		}
		if err = unix.Bind(fd, slotName(k.place.config.Key, s)); err == nil {
			err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
		}
		if err != nil {
			unix.Close(fd)
		}
		return err
	})
	return fd, err
}

// othersHaveSlots reports whether processes of an earlier keeper use the address.
func (k *keeper) othersHaveSlots() bool {
	for s := range Slot(Slots) {
		fd, err := k.bind(s)
		if errors.Is(err, unix.EADDRINUSE) {
			return true
		}
		if err == nil {
			unix.Close(fd)
		}
	}
	return false
}

// grant takes free slots for a process, and returns the sockets that are bound to their names.
// If there are too few, grant first cleans up after processes that died while they joined.
func (k *keeper) grant(n int, to unix.Ucred) (slots []Slot, socks []int, err error) {
	if slots, socks, err = k.grantFree(n, to); errors.Is(err, syscall.ENOSPC) {
		k.sweep()
		slots, socks, err = k.grantFree(n, to)
	}
	return slots, socks, err
}

// grantFree prefers slots that have rested, so that no packet for a previous owner can arrive.
func (k *keeper) grantFree(n int, to unix.Ucred) (slots []Slot, socks []int, err error) {
	b := k.place.board
	var free []Slot
	for s := range Slot(Slots) {
		if !b.owned(s) {
			free = append(free, s)
		}
	}
	now := clock()
	restingSince := func(s Slot) int64 { // 0: the slot has rested
		if f := b.pages[s].freed.Load(); f != 0 && now-f < int64(restTime) {
			return f
		}
		return 0
	}
	rand.Shuffle(len(free), func(i, j int) { free[i], free[j] = free[j], free[i] })
	slices.SortStableFunc(free, func(a, b Slot) int { return cmp.Compare(restingSince(a), restingSince(b)) })
	for _, s := range free {
		if len(slots) == n {
			break
		}
		fd, err := k.bind(s)
		if errors.Is(err, unix.EADDRINUSE) {
			continue
		}
		if err != nil {
			closeAll(socks)
			return nil, nil, err
		}
		slots, socks = append(slots, s), append(socks, fd)
	}
	if len(slots) < n {
		closeAll(socks)
		return nil, nil, errs.New("share", syscall.ENOSPC, "%d places wanted on %s, %d of %d are free: each process takes one for each queue of its device",
			n, k.place.config.Key, len(slots), Slots)
	}
	for i, s := range slots {
		b.take(s, socks[i], uint32(to.Pid), to.Uid, i == 0)
	}
	return slots, socks, nil
}

// handle serves one connection.
func (k *keeper) handle(l *line) {
	trusted := l.trusts()
	k.mu.Lock()
	if k.left || !trusted && k.foreign >= maxStrangers {
		k.mu.Unlock()
		return
	}
	if !trusted {
		k.foreign++
	}
	k.members[l] = &member{}
	k.mu.Unlock()
	defer k.gone(l, trusted)
	l.SetReadDeadline(time.Now().Add(callTime))
	m, err := l.receiveText()
	if err != nil {
		return
	}
	switch m.Op {
	case opJoin:
		err = k.join(l, &m)
	case opBack:
		err = k.back(l, &m)
	case opList:
		l.send(message{Op: opList, Seq: m.Seq, Members: k.list(l.trusts(), m.Detail)})
		return
	default:
		return
	}
	if err != nil {
		l.send(refusal(err))
		return
	}
	l.SetReadDeadline(time.Time{})
	for {
		m, err := l.receiveText()
		if err != nil {
			return
		}
		switch m.Op {
		case opClaim, opDrop:
			a, ok := k.answer(m, k.slotsOf(l))
			if !ok {
				return
			}
			a.Seq = m.Seq
			if m.Op == opClaim {
				l.send(a)
			}
		case opReport:
			k.mu.Lock()
			if c := k.reports[m.Seq]; c != nil {
				delete(k.reports, m.Seq)
				c <- m.Report
			}
			k.mu.Unlock()
		}
	}
}

// admits refuses a process of another user or with other messages.
func (k *keeper) admits(l *line, m *message) error {
	me := self()
	if !l.trusts() {
		return errs.New("share", syscall.EADDRINUSE, "%s is shared by the programs of user %d (process %d), this is user %d", k.place.config.Key, me.Uid, me.Pid, l.peer.Uid)
	}
	if m.Protocol != protocol {
		return errs.New("share", syscall.EADDRINUSE, "%s is shared by programs of version %s (protocol %d, process %d), this one has version %s (protocol %d): build them with the same version, or use another address",
			k.place.config.Key, moduleVersion(), protocol, me.Pid, m.Version, m.Protocol)
	}
	return nil
}

// join gives slots to a process, and waits until the process has received
// them.
func (k *keeper) join(l *line, m *message) error {
	if err := k.admits(l, m); err != nil {
		return err
	}
	if m.Want < 1 || m.Want > Slots {
		return errs.New("share", syscall.EINVAL, "%d places wanted, there are %d", m.Want, Slots)
	}
	k.joining.Lock()
	defer k.joining.Unlock()
	p := k.place
	slots, socks, err := k.grant(m.Want, l.peer)
	if err != nil {
		return err
	}
	k.mu.Lock()
	*k.members[l] = member{slots, m.Version}
	k.mu.Unlock()
	files := slices.Concat([]int{p.bag.fd, p.board.fd}, socks)
	err = l.send(message{Op: opJoin, Slots: slots, Notes: p.notes}, files...)
	if err != nil { // no process has the slots, and after leave no process would notice
		k.mu.Lock()
		k.members[l].slots = nil
		k.mu.Unlock()
		for _, s := range slots {
			p.board.release(s)
		}
	}
	closeAll(socks)
	if err != nil {
		return err
	}
	l.SetReadDeadline(time.Now().Add(callTime))
	r, err := l.receiveText()
	if err == nil && r.Op != opReady {
		err = errs.New("share", syscall.EPROTO, "%q instead of %q", r.Op, opReady)
	}
	return err
}

// back adopts a process of an earlier keeper.
func (k *keeper) back(l *line, m *message) error {
	if err := k.admits(l, m); err != nil {
		return err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, s := range m.Slots {
		if s >= Slots || !k.place.board.owned(s) || k.place.Owns(s) || k.known(s) {
			return errs.New("share", syscall.EPERM, "slot %d of %s is not process %d's", s, k.place.config.Key, l.peer.Pid)
		}
	}
	*k.members[l] = member{m.Slots, m.Version}
	return l.send(message{Op: opBack})
}

// slotsOf returns the slots of a process.
func (k *keeper) slotsOf(l *line) []Slot {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.members[l].slots
}

// gone handles the end of the connection of a process.
func (k *keeper) gone(l *line, trusted bool) {
	k.mu.Lock()
	slots := k.members[l].slots
	delete(k.members, l)
	if !trusted {
		k.foreign--
	}
	k.mu.Unlock()
	if len(slots) > 0 {
		k.missed.Notify()
	}
}

// clean frees slots whose owner has left, and tells the peers of connections that the owner
// has not ended itself.
func (k *keeper) clean(slots []Slot) {
	if len(slots) == 0 {
		return
	}
	p := k.place
	var orphans []Conn
	for _, s := range slots {
		if n := p.config.Medium.Sockets(); n > 0 {
			if files, err := p.bag.open(int(s)*n, n); err == nil {
				p.config.Medium.Silence(files)
				closeAll(files)
			}
		}
		orphans = append(orphans, p.board.orphans(s)...)
		p.board.release(s)
	}
	k.steer()
	if len(orphans) > 0 {
		p.tellOrphans(orphans)
	}
}

// answer answers a message of a process with slots. The keeper also calls it for its own
// process. ok is false if the keeper has left, because there may already be another one.
func (k *keeper) answer(m message, slots []Slot) (answer message, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.left {
		return message{}, false
	}
	return k.decide(m, slots), true
}

// decide is answer. The caller holds the lock.
func (k *keeper) decide(m message, slots []Slot) message {
	if len(slots) == 0 || m.Op == opClaim && m.Service == 0 {
		return refusal(errs.New("share", syscall.EINVAL, "%d slots, service %#x", len(slots), m.Service))
	}
	b := k.place.board
	if m.Op == opClaim {
		if s, ok := b.listener(m.Service); ok && !slices.Contains(slots, s) {
			return refusal(errs.New("share", syscall.EADDRINUSE, "process %d listens for %v on %s", b.pages[s].pid.Load(), cm.ServiceID(m.Service), k.place.config.Key))
		}
		b.setGranted(slots[0], m.Service)
	}
	if err := k.steerLocked(); err != nil {
		return refusal(err)
	}
	return message{Op: m.Op}
}

// steer makes the kernel distribute packets by the present state of the
// board.
func (k *keeper) steer() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.steerLocked()
}

func (k *keeper) steerLocked() error {
	p := k.place
	if k.left {
		return nil
	}
	return p.config.Medium.Steer(p.Sockets(0), p.board.services(), p.slots[0])
}

// leave ends the keeper and frees the slots of this process.
func (k *keeper) leave() {
	k.clean(k.place.slots)
	k.mu.Lock()
	k.left = true
	lines := make([]*line, 0, len(k.members))
	for l := range k.members {
		lines = append(lines, l)
	}
	k.mu.Unlock()
	k.listener.Close()
	for _, l := range lines {
		l.Close()
	}
	k.running.Wait()
}

// list returns the processes, with the report of each if ask is set. detail also asks for their
// queue pairs.
func (k *keeper) list(ask, detail bool) []Member {
	const patience = 500 * time.Millisecond
	p := k.place
	p.mu.Lock()
	own := p.report
	p.mu.Unlock()
	k.mu.Lock()
	members := []Member{k.describe(p.slots, moduleVersion(), true)}
	answers := map[int]chan *Report{}
	var asked []uint64
	for l, m := range k.members {
		if len(m.slots) == 0 {
			continue
		}
		members = append(members, k.describe(m.slots, m.version, false))
		if !ask {
			continue
		}
		k.asked++
		c := make(chan *Report, 1)
		k.reports[k.asked], answers[len(members)-1] = c, c
		seq := k.asked
		asked = append(asked, seq)
		k.running.Go(func() { l.send(message{Op: opReport, Seq: seq, Detail: detail}) })
	}
	k.mu.Unlock()
	if own != nil && ask {
		r := own(detail)
		members[0].Report = &r
	}
	late := time.After(patience)
	for i, c := range answers {
		select {
		case members[i].Report = <-c:
		case <-late:
			late = time.After(0)
		}
	}
	k.mu.Lock()
	for _, seq := range asked {
		delete(k.reports, seq) // of a process that did not answer
	}
	k.mu.Unlock()
	limitAll(members, detail)
	slices.SortFunc(members, func(a, b Member) int { return cmp.Compare(a.Slots[0], b.Slots[0]) })
	return members
}

// describe makes a Member of a process with slots. The caller holds the lock.
func (k *keeper) describe(slots []Slot, version string, keeper bool) Member {
	pg := &k.place.board.pages[slots[0]]
	return Member{PID: int(pg.pid.Load()), UID: int(pg.uid.Load()), Slots: slots, Keeper: keeper, Version: version, Age: time.Duration(clock() - pg.since.Load())}
}

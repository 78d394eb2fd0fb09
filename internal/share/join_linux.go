package share

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/notify"
	"github.com/goroce/roce/link"
)

// Join takes slots of an address, in the network namespace of the calling thread. If this process
// is the first, it opens the address and becomes the keeper. Join fails with EADDRINUSE if the
// address is in use by a program that does not share it, by another user, or by a program with
// another version of the protocol; with ENOSPC if all slots are taken; and with
// [link.ErrUnsupported] if the system lacks a necessary feature. The caller closes the Place.
func Join(c Config) (*Place, error) {
	if c.Slots < 1 || c.Slots > Slots {
		return nil, errs.New("share", syscall.EINVAL, "%d queues, an address that is shared has 1 to %d", c.Slots, Slots)
	}
	ns, err := currentNamespace()
	if err != nil {
		return nil, cannot(err, "network namespace")
	}
	p := &Place{config: c, ns: ns, uid: self().Uid, pid: self().Pid, bag: bag{-1}, waiting: map[uint64]chan message{}, claims: map[uint64]int{}, claiming: map[uint64]int{}, changed: make(chan struct{}), done: make(chan struct{})}
	p.courier.place, p.courier.wake, p.courier.patience = p, notify.New(), parcelTime
	if err := p.joinPatiently(); err != nil {
		p.free()
		return nil, err
	}
	return p, nil
}

// cannot returns the error for a system that lacks a feature for sharing. A temporary shortage of
// resources is another error: otherwise the driver would open the address for this process alone,
// and refuse the others during the life of the process.
func cannot(cause error, detail string, args ...any) error {
	if slices.ContainsFunc(short, func(e error) bool { return errors.Is(cause, e) }) {
		return errs.New("share", cause, detail, args...)
	}
	return errs.New("share", errs.Kind(link.ErrUnsupported, cause), detail, args...)
}

// short are the errors of a temporary shortage of resources.
var short = []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOBUFS, syscall.ETOOMANYREFS, syscall.EAGAIN, syscall.EINTR}

// errNoKeeper means that the keeper has left, and that there will soon be another: try again.
var errNoKeeper = errors.New("share: the keeper has left")

// occupied is the error if the address cannot be opened: a program that does not share has it, or
// processes share it but have no keeper at the moment.
type occupied struct{ error }

func (o occupied) Unwrap() error { return o.error }

// joinPatiently joins. It waits for a keeper if there are processes that will soon have one, or
// that are leaving.
func (p *Place) joinPatiently() error {
	var deserted time.Time // since when the address has been occupied without processes that share it
	tries := 0             // since then
	for began := time.Now(); ; {
		wait := members(p.config.Key)
		err := p.join(wait)
		var o occupied
		switch late := time.Since(began) > joinTime; {
		case errors.As(err, &o):
			if deserted.IsZero() {
				deserted = time.Now()
			}
			if tries++; late || time.Since(deserted) > leaveTime && tries > leaveTries {
				return o.error
			}
		case !errors.Is(err, errNoKeeper):
			return err
		case late && wait:
			return errs.New("share", syscall.ETIMEDOUT, "%s is shared by processes of which none hands out the places: are they stopped?", p.config.Key)
		case late:
			return errs.New("share", syscall.ETIMEDOUT, "%s: keepers come and go", p.config.Key)
		}
		time.Sleep(time.Millisecond + rand.N(4*time.Millisecond))
	}
}

// members reports whether processes have slots of an address: they have bound the sockets of
// their slots.
func members(key string) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	for s := range Slot(Slots) {
		if unix.Connect(fd, slotName(key, s)) == nil {
			return true
		}
	}
	return false
}

// join tries once to become the keeper, or to get slots from it. With wait it lets processes
// with slots become the keeper first.
func (p *Place) join(wait bool) error {
	if !wait {
		k, err := newKeeper(p.config.Key)
		if err == nil {
			if err = errNoKeeper; !members(p.config.Key) { // now no other process grants slots
				err = p.found(k)
			}
			if err != nil {
				k.listener.Close()
			}
			return err
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return errs.New("share", err, "%s", p.config.Key)
		}
	}
	l, err := dialKeeper(p.config.Key)
	if err != nil {
		return err
	}
	if err := p.enter(l); err != nil {
		l.Close()
		return err
	}
	p.line = l
	p.running.Go(func() { p.follow(l) })
	return nil
}

// found opens the address as its first process.
func (p *Place) found(k *keeper) (err error) {
	k.begin(p)
	if k.othersHaveSlots() {
		return errNoKeeper // one of them will be the keeper
	}
	files, notes, err := p.config.Medium.Open()
	if errors.Is(err, syscall.EADDRINUSE) {
		return occupied{err}
	}
	if err != nil {
		return err
	}
	p.notes = notes
	p.bag, err = newBag(files)
	closeAll(files)
	if err != nil {
		return cannot(err, "sockets that the processes of %s hold", p.config.Key)
	}
	if p.board, err = newBoard(); err != nil {
		return cannot(err, "memory that the processes of %s map", p.config.Key)
	}
	if p.slots, p.pass, err = k.grant(p.config.Slots, self()); err != nil {
		return err
	}
	if err := p.openSockets(); err != nil {
		return errs.New("share", err, "sockets of %s", p.config.Key)
	}
	p.keeper = k
	p.board.setKeeper(p.slots[0])
	if err := k.steer(); err != nil {
		p.keeper = nil
		return cannot(err, "%s: a program that distributes packets", p.config.Key)
	}
	k.serve()
	return nil
}

// enter gets slots from the keeper.
func (p *Place) enter(l *line) error {
	if err := l.send(message{Op: opJoin, Protocol: protocol, Version: moduleVersion(), Want: p.config.Slots}); err != nil {
		return errNoKeeper
	}
	l.SetReadDeadline(time.Now().Add(joinTime))
	m, files, err := l.receive()
	switch {
	case errors.Is(err, syscall.ETIMEDOUT), isTimeout(err):
		return errs.New("share", syscall.ETIMEDOUT, "%s hands out the places on %s and does not answer: is it stopped?", holder(l.peer), p.config.Key)
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return errNoKeeper
	case err != nil:
		return errs.New("share", err, "answer of %s, which hands out the places on %s", holder(l.peer), p.config.Key)
	}
	l.SetReadDeadline(time.Time{})
	if err := m.err(); err != nil {
		closeAll(files)
		return err
	}
	const common = 2 // the bag and the board
	if m.Op != opJoin || len(m.Slots) != p.config.Slots || len(files) != common+len(m.Slots) {
		closeAll(files)
		return errs.New("share", syscall.EPROTO, "%s: answer %q with %d places and %d descriptors", p.config.Key, m.Op, len(m.Slots), len(files))
	}
	p.slots, p.notes = m.Slots, m.Notes
	p.bag.fd, p.pass = files[0], files[common:]
	if p.board, err = mapBoard(files[1]); err != nil {
		return errs.New("share", err, "memory that the processes of %s map", p.config.Key)
	}
	if err := p.openSockets(); err != nil {
		return errs.New("share", err, "sockets of %s", p.config.Key)
	}
	if l.send(message{Op: opReady}) != nil {
		p.forget()
		return errNoKeeper
	}
	return nil
}

// forget undoes enter, for another try. The slots still belong to this process as long as it has
// the sockets with their names: no keeper gives them to another process meanwhile.
func (p *Place) forget() {
	for _, s := range p.slots {
		p.board.release(s)
	}
	p.closeFiles()
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}

// newKeeper makes this process the keeper of an address, in the namespace of the calling
// thread. It fails with EADDRINUSE if there is one.
func newKeeper(key string) (*keeper, error) {
	l, err := net.ListenUnix("unixpacket", keeperName(key))
	if err != nil {
		return nil, err
	}
	return &keeper{listener: l, members: map[*line]*member{}}, nil
}

// dialKeeper connects to the keeper of an address.
func dialKeeper(key string) (*line, error) {
	l, err := dial(keeperName(key).Name)
	if errors.Is(err, errNoKeeper) {
		return nil, err
	}
	if errors.Is(err, syscall.EAGAIN) {
		return nil, errs.New("share", syscall.EADDRINUSE, "the process that has the name of %s takes no connections: is it stopped? `ss -xlp` shows it", key)
	}
	if err != nil {
		return nil, errs.New("share", err, "the process that hands out the places on %s", key)
	}
	if !l.trusts() {
		l.Close()
		return nil, errs.New("share", syscall.EADDRINUSE, "%s is shared by the programs of user %d (process %d), this is user %d: an administrator may name a group that shares in %s", key, l.peer.Uid, l.peer.Pid, self().Uid, groupFile)
	}
	return l, nil
}

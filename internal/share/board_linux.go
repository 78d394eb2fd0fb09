package share

import (
	"crypto/rand"
	"slices"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
)

// board is the memory that all processes of an address map. Each slot has a page, which its
// owner writes and all processes read. The page outlives its process: from it the keeper
// knows the peers that it must tell about the end of their connections.
type board struct {
	fd  int
	mem []byte
	*boardLayout
}

// boardLayout is the layout of the board.
type boardLayout struct {
	keeper atomic.Uint32 // the first slot of the keeper, plus 1; 0: there has been none
	secret [16]byte      // of the memory keys of all processes; never changes
	pages  [Slots]page
}

const (
	maxServices = 1024  // of a slot
	maxConns    = 16384 // of a slot, whose peers are told when the process dies
)

// page has the state of a slot.
type page struct {
	pid   atomic.Uint32 // of the owner, for display; 0: the slot is free
	uid   atomic.Uint32
	freed atomic.Int64  // when the slot was last freed, on the clock of the kernel; 0: never taken
	since atomic.Int64  // when the slot was taken
	first atomic.Uint32 // 1: the first slot of its owner, which may have several
	inode atomic.Uint32 // of the socket with the slot's name: the owner's, or that of a keeper that cleans up

	// Entries beyond these were never used. Readers skip them, because
	// reading would allocate their memory.
	usedServices, usedConns atomic.Uint32

	services [maxServices]serviceEntry
	conns    [maxConns]connEntry
}

// serviceList and connList return the entries that may be in use.
func (p *page) serviceList() []serviceEntry {
	return p.services[:min(p.usedServices.Load(), maxServices)]
}
func (p *page) connList() []connEntry { return p.conns[:min(p.usedConns.Load(), maxConns)] }

// entry returns the entry of a service, or for 0 a free entry. It returns nil if there
// is none.
func (p *page) entry(id uint64) *serviceEntry {
	list := p.serviceList()
	for i := range list {
		if list[i].id.Load() == id {
			return &list[i]
		}
	}
	return nil
}

// serviceEntry is a service for which a slot listens, once the keeper has
// granted it.
type serviceEntry struct {
	id      atomic.Uint64
	granted atomic.Uint32
}

// connEntry is a connection of a slot, if used is not 0.
type connEntry struct {
	used              atomic.Uint32
	localID, remoteID uint32
	remoteQPN         bth.QPN
	local, remote     bth.GID
}

const boardSize = int(unsafe.Sizeof(boardLayout{}))

// newBoard makes an empty board. Its size is sealed, so that the memory cannot disappear
// from a process that maps it.
func newBoard() (*board, error) {
	fd, err := unix.MemfdCreate("roce", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, err
	}
	if err = unix.Ftruncate(fd, int64(boardSize)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	b, err := mapBoard(fd)
	if err == nil {
		rand.Read(b.secret[:])
	}
	return b, err
}

// mapBoard maps a board and owns fd. It refuses memory whose size is not sealed.
func mapBoard(fd int) (*board, error) {
	var st unix.Stat_t
	err := unix.Fstat(fd, &st)
	if err == nil && st.Size != int64(boardSize) {
		err = unix.EPROTO
	}
	if err == nil {
		var seals int
		if seals, err = unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0); err == nil && seals&unix.F_SEAL_SHRINK == 0 {
			err = unix.EPROTO
		}
	}
	var mem []byte
	if err == nil {
		mem, err = unix.Mmap(fd, 0, boardSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return &board{fd, mem, (*boardLayout)(unsafe.Pointer(&mem[0]))}, nil
}

func (b *board) close() {
	unix.Munmap(b.mem)
	unix.Close(b.fd)
}

// owned reports whether a slot has an owner. The owner may be dead.
func (b *board) owned(s Slot) bool { return b.pages[s].pid.Load() != 0 }

// take gives a slot to a process. sock is the socket with the slot's name.
func (b *board) take(s Slot, sock int, pid, uid uint32, first bool) {
	p := &b.pages[s]
	p.inode.Store(inodeOf(sock))
	p.first.Store(0)
	if first {
		p.first.Store(1)
	}
	p.uid.Store(uid)
	p.since.Store(clock())
	p.pid.Store(max(pid, 1))
}

// release frees a slot and clears its page.
func (b *board) release(s Slot) {
	p := &b.pages[s]
	services, conns := p.serviceList(), p.connList()
	for i := range services {
		services[i].granted.Store(0)
		services[i].id.Store(0)
	}
	for i := range conns {
		conns[i].used.Store(0)
	}
	p.usedServices.Store(0)
	p.usedConns.Store(0)
	p.freed.Store(clock())
	p.pid.Store(0)
}

// eachService yields the granted services with their slots.
func (b *board) eachService(yield func(Service) bool) {
	for s := range Slot(Slots) {
		if !b.owned(s) {
			continue
		}
		list := b.pages[s].serviceList()
		for i := range list {
			if id := list[i].id.Load(); id != 0 && list[i].granted.Load() != 0 && !yield(Service{id, s}) {
				return
			}
		}
	}
}

// services lists the granted services with their slots.
func (b *board) services() []Service { return slices.Collect(b.eachService) }

// setKeeper records the first slot of the keeper.
func (b *board) setKeeper(s Slot) { b.keeper.Store(uint32(s) + 1) }

// keeperSlot returns the first slot of the keeper.
func (b *board) keeperSlot() Slot { return Slot(b.keeper.Load()-1) % Slots }

// listener returns the slot that listens for a service.
func (b *board) listener(id uint64) (Slot, bool) {
	for s := range b.eachService {
		if s.ID == id {
			return s.Slot, true
		}
	}
	return 0, false
}

// enter adds a service of a slot, not granted yet. ok is false if there is no room.
func (b *board) enter(s Slot, id uint64) (ok bool) {
	p := &b.pages[s]
	e := p.entry(0)
	if e == nil {
		used := len(p.serviceList())
		if used == maxServices {
			return false
		}
		e = &p.services[used]
		defer p.usedServices.Store(uint32(used) + 1)
	}
	e.granted.Store(0)
	e.id.Store(id)
	return true
}

// setGranted grants a service to a slot that has entered it: the slot then
// gets the requests.
func (b *board) setGranted(s Slot, id uint64) {
	if e := b.pages[s].entry(id); e != nil {
		e.granted.Store(1)
	}
}

// forget removes a service of a slot.
func (b *board) forget(s Slot, id uint64) {
	if e := b.pages[s].entry(id); e != nil {
		e.granted.Store(0)
		e.id.Store(0)
	}
}

// orphans lists the connections of the former owner of a slot.
func (b *board) orphans(s Slot) (list []Conn) {
	conns := b.pages[s].connList()
	for i := range conns {
		if c := &conns[i]; c.used.Load() != 0 {
			list = append(list, Conn{c.localID, c.remoteID, c.remoteQPN, c.local, c.remote})
		}
	}
	return list
}

// clock returns the time since the start of the system in nanoseconds, which is the same for
// all processes.
func clock() int64 {
	var t unix.Timespec
	unix.ClockGettime(unix.CLOCK_BOOTTIME, &t)
	return t.Nano()
}

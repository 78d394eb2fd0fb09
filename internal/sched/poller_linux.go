package sched

import (
	"encoding/binary"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// poller is an eventfd in the runtime's poller. Each write to it is an event there.
type poller struct {
	conn syscall.RawConn
	wait func(uintptr) bool
	sent bool  // the goroutine that waits has sent its event
	err  error // of the sending

	mu   sync.Mutex
	busy bool       // guarded by mu: a goroutine waits
	over *sync.Cond // that goroutine has waited
}

// one is the number 1 for an eventfd. Its counter has room for more of them than any process can add.
var one = binary.NativeEndian.AppendUint64(nil, 1)

// thePoller is made by the first call and lasts as long as the process. It is nil if the process has no descriptor left.
var thePoller = sync.OnceValue(newPoller)

func newPoller() *poller {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil
	}
	file := os.NewFile(uintptr(fd), "eventfd")
	conn, err := file.SyscallConn()
	if err == nil {
		err = file.SetReadDeadline(time.Time{}) // fails if the descriptor is not in the poller
	}
	if err != nil {
		file.Close()
		return nil
	}
	p := &poller{conn: conn}
	p.over = sync.NewCond(&p.mu)
	p.wait = p.ready
	return p
}

// ready is false when the wait begins, and true when the poller has reported the event. The wait has discarded earlier events, so this one
// must be sent afterwards.
func (p *poller) ready(fd uintptr) bool {
	if p.sent {
		return true
	}
	p.sent = true
	_, p.err = unix.Write(int(fd), one)
	return p.err != nil
}

// waitForPoller waits until the runtime's poller has looked at its descriptors. It returns false if there is no descriptor to wait for, also
// if the program has closed it.
func waitForPoller() bool {
	p := thePoller()
	if p == nil {
		return false
	}
	if !p.enter() {
		return true
	}
	defer p.leave()
	p.sent = false
	return p.conn.Read(p.wait) == nil && p.err == nil
}

// waiting is not nil while a goroutine waits.
var waiting atomic.Pointer[poller]

// joinWait waits with the goroutine that is in waitForPoller. It returns false if none is.
func joinWait() bool {
	p := waiting.Load()
	if p == nil {
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		p.over.Wait()
	}
	return true
}

// enter makes the caller the goroutine that waits. If another one is, it waits until that one has waited, and returns false.
func (p *poller) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.busy {
		p.over.Wait()
		return false
	}
	p.busy = true
	waiting.Store(p)
	return true
}

// leave lets those continue that wait for the caller. Each of them can run at once: none needs a lock that the next call of LetRun holds.
func (p *poller) leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
	waiting.Store(nil)
	p.over.Broadcast()
}

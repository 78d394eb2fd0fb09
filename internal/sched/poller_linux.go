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
	mu   sync.Mutex // held by the goroutine that waits
	wait func(uintptr) bool
	sent bool // the goroutine has sent its event
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
	_, err := unix.Write(int(fd), one[:])
	return err != nil
}

// waitForPoller waits until the runtime's poller has looked at its descriptors. It returns false if there is no descriptor to wait for.
func waitForPoller() bool {
	p := thePoller()
	if p == nil {
		return false
	}
	if !p.mu.TryLock() {
		p.join()
		return true
	}
	defer p.mu.Unlock()
	waiting.Store(p)
	defer waiting.Store(nil)
	p.sent = false
	return p.conn.Read(p.wait) == nil
}

// waiting is not nil while a goroutine waits.
var waiting atomic.Pointer[poller]

// joinWait waits with the goroutine that is in waitForPoller. It returns false if none is.
func joinWait() bool {
	p := waiting.Load()
	if p != nil {
		p.join()
	}
	return p != nil
}

// join waits until the other goroutine has waited.
func (p *poller) join() {
	p.mu.Lock()
	p.mu.Unlock()
}

package share

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
	"time"
)

// Owner answers for a process that does not share its address: it lists the process, with its report, on request.
type Owner struct {
	listener *net.UnixListener
	began    time.Time
	running  sync.WaitGroup

	mu      sync.Mutex
	report  func(detail bool) Report
	lines   map[*line]struct{}
	foreign int // number of lines to users who do not share
	closed  bool
}

// ownerPrefix is how the names of the sockets of owners begin.
const ownerPrefix = "@goroce owner/"

// ownerName is the name of the socket of an owner.
func ownerName(key string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unixpacket", Name: ownerPrefix + key}
}

// secondOwners is how many further processes with the same key get a name: with raw.Config.SharePort several processes
// open an address independently of each other.
const secondOwners = 15

// Occupy makes the Owner of an address that this process does not share, in the network namespace of the calling
// thread, until Close.
func Occupy(key string) (*Owner, error) {
	name := ownerName(key)
	l, err := net.ListenUnix("unixpacket", name)
	for n := 2; errors.Is(err, syscall.EADDRINUSE) && n < 2+secondOwners; n++ {
		l, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: name.Net, Name: fmt.Sprintf("%s+%d", name.Name, n)})
	}
	if err != nil {
		return nil, err
	}
	o := &Owner{listener: l, began: time.Now(), lines: map[*line]struct{}{}}
	o.running.Go(func() { accept(l, &o.running, o.answer) })
	return o, nil
}

// Teller returns the Owner for [Owned]: nil if there is none.
func (o *Owner) Teller() Teller {
	if o == nil {
		return nil // not a nil *Owner in an interface
	}
	return o
}

// OnReport implements [Teller].
func (o *Owner) OnReport(f func(detail bool) Report) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.report = f
}

// Close ends the Owner. It returns when no answer is in progress.
func (o *Owner) Close() error {
	if o == nil {
		return nil
	}
	err := o.listener.Close()
	o.mu.Lock()
	o.closed = true
	for l := range o.lines {
		l.Close()
	}
	o.mu.Unlock()
	o.running.Wait()
	return err
}

// answer answers a request for the list of processes. Another user gets it without the report.
func (o *Owner) answer(l *line) {
	trusted := l.trusts()
	o.mu.Lock()
	if o.closed || !trusted && o.foreign >= maxStrangers {
		o.mu.Unlock()
		return
	}
	o.lines[l] = struct{}{}
	if !trusted {
		o.foreign++
	}
	o.mu.Unlock()
	defer func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		delete(o.lines, l)
		if !trusted {
			o.foreign--
		}
	}()
	l.SetReadDeadline(time.Now().Add(callTime))
	m, err := l.receiveText()
	if err != nil || m.Op != opList {
		return
	}
	o.mu.Lock()
	report := o.report
	o.mu.Unlock()
	me := self()
	members := []Member{{PID: int(me.Pid), UID: int(me.Uid), Version: moduleVersion(), Age: time.Since(o.began)}}
	if trusted && report != nil {
		r := report(m.Detail)
		members[0].Report = &r
	}
	limitAll(members, m.Detail)
	l.send(message{Op: opList, Seq: m.Seq, Members: members})
}

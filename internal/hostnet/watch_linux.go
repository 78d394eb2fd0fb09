package hostnet

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// newsGroups are the netlink groups for changes of interfaces, addresses, neighbours and routes. Not every kernel has
// the groups of the second list; without one of them its changes go unnoticed.
var (
	newsGroups = []int{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
		unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE}
	newsExtra = []int{unix.RTNLGRP_IPV4_RULE, unix.RTNLGRP_IPV6_RULE, unix.RTNLGRP_NEXTHOP}
)

const (
	// newsBuffer holds some thousands of messages. If it overflows, the kernel drops messages, and the watcher reports
	// All.
	newsBuffer = 4 << 20

	// newsRoom is larger than any datagram of the kernel.
	newsRoom = 64 << 10

	// newsBatch limits how many datagrams the watcher reads before it reports the changes.
	newsBatch = 4096

	// newsPause is the minimum time between two calls of the watcher's function. The pause after a call is at least
	// newsRest times as long as the call: a stranger that can make the kernel report changes must not keep a core busy.
	newsPause = 10 * time.Millisecond
	newsRest  = 4
)

// Watch calls changed at once, with Change.All, and then whenever something may have changed. The calls come one after
// the other on a separate goroutine, until Close, which waits for it. Changes that come during a call are combined. An
// interface can have one watcher.
func (i *Interface) Watch(changed func(Change)) error {
	if err := i.lock("watch"); err != nil {
		return err
	}
	defer i.mu.Unlock()
	if i.watched {
		return i.fail("watch", "it is watched already", syscall.EBUSY)
	}
	i.watched = true
	i.running.Go(func() {
		var c Change
		c.everything()
		for {
			began := time.Now()
			changed(c)
			if !i.rest(max(newsPause, newsRest*time.Since(began))) {
				return
			}
			for c = (Change{}); !c.some(); {
				if !i.listen(&c) {
					return
				}
			}
		}
	})
	return nil
}

// rest waits. It returns false if the interface is closed meanwhile.
func (i *Interface) rest(d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-i.done:
		return false
	}
}

// listen waits for messages and notes all that have come. It returns false when the interface is closed.
func (i *Interface) listen(c *Change) bool {
	conn, err := i.news.SyscallConn()
	if err != nil {
		return false
	}
	if i.room == nil {
		i.room = make([]byte, newsRoom)
	}
	got := 0
	err = conn.Read(func(fd uintptr) bool {
		for ; got < newsBatch; got++ {
			n, from, err := unix.Recvfrom(int(fd), i.room, 0)
			switch {
			case err == unix.EAGAIN:
				return got > 0
			case err == unix.EINTR:
				continue
			case err != nil: // ENOBUFS: some were lost
				c.everything()
				got++
				return true
			}
			if a, ok := from.(*unix.SockaddrNetlink); ok && a.Pid == 0 { // of the kernel
				c.note(i.room[:n], i.index)
			}
		}
		return true
	})
	return err == nil
}

// subscribe opens the socket for the kernel's notifications, in the namespace of the calling thread.
func subscribe() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, newsBuffer) != nil {
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, newsBuffer)
	}
	err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	for _, g := range newsGroups {
		if err == nil {
			err = join(fd, g)
		}
	}
	for _, g := range newsExtra {
		if err == nil {
			join(fd, g)
		}
	}
	if err != nil {
		unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

func join(fd, group int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_ADD_MEMBERSHIP, group)
	if errors.Is(err, syscall.EINVAL) {
		err = fmt.Errorf("netlink group %d: %w", group, err)
	}
	return err
}

package hostnet

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// news are the netlink groups that say what becomes of interfaces.
var news = []uint{unix.RTNLGRP_LINK, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR}

// Watch calls changed at once and then whenever something about the interface
// may have changed: it went up or down, an address came or went, it was
// removed. The calls come one after the other on a goroutine of their own, until
// Close, which waits for it. An interface can be watched once.
func (i *Interface) Watch(changed func()) error {
	if err := i.lock("watch"); err != nil {
		return err
	}
	defer i.mu.Unlock()
	if i.watched {
		return i.fail("watch", "it is watched already", syscall.EBUSY)
	}
	i.watched = true
	i.watcher.Go(func() {
		changed()
		for {
			messages, _, err := i.news.Receive()
			if err != nil && !errors.Is(err, syscall.ENOBUFS) { // that says that some were lost
				return
			}
			if err != nil || i.concerned(messages) {
				changed()
			}
		}
	})
	return nil
}

// concerned reports whether there is a message about this interface. Those
// about links and those about addresses have its index at the same place.
func (i *Interface) concerned(messages []syscall.NetlinkMessage) bool {
	for _, m := range messages {
		switch m.Header.Type {
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR:
			if len(m.Data) >= 8 && int(binary.NativeEndian.Uint32(m.Data[4:])) == i.index {
				return true
			}
		}
	}
	return false
}

// subscribe opens the socket that the news come through.
func subscribe() (*nl.NetlinkSocket, error) { return nl.Subscribe(unix.NETLINK_ROUTE, news...) }

package hostnet

import "golang.org/x/sys/unix"

// Announce sends the present Ethernet address of the interface's addresses to the neighbours. The kernel does so only
// if sysctls say so (net.ipv4.conf.*.arp_notify and net.ipv6.conf.*.ndisc_notify); without an announcement a peer
// sends to the old address until it gives up. Announce needs CAP_NET_RAW.
func (i *Interface) Announce() error {
	addrs, err := i.Addrs()
	if err != nil {
		return err
	}
	state, err := i.State()
	if err != nil {
		return err
	}
	if err := i.lock("announce"); err != nil {
		return err
	}
	defer i.mu.Unlock()
	if i.packet < 0 {
		return i.fail("announce", "open a packet socket", unix.EPERM)
	}
	for _, a := range addrs {
		if err := unix.Sendto(i.packet, announcement(state.MAC, a), 0, &unix.SockaddrLinklayer{Ifindex: i.index}); err != nil {
			return i.fail("announce", a.String(), err)
		}
	}
	return nil
}

// packetSocket opens a packet socket that receives nothing; -1 if that is not allowed.
func packetSocket() int {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1
	}
	return fd
}

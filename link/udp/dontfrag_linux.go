package udp

import "golang.org/x/sys/unix"

// dontFragment prevents the kernel from fragmenting the packets of a socket, and makes it ignore
// ICMP messages about the path MTU.
func dontFragment(fd uintptr, is4 bool) error {
	if is4 {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
}

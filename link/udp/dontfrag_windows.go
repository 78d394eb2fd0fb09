package udp

import "golang.org/x/sys/windows"

// dontFragment prevents the kernel from fragmenting the packets of a socket. The kernel still
// chooses their IPv4 Identification, which a program cannot find out.
func dontFragment(fd uintptr, is4 bool) error {
	const ipDontFragment, ipv6DontFrag = 14, 14 // of ws2ipdef.h
	if is4 {
		return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IP, ipDontFragment, 1)
	}
	return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IPV6, ipv6DontFrag, 1)
}

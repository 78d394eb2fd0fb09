package udp

import "golang.org/x/sys/windows"

// dontFragment keeps the kernel from fragmenting what a socket sends. The IPv4
// Identification remains the kernel's secret.
func dontFragment(fd uintptr, is4 bool) error {
	const ipDontFragment, ipv6DontFrag = 14, 14 // of ws2ipdef.h
	if is4 {
		return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IP, ipDontFragment, 1)
	}
	return windows.SetsockoptInt(windows.Handle(fd), windows.IPPROTO_IPV6, ipv6DontFrag, 1)
}

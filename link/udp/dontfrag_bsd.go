//go:build darwin || freebsd

package udp

import "golang.org/x/sys/unix"

// dontFragment prevents the kernel from fragmenting the packets of a socket. It also makes
// their IPv4 Identification 0 (RFC 6864; net.inet.ip.rfc6864, on by default).
func dontFragment(fd uintptr, is4 bool) error {
	if is4 {
		return unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_DONTFRAG, 1)
	}
	return unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_DONTFRAG, 1)
}

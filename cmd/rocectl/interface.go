package main

import (
	"fmt"
	"net"
	"net/netip"
	"runtime"
	"strings"
)

// findInterface finds the network interface that has the address near or, if
// that is none or any, that leads to far, or else the only one there is.
func findInterface(near, far netip.Addr) (string, error) {
	if !near.IsValid() || near.IsUnspecified() {
		near = netip.Addr{}
		if far.IsValid() {
			near = sourceOf(far)
		}
	}
	all, err := net.Interfaces()
	if err != nil {
		return "", fmt.Errorf("list network interfaces: %w", err)
	}
	var names []string
	for _, i := range all {
		if i.Flags&net.FlagUp == 0 || i.Flags&net.FlagLoopback != 0 {
			continue
		}
		addrs, _ := i.Addrs()
		if near.IsValid() && !hasAddr(addrs, near) {
			continue
		}
		if len(addrs) > 0 {
			names = append(names, i.Name)
		}
	}
	switch {
	case len(names) == 1:
		return names[0], nil
	case len(names) > 1:
		return "", usagef("which interface? Give --dev %s", strings.Join(names, " or --dev "))
	case far.IsValid():
		return "", fmt.Errorf("no network interface leads to %v (see --dev; on the loopback only --link udp works)", far)
	case near.IsValid():
		return "", fmt.Errorf("no network interface has the address %v", near)
	}
	return "", fmt.Errorf("no network interface is up and has an address (try --link mem)")
}

// socketAddr is the address for UDP sockets, where they should have but one: on the
// loopback, and where interfaces cannot be followed. Not valid otherwise.
func (f *deviceFlags) socketAddr(near, far netip.Addr) netip.Addr {
	if f.link != linkUDP || f.dev != "" {
		return netip.Addr{}
	}
	a := near
	if (!a.IsValid() || a.IsUnspecified()) && far.IsValid() {
		a = sourceOf(far)
		if a == far && far.IsLoopback() && far.Is4() {
			a = far.Next() // the server has that one
		}
	}
	if a.IsLoopback() || runtime.GOOS != "linux" && !a.IsUnspecified() {
		return a
	}
	return netip.Addr{}
}

func hasAddr(addrs []net.Addr, want netip.Addr) bool {
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == want.Unmap().WithZone("") {
			return true
		}
	}
	return false
}

// sourceOf asks the kernel which own address it would send to dst from, without
// sending anything. Invalid if there is no route.
func sourceOf(dst netip.Addr) netip.Addr {
	c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(dst, 9)))
	if err != nil {
		return netip.Addr{}
	}
	defer c.Close()
	return c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
}

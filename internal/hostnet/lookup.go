package hostnet

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"syscall"
)

// AddrsOf returns the addresses of an interface, as package net lists them: in no particular order, and without zones.
func AddrsOf(ifi *net.Interface) (addrs []netip.Addr, err error) {
	list, err := ifi.Addrs()
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			addrs = append(addrs, p.Addr().Unmap())
		}
	}
	return addrs, err
}

// LookupHost returns the addresses of a host, at least one. For a literal address it returns that. The error of a name
// without addresses is EADDRNOTAVAIL and a *net.DNSError.
func LookupHost(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err == nil && len(addrs) == 0 {
		err = &net.DNSError{Err: "no address", Name: host, IsNotFound: true}
	}
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("%w: %w", err, syscall.EADDRNOTAVAIL)
	}
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	return addrs, nil
}

// LookupService returns the port of a service of a network, "tcp" or "udp", by name or number. The error of an unknown
// service is EINVAL and a *net.DNSError or *net.AddrError.
func LookupService(ctx context.Context, network, service string) (uint16, error) {
	port, err := net.DefaultResolver.LookupPort(ctx, network, service)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", err, syscall.EINVAL)
	}
	return uint16(port), nil
}

// LookupAddr returns the addresses of "host:port", at least one. An empty host is the unspecified address.
func LookupAddr(ctx context.Context, network, addr string) ([]netip.AddrPort, error) {
	if a, err := netip.ParseAddrPort(addr); err == nil {
		return []netip.AddrPort{a}, nil
	}
	host, service, err := net.SplitHostPort(addr)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", err, syscall.EINVAL)
	}
	port, err := LookupService(ctx, network, service)
	if err != nil {
		return nil, err
	}
	hosts := []netip.Addr{netip.IPv6Unspecified()}
	if host != "" {
		if hosts, err = LookupHost(ctx, host); err != nil {
			return nil, err
		}
	}
	out := make([]netip.AddrPort, len(hosts))
	for i, h := range hosts {
		out[i] = netip.AddrPortFrom(h, port)
	}
	return out, nil
}

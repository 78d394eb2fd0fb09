package hostnet

import (
	"context"
	"fmt"
	"net/netip"
	"syscall"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
)

const (
	settleTime = 3 * time.Second       // how long Settle waits: the kernel takes a second or two
	settleLook = 20 * time.Millisecond // how often the callers of Settle look, all together
)

// Settle waits until the kernel no longer looks for duplicates of the address of the default GID, if addr is that. Until then it sends no
// packets from there.
func (i *Interface) Settle(ctx context.Context, addr netip.Addr) error {
	if !i.settles(addr) {
		return nil
	}
	ctx, stop := context.WithTimeout(ctx, settleTime)
	defer stop()
	for tick := time.Tick(settleLook); i.settles(addr); {
		select {
		case <-tick:
		case <-ctx.Done():
			return i.fail("use address", addr.String()+" waits for duplicate address detection", fmt.Errorf("%w: %w", syscall.EADDRNOTAVAIL, ctx.Err()))
		}
	}
	return nil
}

// settles reports whether the kernel looks for duplicates of addr, as far as is known.
func (i *Interface) settles(addr netip.Addr) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.closed || !addr.IsValid() || addr != i.settling {
		return false
	}
	if time.Since(i.lookedAt) >= settleLook {
		i.deep(func() { i.look() }) // on an error the next caller looks again
	}
	return addr == i.settling
}

// look is Addrs for a caller that has locked the interface.
func (i *Interface) look() (addrs []netip.Addr, err error) {
	i.lookedAt = time.Now()
	link, err := i.nl.LinkByIndex(i.index)
	if err != nil {
		i.settling = netip.Addr{} // it was removed
		return nil, i.fail("look up addresses", "look it up by netlink", err)
	}
	var list []netlink.Addr
	err = again(func() error {
		list, err = i.nl.AddrList(link, netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, i.fail("look up addresses", "list them by netlink", err)
	}
	mac := macOf(link)
	first := frame.DefaultGID(mac).Addr()
	i.settling = netip.Addr{}
	for _, a := range list {
		ip, ok := netip.AddrFromSlice(a.IP)
		ip = ip.Unmap()
		switch tentative := a.Flags&(unix.IFA_F_TENTATIVE|unix.IFA_F_OPTIMISTIC) == unix.IFA_F_TENTATIVE; {
		case !ok || a.Flags&unix.IFA_F_DADFAILED != 0 || tentative && ip != first:
			continue
		case tentative && link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0: // without a carrier the kernel does not look for duplicates
			i.settling = ip
		}
		addrs = append(addrs, ip)
	}
	return gidOrder(mac, addrs, i.loopback), nil
}

package hostnet

import (
	"errors"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
)

// usable are the states in which an entry of the neighbour table has an address to send
// to.
const usable = unix.NUD_REACHABLE | unix.NUD_STALE | unix.NUD_DELAY | unix.NUD_PROBE | unix.NUD_PERMANENT | unix.NUD_NOARP

// ndmsg is struct ndmsg with the destination of an entry.
func (i *Interface) ndmsg(hop netip.Addr, state uint16, flags uint8) (*netlink.Ndmsg, *nl.RtAttr) {
	family := uint8(unix.AF_INET)
	if hop.Is6() {
		family = unix.AF_INET6
	}
	return &netlink.Ndmsg{Family: family, Index: uint32(i.index), State: state, Flags: flags}, nl.NewRtAttr(unix.NDA_DST, hop.AsSlice())
}

// neighbourRequest sends the kernel a request for one entry of its neighbour table. Called with the lock held.
func (i *Interface) neighbourRequest(typ, flags int, hop netip.Addr, state uint16, ndFlags uint8) ([][]byte, error) {
	req := nl.NewNetlinkRequest(typ, flags)
	req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: i.sock}
	msg, dst := i.ndmsg(hop, state, ndFlags)
	req.AddData(msg)
	req.AddData(dst)
	var answer [][]byte
	var err error
	i.deep(func() { answer, err = req.Execute(unix.NETLINK_ROUTE, 0) })
	return answer, err
}

// known looks up one entry of the kernel's neighbour table; its state is 0 if there is
// none.
func (i *Interface) known(hop netip.Addr) (entry, error) {
	if err := i.lock("neighbour of"); err != nil {
		return entry{}, err
	}
	defer i.mu.Unlock()
	if !i.old {
		answer, err := i.neighbourRequest(unix.RTM_GETNEIGH, 0, hop, 0, 0)
		switch {
		case errors.Is(err, syscall.ENOENT):
			return entry{}, nil
		case errors.Is(err, syscall.EOPNOTSUPP): // before Linux 5.0
			i.old = true
		case err != nil:
			return entry{}, err
		default:
			for _, b := range answer {
				if e, ok := parseNeighbour(b); ok && e.addr == hop {
					return e, nil
				}
			}
			return entry{}, nil
		}
	}
	return i.listed(hop)
}

// listed is known for kernels that only list the whole table.
func (i *Interface) listed(hop netip.Addr) (found entry, err error) {
	msg, _ := i.ndmsg(hop, 0, 0)
	i.dumps++
	err = again(func() error {
		req := nl.NewNetlinkRequest(unix.RTM_GETNEIGH, unix.NLM_F_DUMP)
		req.Sockets = map[int]*nl.SocketHandle{unix.NETLINK_ROUTE: i.sock}
		req.AddData(msg)
		answer, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWNEIGH)
		for _, b := range answer {
			if e, ok := parseNeighbour(b); ok && e.addr == hop && e.index == i.index {
				found = e
			}
		}
		return err
	})
	return found, err
}

// ask makes the kernel look for a neighbour: by netlink if the process has the privilege; otherwise it sends the
// neighbour an empty datagram to the port of RoCEv2, which a firewall must let out anyway. An error says that neither
// is allowed; the kernel may still learn the neighbour from other traffic.
func (i *Interface) ask(hop netip.Addr) error {
	if err := i.lock("neighbour of"); err != nil {
		return err
	}
	defer i.mu.Unlock()
	if !i.unprivileged {
		_, err := i.neighbourRequest(unix.RTM_NEWNEIGH, unix.NLM_F_CREATE|unix.NLM_F_ACK, hop, 0, unix.NTF_USE)
		if err == nil {
			return nil
		}
		i.unprivileged = errors.Is(err, syscall.EPERM)
	}
	return i.probeBy(hop)
}

// probeBy sends a datagram to a neighbour. Called with the lock held.
func (i *Interface) probeBy(hop netip.Addr) error {
	fd, err := i.socket(hop)
	if err != nil {
		return err
	}
	var to unix.Sockaddr = &unix.SockaddrInet6{Port: bth.UDPPort, Addr: hop.As16(), ZoneId: uint32(i.index)}
	if hop.Is4() {
		to = &unix.SockaddrInet4{Port: bth.UDPPort, Addr: hop.As4()}
	}
	if err := unix.Sendto(fd, nil, 0, to); err != nil && err != unix.EAGAIN && err != unix.ENOBUFS {
		return err
	}
	return nil
}

// Verify makes the kernel verify a neighbour that does not answer and may have moved. The result is a Change. Without
// the privilege for the request the kernel verifies it later.
func (i *Interface) Verify(hop netip.Addr) error {
	e, err := i.known(hop)
	switch {
	case err != nil:
		return i.fail("look up neighbour", "look up "+hop.String()+" by netlink", err)
	case e.state&(unix.NUD_PERMANENT|unix.NUD_NOARP|unix.NUD_PROBE|unix.NUD_INCOMPLETE) != 0:
		return nil // nothing to verify, or the kernel is verifying it
	case e.usable() && i.suspect(hop):
		return nil
	}
	if err := i.ask(hop); err != nil {
		return i.fail("look up neighbour", "look for "+hop.String(), err)
	}
	return nil
}

// suspect makes the kernel verify an entry now. It returns false if that is not allowed.
func (i *Interface) suspect(hop netip.Addr) bool {
	if i.lock("neighbour of") != nil {
		return false
	}
	defer i.mu.Unlock()
	if i.unprivileged {
		return false
	}
	_, err := i.neighbourRequest(unix.RTM_NEWNEIGH, unix.NLM_F_REPLACE|unix.NLM_F_ACK, hop, unix.NUD_PROBE, 0)
	return err == nil
}

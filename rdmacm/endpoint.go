package rdmacm

import (
	"cmp"
	"context"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/hostnet"
)

// InfoFlags control [Host.GetAddrInfo] (ai_flags), with the values of RAI_*.
type InfoFlags uint32

// The flags.
const (
	Passive     InfoFlags = 1 // for listening: the address is local
	NumericHost InfoFlags = 2 // ask no name server
	NoRoute     InfoFlags = 4 // find no source address
	FamilyOnly  InfoFlags = 8 // use Family of the hints
)

// AddrInfo is struct rdma_addrinfo: the input of [Host.CreateEP].
type AddrInfo struct {
	Flags     InfoFlags
	Family    int         // 4 or 6; in hints 0: any
	PortSpace PortSpace   // in hints 0: TCP
	QPType    roce.QPType // in hints 0: of the port space
	Src, Dst  netip.AddrPort
	Connect   []byte // private data that Connect sends in front of the program's
}

// GetAddrInfo resolves a host name or address, and a port or service name, for
// [Host.CreateEP] (rdma_getaddrinfo). Either may be empty, but not both. Without
// [Passive] the result has a source address, if the hints have one or a device
// has a suitable one. It fails with EINVAL for contradictory arguments, and with
// EADDRNOTAVAIL for a name without an address of the family.
func (h *Host) GetAddrInfo(ctx context.Context, node, service string, hints *AddrInfo) ([]AddrInfo, error) {
	const op = "getaddrinfo"
	hints = cmp.Or(hints, &AddrInfo{})
	base := AddrInfo{Flags: hints.Flags, PortSpace: hints.PortSpace, QPType: hints.QPType, Src: hints.Src, Dst: hints.Dst}
	switch {
	case base.PortSpace == 0 && base.QPType == roce.UD:
		base.PortSpace = UDP
	case base.QPType == 0 && base.PortSpace == UDP:
		base.QPType = roce.UD
	}
	base.PortSpace, base.QPType = cmp.Or(base.PortSpace, TCP), cmp.Or(base.QPType, roce.RC)
	if node == "" && service == "" {
		return nil, fail(op, syscall.EINVAL, "neither a host nor a service")
	}
	var port uint16
	if service != "" {
		network := "tcp"
		if base.PortSpace == UDP {
			network = "udp"
		}
		var err error
		if port, err = hostnet.LookupService(ctx, network, service); err != nil {
			return nil, fail(op, err, "service %q", service)
		}
	}
	addrs, err := lookup(ctx, op, node, hints)
	if err != nil {
		return nil, err
	}
	var out []AddrInfo
	for _, a := range addrs {
		i, at := base, netip.AddrPortFrom(a, port)
		i.Family = 6
		if a.Is4() {
			i.Family = 4
		}
		if hints.Family != 0 && hints.Family != i.Family {
			continue
		}
		if i.Flags&Passive != 0 {
			i.Src = at
		} else {
			i.Dst = at
			i.Src = h.sourceFor(i.Src, a, i.Flags)
		}
		out = append(out, i)
	}
	if len(out) == 0 {
		return nil, fail(op, syscall.EADDRNOTAVAIL, "%q has no address of the family", node)
	}
	return out, nil
}

// sourceFor returns the source address for a destination, if it is already
// known.
func (h *Host) sourceFor(hint netip.AddrPort, to netip.Addr, flags InfoFlags) netip.AddrPort {
	if hint.Addr().IsValid() || flags&NoRoute != 0 {
		return hint
	}
	for _, d := range h.devices {
		if a, err := agentOf(d).Source(netip.Addr{}, to); err == nil && len(h.devices) == 1 {
			return netip.AddrPortFrom(a, 0)
		}
	}
	return netip.AddrPort{}
}

func lookup(ctx context.Context, op, node string, hints *AddrInfo) ([]netip.Addr, error) {
	if node == "" {
		if hints.Flags&Passive != 0 {
			if hints.Family == 6 {
				return []netip.Addr{netip.IPv6Unspecified()}, nil
			}
			return []netip.Addr{netip.IPv4Unspecified()}, nil
		}
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, nil
	}
	if a, err := netip.ParseAddr(node); err == nil {
		return []netip.Addr{a.Unmap().WithZone("")}, nil
	}
	if hints.Flags&NumericHost != 0 {
		return nil, fail(op, syscall.EINVAL, "%q is not an IP address", node)
	}
	addrs, err := hostnet.LookupHost(ctx, node)
	if err != nil {
		return nil, fail(op, err, "host %q", node)
	}
	for i := range addrs {
		addrs[i] = addrs[i].WithZone("")
	}
	return addrs, nil
}

// epConfig has the parameters of CreateEP for later requests.
type epConfig struct {
	pd      *roce.PD
	qp      *roce.QPConfig // of requests
	connect []byte
}

// epTimeout is the time that CreateEP waits for the address, and for the
// route.
const epTimeout = 2 * time.Second

// CreateEP makes a synchronous ID that is ready to connect, or bound and ready to
// listen if info has [Passive] (rdma_create_ep). With a queue pair configuration
// the ID gets a queue pair or, if it is passive, every request of [ID.GetRequest]
// does. [ID.DestroyEP] releases the ID. [ID.Migrate] makes it asynchronous.
func (h *Host) CreateEP(ctx context.Context, info AddrInfo, pd *roce.PD, c *roce.QPConfig) (*ID, error) {
	id, err := h.CreateID(nil, info.PortSpace, nil)
	if err != nil {
		return nil, err
	}
	if err = id.setup(ctx, info, pd, c); err != nil {
		id.DestroyEP()
		return nil, err
	}
	return id, nil
}

func (id *ID) setup(ctx context.Context, info AddrInfo, pd *roce.PD, c *roce.QPConfig) error {
	if info.QPType != 0 && info.QPType != id.qpType {
		if id.ps != IB || info.QPType != roce.UC {
			return id.fail("create ep", syscall.EINVAL, "%v queue pairs in %v", info.QPType, id.ps)
		}
		id.qpType = info.QPType
	}
	config := &epConfig{pd: pd, connect: info.Connect}
	if info.Flags&Passive != 0 {
		if c != nil {
			kept := *c
			config.qp = &kept
		}
		id.epConfig = config
		return id.Bind(info.Src)
	}
	id.epConfig = config
	if err := id.ResolveAddr(ctx, info.Src, info.Dst, epTimeout); err != nil {
		return err
	}
	if err := id.ResolveRoute(ctx, epTimeout); err != nil {
		return err
	}
	if c == nil {
		return nil
	}
	return id.CreateQP(pd, *c)
}

// DestroyEP destroys the ID with its queue pair and shared receive queue
// (rdma_destroy_ep).
func (id *ID) DestroyEP() error {
	return cmp.Or(id.DestroyQP(), id.DestroySRQ(), id.Destroy())
}

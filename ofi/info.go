package ofi

import (
	"net/netip"
	"strconv"

	"github.com/goroce/roce"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/settings"
)

// MaxPrivateData is the maximum private data of a connection request or its answer:
// that of rdma_cm, minus one byte for the length.
const MaxPrivateData = 55

// Info describes an endpoint (struct fi_info). [GetInfo] returns one; an event of a
// connection request has one.
type Info struct {
	Device *roce.Device   // the NIC (nic, domain_attr->name)
	Src    netip.AddrPort // src_addr
	Dest   netip.AddrPort // dest_addr

	TxSize     int // tx_attr->size: sends in flight
	RxSize     int // rx_attr->size: receives posted
	IOVLimit   int // tx_attr->iov_limit: pieces of one transfer
	InjectSize int // tx_attr->inject_size: bytes that Inject copies

	Request *ConnReq // handle: the connection request, to be accepted or rejected
}

// Defaults of the verbs provider.
const (
	defaultSize   = 384
	defaultIOV    = 4
	defaultInject = 256
)

// complete replaces zeros by defaults and refuses values that no endpoint can have.
func (i Info) complete() (Info, error) {
	err := settings.Complete("info",
		settings.Number{Name: "Info.TxSize", Value: &i.TxSize, Default: defaultSize, Least: 1, Most: roce.MaxWR},
		settings.Number{Name: "Info.RxSize", Value: &i.RxSize, Default: defaultSize, Least: 1, Most: roce.MaxWR},
		settings.Number{Name: "Info.IOVLimit", Value: &i.IOVLimit, Default: defaultIOV, Least: 1, Most: roce.MaxSGE},
		settings.Number{Name: "Info.InjectSize", Value: &i.InjectSize, Default: defaultInject, Least: 1, Most: roce.MaxInline})
	if err != nil {
		return i, err
	}
	if i.Device == nil {
		return i, fail("info", errno.ENODATA, "no device")
	}
	return i, nil
}

// Flags of [GetInfo].
type Flags uint64

// Source makes node and service the address of this side (FI_SOURCE).
const Source Flags = 1 << 57

// GetInfo returns the Info of an endpoint of a device (fi_getinfo). node is an IP address, service a port
// number. With [Source] they are the local address, and may be empty for any; otherwise they are the peer's.
// hints may be nil. ENODATA: the device cannot satisfy the hints.
func GetInfo(d *roce.Device, node, service string, flags Flags, hints *Info) (*Info, error) {
	i := Info{}
	if hints != nil {
		i = *hints
	}
	i.Device, i.Request = d, nil
	if node != "" || service != "" {
		at, err := address(node, service)
		if err != nil {
			return nil, err
		}
		if flags&Source != 0 {
			i.Src = at
		} else {
			i.Dest = at
		}
	}
	i, err := i.complete()
	if err != nil {
		return nil, err
	}
	return &i, nil
}

func address(node, service string) (netip.AddrPort, error) {
	a := netip.IPv6Unspecified()
	var err error
	if node != "" {
		if a, err = netip.ParseAddr(node); err != nil {
			return netip.AddrPort{}, fail("getinfo", errno.ENODATA, "%v", err)
		}
	}
	port := uint64(0)
	if service != "" {
		if port, err = strconv.ParseUint(service, 10, 16); err != nil {
			return netip.AddrPort{}, fail("getinfo", errno.ENODATA, "service %q is not a port number", service)
		}
	}
	return netip.AddrPortFrom(a, uint16(port)), nil
}

// Error is a refused call; see [roce.Error]. It unwraps to the errno whose negative value the C
// call of libfabric returns.
type Error = roce.Error

func fail(op string, cause error, format string, args ...any) error {
	return errs.New(op, cause, format, args...)
}

package ofi

import (
	"cmp"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/goroce/roce"
)

// Fabric is a network with domains and event queues (struct fid_fabric).
type Fabric struct {
	dev    *roce.Device
	closed atomic.Bool
}

// OpenFabric opens the network of a device (fi_fabric).
func OpenFabric(i *Info) (*Fabric, error) {
	if i == nil || i.Device == nil {
		return nil, fail("fabric", syscall.EINVAL, "no device")
	}
	return &Fabric{dev: i.Device}, nil
}

// Close ends the fabric (fi_close). It does not close the device. A second call returns
// net.ErrClosed.
func (f *Fabric) Close() error {
	if !f.closed.CompareAndSwap(false, true) {
		return fail("close", roce.ErrClosed, "the fabric is closed already")
	}
	return nil
}

// Domain is access to a NIC (struct fid_domain): memory, endpoints and completion
// queues work together within one domain.
type Domain struct {
	dev *roce.Device
	pd  *roce.PD

	mu      sync.Mutex
	srxs    map[uint64]*SharedRecv // by their number in work request IDs
	lastSRX uint64
}

// OpenDomain opens a domain (fi_domain).
func (f *Fabric) OpenDomain(*Info) (*Domain, error) {
	if f.closed.Load() {
		return nil, fail("domain", roce.ErrClosed, "the fabric is closed")
	}
	return &Domain{dev: f.dev, pd: f.dev.AllocPD(), srxs: map[uint64]*SharedRecv{}}, nil
}

// Close ends the domain. EBUSY while it has objects.
func (d *Domain) Close() error { return d.pd.Close() }

// Access is the rights to registered memory, with the values of libfabric.
type Access uint64

const (
	ReadAccess   Access = 1 << 8  // FI_READ: a Read of this side puts its data here
	WriteAccess  Access = 1 << 9  // FI_WRITE: a Write of this side takes its data from here
	RecvAccess   Access = 1 << 10 // FI_RECV
	SendAccess   Access = 1 << 11 // FI_SEND
	RemoteRead   Access = 1 << 12 // FI_REMOTE_READ
	RemoteWrite  Access = 1 << 13 // FI_REMOTE_WRITE, atomics included
	knownAccess         = ReadAccess | WriteAccess | RecvAccess | SendAccess | RemoteRead | RemoteWrite
	localDefault        = SendAccess | RecvAccess // an access of 0, as libfabric's examples use it
)

// rights maps access as the verbs provider does.
func (a Access) rights() (r roce.Access) {
	for _, x := range [...]struct {
		a Access
		r roce.Access
	}{{RecvAccess, roce.LocalWrite}, {ReadAccess, roce.LocalWrite}, {RemoteRead, roce.RemoteRead},
		{RemoteWrite, roce.LocalWrite | roce.RemoteWrite | roce.RemoteAtomic}} {
		if a&x.a != 0 {
			r |= x.r
		}
	}
	return r
}

// MR is registered memory (struct fid_mr).
type MR struct{ mr *roce.MR }

// Desc names registered memory in a local transfer (fi_mr_desc).
type Desc = *MR

// RegMR registers memory (fi_mr_reg). Access 0 permits sending and receiving. The
// peer addresses the memory by [MR.Addr] and [MR.Key], which the NIC chooses
// (FI_MR_PROV_KEY).
func (d *Domain) RegMR(buf []byte, access Access) (*MR, error) {
	if access&^knownAccess != 0 {
		return nil, fail("mr_reg", syscall.EINVAL, "unknown access %#x", uint64(access&^knownAccess))
	}
	m, err := d.pd.RegMR(buf, cmp.Or(access, localDefault).rights())
	if err != nil {
		return nil, err
	}
	return &MR{m}, nil
}

// Desc returns the descriptor of the memory.
func (m *MR) Desc() Desc { return m }

// Key returns the key a peer needs (fi_mr_key).
func (m *MR) Key() uint64 { return uint64(m.mr.RKey()) }

// Addr returns the address a peer uses for the first byte.
func (m *MR) Addr() uint64 { return m.mr.Addr() }

// Close ends the registration.
func (m *MR) Close() error { return m.mr.Close() }

// piece returns the scatter/gather element of buf, which is part of the memory.
func (m *MR) piece(op string, buf []byte) (roce.SGE, error) {
	if m == nil {
		return roce.SGE{}, fail(op, syscall.EINVAL, "no descriptor for the memory; register it")
	}
	off, ok := within(m.mr.Bytes(), buf)
	if !ok {
		return roce.SGE{}, fail(op, syscall.EINVAL, "the memory is not part of the region of its descriptor")
	}
	return m.mr.SGE(off, len(buf)), nil
}

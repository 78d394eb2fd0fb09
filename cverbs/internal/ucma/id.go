package ucma

import (
	"context"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/rdmacm"
)

// identifier is an identifier with its data for the C side.
type identifier struct {
	*rdmacm.ID
	handle abi.Handle
	cookie atomic.Uint64
	tos    atomic.Uint32
	life   atomic.Uint32 // packet life time of the path
}

// packetLifeTime is the packet life time of a path: 2^16 * 4.096 us, the kernel's value for RoCE.
const packetLifeTime = 16

// enter gives an identifier a handle.
func (m *Manager) enter(id *identifier) (err error) {
	id.ID.Context = id
	id.life.Store(packetLifeTime)
	if id.handle, err = m.objects.Add(id); err != nil {
		return syscall.ENOMEM
	}
	return nil
}

// redial is how long a client repeats requests to a server that does not listen yet.
const redial = 300 * time.Millisecond

// CreateID makes an identifier. t is the type of its future queue pair; 0: the type of the port space.
func (m *Manager) CreateID(ch abi.Handle, cookie uint64, ps, t uint32) (abi.Handle, error) {
	c, err := find[*channel](m, ch)
	if err != nil {
		return 0, err
	}
	host, err := m.Host()
	if err != nil {
		return 0, err
	}
	if ps != uint32(cm.PortSpace(ps)) {
		return 0, syscall.EINVAL
	}
	made, err := host.CreateID(c.Channel, cm.PortSpace(ps), nil)
	if err != nil {
		return 0, err
	}
	id := &identifier{ID: made}
	id.cookie.Store(cookie)
	err = made.SetRedial(redial)
	if err == nil && t != 0 {
		err = made.SetQPType(roce.QPType(min(t, 0xFF)))
	}
	if err == nil {
		err = m.enter(id)
	}
	if err != nil {
		made.Destroy()
		return 0, err
	}
	return id.handle, nil
}

// SetCookie sets the cookie of later events of an identifier.
func (m *Manager) SetCookie(h abi.Handle, cookie uint64) error {
	id, err := find[*identifier](m, h)
	if err == nil {
		id.cookie.Store(cookie)
	}
	return err
}

// MigrateID moves an identifier and its events to another channel.
func (m *Manager) MigrateID(h, to abi.Handle) error {
	id, err := find[*identifier](m, h)
	if err != nil {
		return err
	}
	c, err := find[*channel](m, to)
	if err != nil {
		return err
	}
	return id.Migrate(c.Channel)
}

// DestroyID ends an identifier. After it returns, NextEvent returns no event of the identifier.
func (m *Manager) DestroyID(h abi.Handle) error {
	id, err := find[*identifier](m, h)
	if err != nil || !m.objects.Free(h) {
		return syscall.EINVAL
	}
	id.Destroy() // closed: the request was over before the program took it
	return nil
}

// QueryID returns the device and the addresses of an identifier.
func (m *Manager) QueryID(h abi.Handle, out *abi.CMInfo) error {
	id, err := find[*identifier](m, h)
	if err != nil {
		return err
	}
	local, peer, dev := id.LocalAddr(), id.PeerAddr(), id.Device()
	*out = abi.CMInfo{Src: abi.AddrOf(local), Dst: abi.AddrOf(peer), QPType: uint32(id.QPType())}
	if dev == nil {
		return nil
	}
	abi.String(out.Device[:], m.deviceName(dev))
	if local.IsValid() && !local.Addr().IsUnspecified() {
		out.SGID = bth.GIDFrom(local.Addr())
	}
	out.PKey, out.TrafficClass = uint16(roce.DefaultPKey), uint8(id.tos.Load())
	if !peer.IsValid() {
		return nil
	}
	out.DGID, out.FlowLabel = bth.GIDFrom(peer.Addr()), cm.FlowLabel(local.Port(), peer.Port())
	out.HopLimit, out.PacketLifeTime = hopLimit, uint8(id.life.Load())
	if port, err := dev.QueryPort(1); err == nil {
		out.MTU = uint8(port.ActiveMTU)
	}
	return nil
}

// hopLimit is the hop limit of packets to peers.
const hopLimit = 64

// SetOption sets an option: one of the abi.CM constants.
func (m *Manager) SetOption(h abi.Handle, option, value uint32) error {
	id, err := find[*identifier](m, h)
	if err != nil {
		return err
	}
	switch option {
	case abi.CMTOS:
		if err = id.SetTOS(uint8(value)); err == nil {
			id.tos.Store(value & 0xFF)
		}
		return err
	case abi.CMReuseAddr:
		return id.SetReuseAddr(value != 0)
	case abi.CMAFOnly:
		return id.SetAFOnly(value != 0)
	case abi.CMAckTimeout:
		if err = id.SetAckTimeout(uint8(min(value, 0xFF))); err == nil && value > 1 {
			id.life.Store(value - 1)
		}
		return err
	}
	return syscall.ENOSYS
}

// BindAddr gives an identifier an address.
func (m *Manager) BindAddr(h abi.Handle, addr *abi.CMAddr) error {
	return m.with(h, func(id *identifier) error { return id.Bind(addr.AddrPort()) })
}

// ResolveAddr resolves the address of a peer. src may be nil.
func (m *Manager) ResolveAddr(h abi.Handle, src, dst *abi.CMAddr, timeoutMS int32) error {
	return m.with(h, func(id *identifier) error {
		return id.ResolveAddr(context.Background(), src.AddrPort(), dst.AddrPort(), milliseconds(timeoutMS))
	})
}

// ResolveRoute makes an identifier ready to connect.
func (m *Manager) ResolveRoute(h abi.Handle, timeoutMS int32) error {
	return m.with(h, func(id *identifier) error {
		return id.ResolveRoute(context.Background(), milliseconds(timeoutMS))
	})
}

// milliseconds converts a timeout, to at least one millisecond: 0 has another meaning in package rdmacm.
func milliseconds(n int32) time.Duration { return time.Duration(max(n, 1)) * time.Millisecond }

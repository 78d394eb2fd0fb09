package ucma

import (
	"context"
	"slices"
	"syscall"
	"time"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
	"github.com/goroce/roce/rdmacm"
)

// Listen takes requests, at most backlog at once; 0 and less: the kernel's default.
func (m *Manager) Listen(h abi.Handle, backlog int32) error {
	return m.with(h, func(id *identifier) error { return id.Listen(int(max(backlog, 0))) })
}

// Connect requests a connection from a peer, or the address of its UD queue pair.
func (m *Manager) Connect(h abi.Handle, p *abi.CMParam) error {
	return m.with(h, func(id *identifier) error { return id.Connect(context.Background(), param(p)) })
}

// Accept accepts a request with a queue pair that is ready.
func (m *Manager) Accept(h abi.Handle, p *abi.CMParam) error {
	return m.with(h, func(id *identifier) error { return id.Accept(context.Background(), param(p)) })
}

// param returns the parameters of a connection.
func param(p *abi.CMParam) rdmacm.ConnParam {
	return rdmacm.ConnParam{PrivateData: private(p.PrivateData, uint32(p.PrivateLen)), FlowControl: p.FlowControl != 0,
		ResponderResources: number(p.ResponderResources), InitiatorDepth: number(p.InitiatorDepth),
		RetryCount: number(p.RetryCount), RNRRetryCount: number(p.RNRRetryCount), QPN: roce.QPN(p.QPN), SRQ: p.SRQ != 0}
}

// number converts a number to that of package rdmacm, where 0 is the default, and -1 is none.
func number(n uint8) int {
	if n == 0 {
		return -1
	}
	return int(n)
}

// private copies private data out of the program's memory.
func private(p *byte, n uint32) []byte {
	if p == nil {
		return nil
	}
	return slices.Clone(unsafe.Slice(p, n))
}

// Reject refuses a request, or a peer's answer.
func (m *Manager) Reject(h abi.Handle, reason uint32, data *byte, n uint32) error {
	r := cm.RejectReason(reason)
	if r != cm.RejectConsumer && r != cm.RejectVendorOption {
		return syscall.EINVAL
	}
	return m.with(h, func(id *identifier) error { return id.RejectFor(r, private(data, n)) })
}

// Establish tells the peer that the queue pair is ready, after CONNECT_RESPONSE.
func (m *Manager) Establish(h abi.Handle) error {
	return m.with(h, func(id *identifier) error { return id.Establish(context.Background()) })
}

// Notify passes an asynchronous event of the queue pair that the program has seen.
func (m *Manager) Notify(h abi.Handle, event uint32) error {
	return m.with(h, func(id *identifier) error { return id.Notify(roce.EventType(min(event, 0xFF))) })
}

// Disconnect ends a connection. The program has moved the queue pair to ERR.
func (m *Manager) Disconnect(h abi.Handle) error {
	return m.with(h, func(id *identifier) error { return id.Disconnect(context.Background()) })
}

// patience is the RNR timer of the queue pairs of programs: the pause before the peer repeats a message that
// found no receive. The kernel's connection manager sets the longest, 655 ms. Programs rely on long pauses:
// pyverbs posts receives when the peer already sends.
const patience = 80 * time.Millisecond

// InitQPAttr fills in the attributes that move the queue pair to a.State, and their mask.
func (m *Manager) InitQPAttr(h abi.Handle, a *abi.QPAttr, mask *uint32) error {
	id, err := find[*identifier](m, h)
	if err != nil {
		return err
	}
	attr, set, err := id.ID.InitQPAttr(context.Background(), roce.QPState(min(a.State, 0xFF)))
	if err != nil {
		return err
	}
	attr.MinRNRTimer = roce.RNRTimerFor(patience)
	translate.QPAttr(a, &attr)
	fillAV(id.Device(), attr.AV, &a.AH)
	fillAV(id.Device(), attr.AltAV, &a.AltAH)
	*mask = uint32(set &^ roce.AttrFlushICRCQuirk) // the verbs do not have it
	return nil
}

// fillAV fills in the address vector of an address handle. It does nothing if there is no device or handle.
func fillAV(d *roce.Device, av *roce.AH, out *abi.AHAttr) {
	if d == nil || av == nil {
		return
	}
	c := (*frame.Path)(av).Config()
	translate.FromAHAttr(out, &roce.AHAttr{DGID: c.Dst, SGIDIndex: max(slices.Index(d.GIDs(), c.Src), 0), FlowLabel: c.FlowLabel,
		TrafficClass: c.TrafficClass, HopLimit: c.HopLimit, Port: 1})
}

// Join joins a multicast group. The program attaches the queue pair when MULTICAST_JOIN comes.
func (m *Manager) Join(h abi.Handle, group *abi.CMAddr, sendOnly bool, cookie uint64) error {
	return m.with(h, func(id *identifier) error {
		return id.JoinMulticast(context.Background(), group.AddrPort().Addr(), &rdmacm.JoinConfig{SendOnly: sendOnly, Context: cookie})
	})
}

// Leave leaves a group, or stops joining it.
func (m *Manager) Leave(h abi.Handle, group *abi.CMAddr) error {
	return m.with(h, func(id *identifier) error { return id.LeaveMulticast(group.AddrPort().Addr()) })
}

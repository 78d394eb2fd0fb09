package roce

import (
	"syscall"

	"github.com/goroce/roce/mr"
)

// Rereg says what a reregistration changes (enum ibv_rereg_mr_flags).
type Rereg = mr.Rereg

// What a reregistration changes.
const (
	ReregTranslation = mr.ReregTranslation // memory and address
	ReregPD          = mr.ReregPD          // protection domain
	ReregAccess      = mr.ReregAccess      // rights
)

// MRChange is the new state of a region for [MR.Reregister]. Only what the
// flags name counts.
type MRChange struct {
	PD *PD // ReregPD

	// ReregTranslation: the memory, and if HasIOVA is set its address.
	Mem     []byte
	IOVA    uint64
	HasIOVA bool

	Access Access // ReregAccess
}

// Reregister changes a region in place (ibv_rereg_mr): its memory, its
// protection domain, its rights, or several at once. The keys stay the same.
// When it returns nobody touches the memory it had before. Work requests that
// are queued use the region as it is when they come to it.
//
// When it fails nothing has changed (IBV_REREG_MR_ERR_INPUT; the codes after
// which a region is lost have no counterpart here): EINVAL for what
// [PD.RegMR] refuses, for flags that are 0 or unknown, and for rights without
// ReregAccess; EBUSY while windows are bound to the region or it is part of an
// indirect one. A region of [Device.AllocMR] keeps its memory (EINVAL).
func (m *MR) Reregister(flags Rereg, c MRChange) error {
	m.dev.lockAll()
	defer m.dev.unlockAll()
	if m.closed {
		return ErrClosed
	}
	if flags&ReregTranslation != 0 && m.free != nil {
		return fail("reregister", syscall.EINVAL, "the region's memory is the device's own")
	}
	var pd *mr.PD
	if flags&ReregPD != 0 {
		if c.PD == nil || c.PD.dev != m.dev {
			return fail("reregister", syscall.EINVAL, "a protection domain of the same device is required")
		}
		pd = c.PD.pd
	}
	if err := m.mr.Reregister(flags, pd, c.Mem, c.Access, mr.Options{IOVA: c.IOVA, HasIOVA: c.HasIOVA}); err != nil {
		return err
	}
	mem := *m.mem.Load()
	if flags&ReregTranslation != 0 {
		mem.b = c.Mem
	}
	mem.watched = m.mr.Access()&mr.Watched != 0
	m.mem.Store(&mem)
	return nil
}

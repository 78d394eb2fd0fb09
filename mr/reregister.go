package mr

import (
	"syscall"
)

// Rereg says what [MR.Reregister] changes, with the values of enum
// ibv_rereg_mr_flags.
type Rereg uint8

const (
	ReregTranslation Rereg = 1 // the memory and its address
	ReregPD          Rereg = 2 // the protection domain
	ReregAccess      Rereg = 4 // the rights
	reregAll               = ReregTranslation | ReregPD | ReregAccess
)

// Reregister changes a region that [Table.Register] made: the memory (buf and
// opt), the protection domain, the rights, or several of them at once
// (ibv_rereg_mr). Reregister ignores arguments without their flag, but acc
// must be 0 without ReregAccess.
//
// The keys stay. (The standard allows new ones, "deregister followed by
// register", so a portable program reads them again; drivers keep them.) Work
// requests that were posted before use the region in its state at the time of
// their access.
//
// A refusal changes nothing, which is IBV_REREG_MR_ERR_INPUT: the region is
// what it was. Nothing here corresponds to the other codes of enum
// ibv_rereg_mr_err_code, after which a region must not be used. The errors are
// *[errs.Error] and wrap
//
//   - EINVAL: no flags or unknown ones, rights without ReregAccess, ZeroBased
//     set or cleared without ReregTranslation (it changes the address),
//     everything [Table.Register] refuses, a region that is deregistered or
//     of another kind;
//   - EOPNOTSUPP: as Register;
//   - EBUSY: windows are bound to the region, or it is part of an indirect
//     one.
func (m *MR) Reregister(flags Rereg, pd *PD, buf []byte, acc Access, opt Options) error {
	const op = "reregister"
	g := m.g
	had := m.Access()
	switch {
	case m.closed:
		return m.refuse(op, syscall.EINVAL, "deregistered")
	case g.kind() != userRegion:
		return m.refuse(op, syscall.EINVAL, "the region is registered by work requests")
	case flags == 0 || flags&^reregAll != 0:
		return m.refuse(op, syscall.EINVAL, "flags %#x name nothing to change, or something unknown", uint8(flags))
	case flags&ReregAccess == 0 && acc != 0:
		return m.refuse(op, syscall.EINVAL, "access %v is given, but not to be changed", acc)
	case flags&(ReregAccess|ReregTranslation) == ReregAccess && (acc^had)&ZeroBased != 0:
		return m.refuse(op, syscall.EINVAL, "ZERO_BASED changes the address: reregister the translation too")
	}
	if flags&ReregPD == 0 {
		pd = m.pd
	}
	if flags&ReregAccess == 0 {
		acc = had
	}
	if flags&ReregTranslation == 0 {
		buf, opt = m.buf, Options{IOVA: m.iova.Load(), HasIOVA: true, Persist: m.persist, InPlace: m.inPlace}
	}
	opt.Foreign = m.foreign // stays what it is
	if err := checkRegister(op, pd, buf, acc, opt); err != nil {
		return err
	}
	if err := m.Idle(op); err != nil {
		return err
	}
	m.use(buf, acc, opt)
	g.pd, g.gen = pd, g.gen+1
	m.pd.users--
	pd.users++
	m.pd = pd
	return nil
}

package roce

import "github.com/goroce/roce/mr"

// RegMRPersistent registers memory that survives a loss of power, so that a
// peer may FLUSH it with [PlacePersistent] if access has [FlushPersistent].
// persist makes what was written to b, a part of buf, survive: msync of a mapped
// file, or the write-back of cache lines. It runs while the FLUSH is executed:
// it must not call the device, and while it blocks nothing else is done. If it
// fails the peer's FLUSH does (REM_OP_ERR).
func (p *PD) RegMRPersistent(buf []byte, access Access, persist func(b []byte) error) (*MR, error) {
	return p.reg(buf, access, mr.Options{Persist: persist})
}

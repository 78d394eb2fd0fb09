package mr

import (
	"fmt"

	"github.com/goroce/roce/bth"
)

// The operations of the model on regions that work requests register.

func (x *machine) allocFast() error {
	if len(x.regions) > 12 {
		return nil
	}
	pd := x.dice(2)
	m, err := x.tab.AllocFast(x.pds[pd], FastOptions{MaxPieces: 4})
	if err != nil {
		return err
	}
	x.regions = append(x.regions, &modelRegion{m: m, fast: true, pd: pd, key: uint32(m.RKey())})
	x.keys = append(x.keys, uint32(m.RKey()))
	return nil
}

func (x *machine) mapFast() error {
	r, ok := pick(x, x.regions)
	if !ok {
		return nil
	}
	var sg [][]byte
	var all []modelByte
	for range 1 + x.dice(5) {
		b := x.buffer()
		sg = append(sg, b)
		all = append(all, x.bytes(b)...)
	}
	err := r.m.Map(sg, Options{})
	if (err == nil) != (r.fast && len(sg) <= 4) {
		return fmt.Errorf("map of %d pieces: %v", len(sg), err)
	}
	if err == nil {
		r.next, r.nextAt, r.hasNext = all, r.m.Addr(), true
	}
	return nil
}

func (x *machine) registerFast() error {
	r, ok := pick(x, x.regions)
	if !ok {
		return nil
	}
	pd, acc := r.pd, x.rights()
	if x.dice(6) == 0 {
		pd = 1 - pd
	}
	key := r.key&^0xFF | uint32(x.dice(256))
	if x.dice(8) == 0 {
		key ^= 0x100
	}
	f := x.tab.RegisterFast(x.pds[pd], r.m, bth.RKey(key), acc)
	may := (r.fast || r.indirect) && pd == r.pd && key>>8 == r.key>>8 && writable(acc) && !r.valid && (r.hasNext || r.bytes != nil)
	if may && r.hasNext {
		r.bytes, r.parts, r.depth, r.hasNext = r.next, r.next2, r.depth2, false
	}
	if may {
		for _, part := range r.parts {
			may = may && !part.r.closed && part.r.valid && part.r.epoch == part.epoch
			acc &= part.r.acc | ^partRights
		}
	}
	if (f == OK) != may {
		return fmt.Errorf("fast registration: %v, model says %v", f, may)
	}
	if f == OK {
		r.m.Posted(bth.RKey(key), acc, nil)
		r.key, r.acc, r.valid, r.iova = key, acc, true, r.nextAt
		r.epoch++
		for _, part := range r.parts {
			part.r.users++
		}
		if acc&ZeroBased != 0 {
			r.iova = 0
		}
		x.keys = append(x.keys, key)
	}
	return nil
}

// release ends a registration.
func (r *modelRegion) release() {
	if r.valid {
		r.valid = false
		for _, part := range r.parts {
			part.r.users--
		}
	}
}

func (x *machine) allocIndirect() error {
	if len(x.regions) > 12 {
		return nil
	}
	pd := x.dice(2)
	m, err := x.tab.AllocIndirect(x.pds[pd], 3)
	if err != nil {
		return err
	}
	x.regions = append(x.regions, &modelRegion{m: m, indirect: true, pd: pd, key: uint32(m.RKey())})
	x.keys = append(x.keys, uint32(m.RKey()))
	return nil
}

func (x *machine) mapParts() error {
	r, ok := pick(x, x.regions)
	if !ok {
		return nil
	}
	may, depth, repeat := r.indirect, 1, 1+x.dice(3)
	var parts []Part
	var regs []modelReg
	for range 1 + x.dice(4) {
		u, _ := pick(x, x.regions)
		for i := range 6 { // prefers a region that can be a part
			if u.pd != r.pd || !u.valid || u == r || i < 3 && !u.fast {
				u, _ = pick(x, x.regions)
			}
		}
		p := Part{MR: u.m, Offset: x.offset(len(u.bytes) / 2), Length: uint64(x.dice(16)), Stride: uint64(x.dice(12))}
		if x.dice(16) == 0 {
			p.Stride = ^uint64(0) / uint64(1+x.dice(4))
		}
		may = may && u != r && u.pd == r.pd && u.valid && p.Length > 0 && p.Offset+p.Length <= uint64(len(u.bytes)) && p.Offset+p.Length >= p.Offset
		for i := range uint64(repeat) { // each repetition must be inside
			may = may && (i == 0 || p.Stride < 1<<32 && p.Offset+i*p.Stride+p.Length <= uint64(len(u.bytes)))
		}
		parts, regs = append(parts, p), append(regs, modelReg{u, u.epoch})
		if u.indirect {
			depth = max(depth, 1+u.depth)
		}
	}
	err := r.m.MapParts(parts, uint64(repeat), Options{})
	if may = may && len(parts) <= 3 && depth <= MaxDepth; (err == nil) != may {
		return fmt.Errorf("map of parts: %v, model says %v", err, may)
	}
	if err != nil {
		return nil
	}
	r.next, r.next2, r.depth2, r.nextAt, r.hasNext = nil, regs, depth, 0, true
	for i := range uint64(repeat) {
		for k, p := range parts {
			under := -1
			for _, b := range regs[k].r.bytes[p.Offset+i*p.Stride:][:p.Length] {
				if b.piece != under {
					under = b.piece
					x.pieces++
				}
				by := append([]modelReg{regs[k]}, b.by...)
				r.next = append(r.next, modelByte{b.byte, x.pieces, by})
			}
		}
	}
	return nil
}

// killPart invalidates a part of an indirect region.
func (x *machine) killPart() error {
	for _, r := range x.regions {
		if !r.valid || len(r.parts) == 0 {
			continue
		}
		u := r.parts[x.dice(len(r.parts))].r
		if !u.valid || !u.fast || u.windows > 0 {
			continue
		}
		u.release()
		if f := x.tab.Invalidate(x.pds[u.pd], q1, bth.RKey(u.key)); f != OK {
			return fmt.Errorf("invalidate a part: %v", f)
		}
		return nil
	}
	return nil
}

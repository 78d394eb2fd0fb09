package mr

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
)

// The model defines, as plainly as possible, what the table must do. A region is a list of the bytes that it opens. A
// window is another list.

// modelByte is one byte, the piece of memory that it belongs to, and the registrations through which an indirect
// region reached it when it was mapped.
type modelByte struct {
	*byte
	piece int
	by    []modelReg
}

// modelReg is one registration of a region.
type modelReg struct {
	r     *modelRegion
	epoch int
}

func (b modelByte) live() bool {
	for _, x := range b.by {
		if !x.r.valid || x.r.epoch != x.epoch {
			return false
		}
	}
	return true
}

type modelRegion struct {
	m       *MR
	fast    bool
	pd      int
	key     uint32
	valid   bool
	acc     Access
	iova    uint64
	bytes   []modelByte
	next    []modelByte // mapped for the next registration
	nextAt  uint64
	hasNext bool
	windows int

	indirect bool
	epoch    int // counts registrations
	closed   bool
	depth    int
	parts    []modelReg // of an indirect region
	next2    []modelReg // for its next registration
	depth2   int
	users    int // VALID indirect regions that have it as a part
}

type modelWindow struct {
	w     *MW
	typ   MWType
	pd    int
	key   uint32
	on    *modelRegion // nil: unbound
	bytes []modelByte
	iova  uint64
	acc   Access
	qpn   bth.QPN
}

// machine runs operations on a table and on the model side by side.
type machine struct {
	dice    func(n int) int
	tab     *Table
	pds     [2]*PD
	lists   [2]Windows // of queue pairs q1, q2
	trail   Trail      // of all accesses
	regions []*modelRegion
	windows []*modelWindow
	keys    []uint32 // all keys so far
	pieces  int
	steps   int
	allowed int // accesses that reached memory
	dead    int // and those that touched memory of an invalidated region
}

var modelQPs = [2]bth.QPN{q1, q2}

func newMachine(dice func(int) int) *machine {
	rnd := rand.New(rand.NewPCG(7, 8))
	return &machine{dice: dice, tab: NewTable(rnd.Uint64), pds: [2]*PD{NewPD(), NewPD()}, keys: []uint32{0}}
}

// bytes lists the bytes of a piece of memory.
func (x *machine) bytes(b []byte) (p []modelByte) {
	x.pieces++
	for i := range b {
		p = append(p, modelByte{byte: &b[i], piece: x.pieces})
	}
	return p
}

var modelOps = []func(*machine) error{(*machine).register, (*machine).deregister, (*machine).reregister, (*machine).allocFast,
	(*machine).allocIndirect, (*machine).mapParts, (*machine).mapParts, (*machine).registerFast,
	(*machine).mapFast, (*machine).mapFast, (*machine).registerFast, (*machine).registerFast, (*machine).registerFast,
	(*machine).allocMW, (*machine).bind, (*machine).bind, (*machine).bind, (*machine).bind,
	(*machine).invalidate, (*machine).invalidate, (*machine).killPart, (*machine).deallocMW, (*machine).unbindAll,
	(*machine).access, (*machine).access, (*machine).access, (*machine).access, (*machine).access, (*machine).access}

// step does one random operation and reports a difference between the table and the model.
func (x *machine) step() error {
	x.steps++
	i := x.dice(len(modelOps))
	if err := modelOps[i](x); err != nil {
		return fmt.Errorf("step %d, operation %d: %w", x.steps, i, err)
	}
	return nil
}

func pick[T any](x *machine, s []T) (v T, ok bool) {
	if len(s) == 0 {
		return v, false
	}
	return s[x.dice(len(s))], true
}

func (x *machine) buffer() []byte { return aligned(8 + x.dice(120)) }

var modelRights = []Access{0, LocalWrite, RemoteRead, LocalWrite | MWBind, RemoteRead | MWBind, LocalWrite | RemoteWrite | RemoteAtomic,
	LocalWrite | RemoteRead | RemoteWrite | RemoteAtomic | MWBind, RemoteWrite, LocalWrite | MWBind | ZeroBased}

func (x *machine) rights() Access { return modelRights[x.dice(len(modelRights))] }

func writable(acc Access) bool { return acc&(RemoteWrite|RemoteAtomic) == 0 || acc&LocalWrite != 0 }

func (x *machine) register() error {
	if len(x.regions) > 12 {
		return nil
	}
	pd, buf, acc := x.dice(2), x.buffer(), x.rights()
	m, err := x.tab.Register(x.pds[pd], buf, acc, Options{})
	if (err == nil) != writable(acc) {
		return fmt.Errorf("register with %v: %v", acc, err)
	}
	if err == nil {
		x.regions = append(x.regions, &modelRegion{m: m, pd: pd, key: uint32(m.RKey()), valid: true, acc: acc, iova: m.Addr(), bytes: x.bytes(buf)})
		x.keys = append(x.keys, uint32(m.RKey()))
	}
	return nil
}

func (x *machine) deregister() error {
	r, ok := pick(x, x.regions)
	if !ok || x.dice(3) > 0 {
		return nil
	}
	err := r.m.Deregister()
	if r.windows > 0 || r.users > 0 {
		if !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("deregister under %d windows, part of %d: %v", r.windows, r.users, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	r.release()
	r.closed = true
	for i := range x.regions {
		if x.regions[i] == r {
			x.regions = append(x.regions[:i], x.regions[i+1:]...)
			break
		}
	}
	return nil
}

func (x *machine) reregister() error {
	r, ok := pick(x, x.regions)
	if !ok {
		return nil
	}
	flags, pd, buf, acc := Rereg(x.dice(8)), x.dice(2), x.buffer(), x.rights()
	err := r.m.Reregister(flags, x.pds[pd], buf, acc, Options{})
	now := r.acc
	if flags&ReregAccess != 0 {
		now = acc
	}
	switch {
	case flags == 0, r.fast || r.indirect, flags&ReregAccess == 0 && acc != 0, !writable(now), flags&ReregTranslation == 0 && (now^r.acc)&ZeroBased != 0:
		if !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("reregister %v with %v: %v, want EINVAL", flags, acc, err)
		}
		return nil
	case r.windows > 0 || r.users > 0:
		if !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("reregister of what is in use: %v", err)
		}
		return nil
	case err != nil:
		return err
	}
	r.acc = now
	r.epoch++
	if flags&ReregPD != 0 {
		r.pd = pd
	}
	if flags&ReregTranslation != 0 {
		r.bytes, r.iova = x.bytes(buf), r.m.Addr()
	}
	return nil
}

func (x *machine) allocMW() error {
	if len(x.windows) > 8 {
		return nil
	}
	pd, typ := x.dice(2), MWType(1+x.dice(2))
	w, err := x.tab.AllocMW(x.pds[pd], typ)
	if err != nil {
		return err
	}
	x.windows = append(x.windows, &modelWindow{w: w, typ: typ, pd: pd, key: uint32(w.RKey())})
	x.keys = append(x.keys, uint32(w.RKey()))
	return nil
}

// offset returns an offset in or near an object of n bytes.
func (x *machine) offset(n int) uint64 {
	switch x.dice(16) {
	case 0:
		return uint64(n)
	case 1:
		return ^uint64(0)
	}
	return uint64(x.dice(n + 1))
}

func (x *machine) bind() error {
	w, ok := pick(x, x.windows)
	r, ok2 := pick(x, x.regions)
	if !ok || !ok2 {
		return nil
	}
	qi, pd := x.dice(2), w.pd
	if x.dice(8) == 0 {
		pd = 1 - pd
	}
	acc := []Access{0, RemoteRead, RemoteRead | RemoteWrite, RemoteAtomic, RemoteRead | ZeroBased}[x.dice(5)]
	off, n := x.offset(len(r.bytes)), uint64(x.dice(24))
	if x.dice(16) == 0 {
		n = ^uint64(0) - uint64(x.dice(100))
	}
	key := w.key&^0xFF | uint32(x.dice(256))
	b := &Binding{Key: bth.RKey(key), MR: r.m, LKey: bth.LKey(r.key), Addr: r.iova + off, Length: n, Access: acc}
	if x.dice(8) == 0 {
		b.LKey ^= 1
	}
	f := x.tab.Bind(x.pds[pd], modelQPs[qi], &x.lists[qi], w.w, b)

	inside := off <= uint64(len(r.bytes)) && n <= uint64(len(r.bytes))-off
	region := uint32(b.LKey) == r.key && r.valid && r.pd == w.pd && r.acc&MWBind != 0 && inside &&
		(acc&(RemoteWrite|RemoteAtomic) == 0 || r.acc&LocalWrite != 0)
	may := pd == w.pd
	if w.typ == MWType1 {
		may = may && acc&ZeroBased == 0 && (n == 0 || region && r.acc&ZeroBased == 0)
	} else {
		may = may && w.on == nil && n > 0 && region
	}
	if (f == OK) != may {
		return fmt.Errorf("bind %v: %v, model says %v", w.typ, f, may)
	}
	if f != OK {
		return nil
	}
	w.unbind()
	w.key = key
	x.keys = append(x.keys, key)
	if n > 0 {
		w.on, w.bytes, w.iova, w.acc, w.qpn = r, r.bytes[off:off+n], b.Addr, acc, 0
		if acc&ZeroBased != 0 {
			w.iova = 0
		}
		if w.typ == MWType2 {
			w.qpn = modelQPs[qi]
		}
		r.windows++
	}
	return nil
}

func (w *modelWindow) unbind() {
	if w.on != nil {
		w.on.windows--
		w.on = nil
	}
}

func (x *machine) invalidate() error {
	key, _ := pick(x, x.keys)
	pd, q := x.dice(2), modelQPs[x.dice(2)]
	f := x.tab.Invalidate(x.pds[pd], q, bth.RKey(key))
	want := BadKey
	for _, r := range x.regions {
		if !r.valid || r.key != key {
			continue
		}
		switch {
		case r.pd != pd:
			want = BadPD
		case !r.fast && !r.indirect:
			want = NotInvalidable
		case r.windows > 0:
			want = HasWindows
		default:
			want = OK
			r.release()
		}
	}
	for _, w := range x.windows {
		if w.on == nil || w.key != key {
			continue
		}
		switch {
		case w.pd != pd:
			want = BadPD
		case w.typ == MWType1:
			want = NotInvalidable
		case w.qpn != q:
			want = BadQP
		default:
			want = OK
			w.unbind()
		}
	}
	if f != want {
		return fmt.Errorf("invalidate: %v, model says %v", f, want)
	}
	return nil
}

func (x *machine) deallocMW() error {
	if len(x.windows) == 0 || x.dice(3) > 0 {
		return nil
	}
	i := x.dice(len(x.windows))
	x.windows[i].unbind()
	err := x.windows[i].w.Dealloc()
	x.windows = append(x.windows[:i], x.windows[i+1:]...)
	return err
}

func (x *machine) unbindAll() error {
	if x.dice(4) > 0 {
		return nil
	}
	i := x.dice(2)
	x.tab.UnbindAll(&x.lists[i])
	for _, w := range x.windows {
		if w.typ == MWType2 && w.on != nil && w.qpn == modelQPs[i] {
			w.unbind()
		}
	}
	return nil
}

// TestModel runs random operations on the table and on the model, and compares
// every answer and every byte.
func TestModel(t *testing.T) {
	allowed, dead := 0, 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		x := newMachine(rnd.IntN)
		for range 500 {
			if err := x.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := x.end(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		allowed += x.allowed
		dead += x.dead
	}
	t.Logf("%d accesses reached memory, %d of them memory that was gone", allowed, dead)
	if allowed < 1500 || dead < 20 {
		t.Errorf("only %d accesses reached memory, %d of them memory that was gone: the test covers too little", allowed, dead)
	}
}

// end frees all objects. None may be left.
func (x *machine) end() error {
	for _, w := range x.windows {
		if err := w.w.Dealloc(); err != nil {
			return err
		}
	}
	for _, r := range x.regions { // first, no region is part of another any more
		if r.valid && (r.fast || r.indirect) {
			if f := x.tab.Invalidate(x.pds[r.pd], q1, bth.RKey(r.key)); f != OK {
				return fmt.Errorf("invalidate at the end: %v", f)
			}
		}
	}
	for _, r := range x.regions {
		if err := r.m.Deregister(); err != nil {
			return err
		}
	}
	for _, p := range x.pds {
		if err := p.Dealloc(); err != nil {
			return err
		}
	}
	if n := x.tab.Len(); n != 0 || x.lists[0].first != nil || x.lists[1].first != nil {
		return fmt.Errorf("%d objects are left", n)
	}
	return nil
}

// FuzzModel takes the operations from the fuzzer.
func FuzzModel(f *testing.F) {
	for seed := range uint64(4) {
		rnd := rand.New(rand.NewPCG(seed, 3))
		b := make([]byte, 2000)
		for i := range b {
			b[i] = byte(rnd.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 8000 {
			return
		}
		x := newMachine(func(n int) int {
			if len(ops) == 0 {
				return 0
			}
			v := int(ops[0])
			ops = ops[1:]
			return v % n
		})
		for len(ops) > 0 {
			if err := x.step(); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.end(); err != nil {
			t.Fatal(err)
		}
	})
}

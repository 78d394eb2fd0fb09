package mr

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
)

// The model: what the table must do, said as plainly as possible. A region is
// a list of the bytes it opens; a window is another list.

// modelByte is one byte, and which piece of memory it is of.
type modelByte struct {
	*byte
	piece int
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
	regions []*modelRegion
	windows []*modelWindow
	keys    []uint32 // every key there ever was
	pieces  int
	steps   int
	allowed int // accesses that reached memory
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
		p = append(p, modelByte{&b[i], x.pieces})
	}
	return p
}

var modelOps = []func(*machine) error{(*machine).register, (*machine).deregister, (*machine).reregister, (*machine).allocFast,
	(*machine).mapFast, (*machine).mapFast, (*machine).registerFast, (*machine).registerFast, (*machine).registerFast,
	(*machine).allocMW, (*machine).bind, (*machine).bind, (*machine).bind, (*machine).bind,
	(*machine).invalidate, (*machine).invalidate, (*machine).deallocMW, (*machine).unbindAll,
	(*machine).access, (*machine).access, (*machine).access, (*machine).access, (*machine).access, (*machine).access}

// step does one random operation and reports a disagreement.
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
	if r.windows > 0 {
		if !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("deregister under %d windows: %v", r.windows, err)
		}
		return nil
	}
	if err != nil {
		return err
	}
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
	case flags == 0, r.fast, flags&ReregAccess == 0 && acc != 0, !writable(now), flags&ReregTranslation == 0 && (now^r.acc)&ZeroBased != 0:
		if !errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("reregister %v with %v: %v, want EINVAL", flags, acc, err)
		}
		return nil
	case r.windows > 0:
		if !errors.Is(err, syscall.EBUSY) {
			return fmt.Errorf("reregister under a window: %v", err)
		}
		return nil
	case err != nil:
		return err
	}
	r.acc = now
	if flags&ReregPD != 0 {
		r.pd = pd
	}
	if flags&ReregTranslation != 0 {
		r.bytes, r.iova = x.bytes(buf), r.m.Addr()
	}
	return nil
}

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
	may := r.fast && pd == r.pd && key>>8 == r.key>>8 && writable(acc) && !r.valid && (r.hasNext || r.bytes != nil)
	if (f == OK) != may {
		return fmt.Errorf("fast registration: %v, model says %v", f, may)
	}
	if f == OK {
		r.m.Posted(bth.RKey(key), acc)
		if r.hasNext {
			r.bytes, r.hasNext = r.next, false
		}
		r.key, r.acc, r.valid, r.iova = key, acc, true, r.nextAt
		if acc&ZeroBased != 0 {
			r.iova = 0
		}
		x.keys = append(x.keys, key)
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

// offset is a place in or near something of size n.
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
		case !r.fast:
			want = NotInvalidable
		case r.windows > 0:
			want = HasWindows
		default:
			want, r.valid = OK, false
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

// opening is what a key opens in the model.
type opening struct {
	pd    int
	qpn   bth.QPN
	iova  uint64
	acc   Access
	bytes []modelByte
}

func (x *machine) find(key uint32, local bool) (o opening, ok bool) {
	for _, r := range x.regions {
		if r.valid && r.key == key {
			return opening{r.pd, 0, r.iova, r.acc, r.bytes}, true
		}
	}
	for _, w := range x.windows {
		if w.on != nil && w.key == key && !local {
			return opening{w.pd, w.qpn, w.iova, w.acc, w.bytes}, true
		}
	}
	return o, false
}

// access looks a key up, locally or as a peer, and uses what it opens.
func (x *machine) access() error {
	key, _ := pick(x, x.keys)
	switch x.dice(4) { // live ones more often
	case 0, 1:
		if w, ok := pick(x, x.windows); ok {
			key = w.key
		}
	case 2:
		if r, ok := pick(x, x.regions); ok {
			key = r.key
		}
	}
	local := x.dice(4) == 0
	o, found := x.find(key, local)
	pd, q := o.pd, modelQPs[x.dice(2)]
	if o.qpn != 0 && x.dice(4) > 0 {
		q = o.qpn
	}
	if x.dice(8) == 0 {
		pd = 1 - pd
	}
	need := []Access{RemoteRead, RemoteWrite, RemoteAtomic}[x.dice(3)]
	if o.acc&need == 0 && x.dice(4) > 0 {
		need = o.acc & (RemoteRead | RemoteWrite)
	}
	if local {
		need = []Access{0, LocalWrite}[x.dice(2)]
	}
	off, n := x.offset(len(o.bytes)), uint64(1+x.dice(20))
	if need == RemoteAtomic {
		n = 8
	}
	if x.dice(16) == 0 {
		n = ^uint64(0) - uint64(x.dice(200))
	}
	var v Memory
	var at uint64
	var f Fault
	if local {
		n = uint64(uint32(n))
		v, at, f = x.tab.Local(x.pds[pd], SGE{o.iova + off, uint32(n), bth.LKey(key)}, need)
	} else {
		v, at, f = x.tab.Remote(x.pds[pd], q, bth.RKey(key), o.iova+off, n, need)
	}
	want := OK
	switch {
	case !found:
		want = BadKey
	case pd != o.pd:
		want = BadPD
	case o.qpn != 0 && o.qpn != q:
		want = BadQP
	case o.acc&need != need:
		want = BadAccess
	case off > uint64(len(o.bytes)) || n > uint64(len(o.bytes))-off:
		want = BadRange
	}
	if f != want {
		return fmt.Errorf("access %v: %v, model says %v", need, f, want)
	}
	if f != OK {
		return nil
	}
	x.allowed++
	return x.use(v, at, o.bytes[off:off+n], need)
}

// use reads or changes memory and compares it with the bytes it must be.
func (x *machine) use(v Memory, at uint64, bytes []modelByte, need Access) error {
	buf := make([]byte, len(bytes))
	switch need {
	case RemoteAtomic:
		for i := range bytes {
			buf[i] = *bytes[i].byte
		}
		was := binary.NativeEndian.Uint64(buf)
		old, f := v.FetchAdd(at, 5)
		if bytes[0].piece != bytes[7].piece {
			if f != BadRange {
				return fmt.Errorf("atomic across pieces: %v", f)
			}
			return nil
		}
		for i := range bytes {
			buf[i] = *bytes[i].byte
		}
		if f != OK || old != was || binary.NativeEndian.Uint64(buf) != old+5 {
			return fmt.Errorf("atomic on %d: %v, brought back %d and left %x", was, f, old, buf)
		}
	case RemoteWrite, LocalWrite:
		for i := range buf {
			buf[i] = byte(x.steps*31 + i)
		}
		if f := v.WriteAt(at, buf); f != OK {
			return fmt.Errorf("write: %v", f)
		}
		for i := range bytes {
			if *bytes[i].byte != buf[i] {
				return fmt.Errorf("byte %d of a write is missing", i)
			}
		}
	default:
		if f := v.ReadAt(buf, at); f != OK {
			return fmt.Errorf("read: %v", f)
		}
		for i := range bytes {
			if *bytes[i].byte != buf[i] {
				return fmt.Errorf("byte %d of a read is another's", i)
			}
		}
	}
	return nil
}

// TestModel runs random operations on the table and on the model, and compares
// every answer and every byte.
func TestModel(t *testing.T) {
	allowed := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		x := newMachine(rnd.IntN)
		for range 400 {
			if err := x.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		if err := x.end(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		allowed += x.allowed
	}
	t.Logf("%d accesses reached memory", allowed)
	if allowed < 3000 {
		t.Errorf("only %d accesses reached memory: the dice are loaded", allowed)
	}
}

// end gives everything back; nothing may be left.
func (x *machine) end() error {
	for _, w := range x.windows {
		if err := w.w.Dealloc(); err != nil {
			return err
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

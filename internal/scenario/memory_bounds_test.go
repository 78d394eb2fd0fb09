package scenario_test

import (
	"math"
	"reflect"
	"testing"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// panics reports whether f panics.
func panics(f func()) (yes bool) {
	defer func() { yes = recover() != nil }()
	f()
	return false
}

// Methods of a region access only its memory, not the memory after it in the same array.
func TestLoad64Bounds(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	array := make([]uint64, 8)
	array[1] = math.MaxUint64
	buf := unsafe.Slice((*byte)(unsafe.Pointer(&array[0])), 64)[:12]
	m := ok(d.AllocPD().RegMR(buf, roce.LocalWrite))(t)
	for _, off := range []int{5, 8, 12, 16, 64, -1, -8, math.MaxInt, math.MinInt} {
		if !panics(func() { m.Load64(off) }) {
			t.Errorf("Load64(%d) of a region of 12 bytes did not panic", off)
		}
		if !panics(func() { m.Store64(off, 0) }) {
			t.Errorf("Store64(%d) of a region of 12 bytes did not panic", off)
		}
	}
	if array[1] != math.MaxUint64 {
		t.Errorf("the word at the end of the region is %#x", array[1])
	}
	if panics(func() { m.Store64(0, 7) }) || m.Load64(0) != 7 {
		t.Error("the first word could not be stored and loaded")
	}
}

// An element with an impossible length is never accepted as a shorter one.
func TestSGEBounds(t *testing.T) {
	a, b := newPair(t, 64)
	lengths := []int{-1, math.MinInt, 65, math.MaxInt32}
	if math.MaxInt > math.MaxUint32 {
		big := uint64(1) << 32
		lengths = append(lengths, int(big), int(big+8), math.MaxInt)
	}
	for _, n := range lengths {
		for _, off := range []int{0, 8} {
			sge := a.mr.SGE(off, n)
			err := a.qp.PostSend(&roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{sge}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()})
			if err != nil {
				continue // refused at once
			}
			a.waitFor(cq.LocProtErr)
			a, b = newPair(t, 64)
		}
	}
}

// A region whose memory comes with work requests does not have the methods that need memory.
func TestMethodsOfPostedRegions(t *testing.T) {
	for _, m := range []any{new(roce.FastMR), new(roce.IndirectMR)} {
		typ := reflect.TypeOf(m)
		for _, name := range []string{"Bytes", "Load64", "Store64", "ReadAt", "WriteAt", "Reregister"} {
			if _, there := reflect.TypeFor[*roce.MR]().MethodByName(name); !there {
				t.Errorf("%s is no method of a region", name)
			}
			if _, there := typ.MethodByName(name); there {
				t.Errorf("%v has a method %s", typ, name)
			}
		}
	}
}

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/roce"
)

// badArgsRig has an open object of each kind, on a device with a neighbour, and objects of that
// neighbour, which are foreign.
type badArgsRig struct {
	objects, foreign map[reflect.Type]reflect.Value
	peer             *peer
	near, far        *roce.Device
}

func newBadArgsRig(t testing.TB) *badArgsRig {
	n := newNetwork(t)
	w := &badArgsRig{near: n.device("10.0.0.1"), far: n.device("10.0.0.2")}
	w.objects, w.peer = objectsOf(t, w.near)
	w.foreign, _ = objectsOf(t, w.far)
	return w
}

// objectsOf makes one object of each kind.
func objectsOf(t testing.TB, d *roce.Device) (map[reflect.Type]reflect.Value, *peer) {
	t.Helper()
	p := newPeer(t, d, 4096)
	xrcd := ok(d.OpenXRCD(roce.XRCDConfig{}))(t)
	ah := ok(d.CreateAH(context.Background(), roce.AHAttr{DGID: d.GIDs()[0]}))(t)
	all := map[reflect.Type]reflect.Value{}
	for _, o := range []any{
		d, p.pd, p.cq, p.qp, p.mr, xrcd, ah,
		ok(p.pd.CreateSRQ(roce.SRQConfig{MaxWR: 7}))(t),
		ok(p.pd.AllocMW(roce.MWType2))(t),
		ok(p.pd.AllocFastReg(roce.FastRegConfig{Pieces: 2}))(t),
		ok(p.pd.AllocIndirect(2))(t),
		ok(p.pd.NewFastRegPool(2, roce.FastRegConfig{Pieces: 1}))(t),
		ok(d.CreateCompChannel())(t),
		ok(d.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t),
		ok(d.ListenUD(context.Background(), ":7471", roce.ListenConfig{}))(t),
	} {
		v := reflect.ValueOf(o)
		all[v.Type()] = v
	}
	return all, p
}

// good returns a value of type t that methods accept, or the zero value of t.
func (w *badArgsRig) good(t reflect.Type) reflect.Value {
	pd, cq, mr := w.peer.pd, w.peer.cq, w.peer.mr
	for _, v := range []any{
		roce.QPConfig{SendCQ: cq}, roce.SRQConfig{MaxWR: 7}, roce.FastRegConfig{Pieces: 1}, roce.CQConfig{Entries: 1},
		roce.Part{MR: mr, Length: 8}, roce.Layout{Parts: []roce.Part{{MR: mr, Length: 8}}}, roce.MRChange{PD: pd, Mem: make([]byte, 8)},
		roce.Bind{MR: mr, Addr: mr.Addr(), Length: 8, Access: roce.RemoteRead}, roce.AHAttr{DGID: w.far.GIDs()[0]},
		roce.Peer{AHAttr: roce.AHAttr{DGID: w.far.GIDs()[0]}, QPN: 0x1234, MTU: 3},
		roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{mr.SGE(0, 8)}}, roce.RecvWR{SG: []roce.SGE{mr.SGE(0, 8)}},
		roce.MWType2, 8, "10.0.0.2:7471", make([]byte, 16), roce.LocalWrite, w.far.GIDs()[0],
	} {
		if r := reflect.ValueOf(v); r.Type() == t {
			return r
		}
	}
	switch {
	case w.objects[t].IsValid():
		return w.objects[t]
	case t == reflect.TypeFor[context.Context]():
		ctx, cancel := context.WithCancel(context.Background())
		cancel() // a call that waits must return at once
		return reflect.ValueOf(ctx)
	case t == reflect.TypeFor[roce.Region]():
		return reflect.ValueOf(mr)
	case t == reflect.TypeFor[any]():
		return reflect.ValueOf("anything")
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct:
		v := reflect.New(t.Elem())
		v.Elem().Set(w.good(t.Elem()))
		return v
	case t.Kind() == reflect.Slice && t.Elem().Kind() == reflect.Struct:
		return reflect.Append(reflect.Zero(t), w.good(t.Elem()))
	}
	return reflect.Zero(t)
}

// bad returns values of type t that most methods refuse. None of them may make a method panic or hang.
func (w *badArgsRig) bad(t reflect.Type, depth int) (values []reflect.Value) {
	add := func(v any) { values = append(values, reflect.ValueOf(v).Convert(t)) }
	if t == reflect.TypeFor[context.Context]() {
		return nil
	}
	values = append(values, reflect.Zero(t))
	switch t.Kind() {
	case reflect.Int, reflect.Int64:
		for _, x := range []int64{-1, 1, math.MinInt64, math.MaxInt64, 1 << 62, math.MaxInt32, math.MinInt32, 1 << 32} {
			values = append(values, reflect.New(t).Elem())
			values[len(values)-1].SetInt(x) // truncated to the type
		}
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Uint:
		for _, x := range []uint64{1, 0x80, math.MaxUint8, math.MaxUint16, 1 << 24, 1 << 31, math.MaxUint32, 1 << 62, math.MaxUint64} {
			values = append(values, reflect.New(t).Elem())
			values[len(values)-1].SetUint(x)
		}
	case reflect.String:
		for _, s := range []string{"x", ":", ":0", ":-1", ":99999999999999999999", "10.0.0.2", "999.0.0.1:1", "[::1%lo]:1", "0.0.0.0:1", "[ff02::1]:1", strings.Repeat("9", 1<<16)} {
			add(s)
		}
	case reflect.Interface:
		if t == reflect.TypeFor[roce.Region]() {
			add((*roce.MR)(nil))
			add((*roce.FastMR)(nil))
			add((*roce.IndirectMR)(nil))
			add(w.foreign[reflect.TypeFor[*roce.MR]()].Interface())
			add(w.objects[reflect.TypeFor[*roce.FastMR]()].Interface())
		}
	case reflect.Slice:
		values = append(values, reflect.MakeSlice(t, 0, 0), reflect.MakeSlice(t, 1, 1), reflect.MakeSlice(t, 3000, 3000))
	case reflect.Pointer:
		if f := w.foreign[t]; f.IsValid() {
			values = append(values, f)
		} else if t.Elem().Kind() == reflect.Struct {
			for _, v := range w.bad(t.Elem(), depth) {
				p := reflect.New(t.Elem())
				p.Elem().Set(v)
				values = append(values, p)
			}
		}
	case reflect.Struct:
		for i := range t.NumField() {
			if depth == 0 || !t.Field(i).IsExported() {
				continue
			}
			for _, v := range w.bad(t.Field(i).Type, depth-1) {
				s := reflect.New(t).Elem()
				s.Set(w.good(t))
				s.Field(i).Set(v)
				values = append(values, s)
			}
		}
	}
	return values
}

// panicsBy lists the methods whose documentation promises a panic for bad arguments.
var panicsBy = []string{"MR.Load64", "MR.Store64"}

// caller calls methods and notices those that panic or do not return.
type caller struct {
	t     *testing.T
	state string
	now   atomic.Pointer[string]
	calls atomic.Int64
}

// method calls a method with each bad value for each parameter, the others being good.
func (c *caller) method(w *badArgsRig, o reflect.Value, m reflect.Method) {
	name := strings.TrimPrefix(o.Type().String(), "*roce.") + "." + m.Name
	var args []reflect.Value
	for i := 1; i < m.Type.NumIn(); i++ {
		args = append(args, w.good(m.Type.In(i)))
	}
	c.call(name, o, m, args)
	for i := range args {
		for _, v := range w.bad(m.Type.In(i+1), 2) {
			if m.Name == "AllocMR" && v.CanInt() && v.Int() > 1<<20 && v.Int() < 1<<62 {
				continue // it would be allocated
			}
			these := slices.Clone(args)
			these[i] = v
			c.call(name, o, m, these)
		}
	}
}

func (c *caller) call(name string, o reflect.Value, m reflect.Method, args []reflect.Value) {
	c.now.Store(&name)
	c.calls.Add(1)
	defer func() {
		if r := recover(); r != nil && !slices.Contains(panicsBy, name) {
			c.t.Errorf("%s, %s(%s) panics: %v\n%s", c.state, name, describe(args), r, debug.Stack())
		}
	}()
	var out []reflect.Value
	if all := append([]reflect.Value{o}, args...); m.Type.IsVariadic() {
		out = m.Func.CallSlice(all)
	} else {
		out = m.Func.Call(all)
	}
	if len(out) == 0 || !out[len(out)-1].Type().Implements(reflect.TypeFor[error]()) || out[len(out)-1].IsNil() {
		return
	}
	err := out[len(out)-1].Interface().(error)
	if c.state == "open" && errors.Is(err, roce.ErrClosed) && !strings.HasSuffix(name, ".Disconnect") {
		c.t.Errorf("%s, %s(%s) says %v", c.state, name, describe(args), err)
	}
	for _, v := range out[:len(out)-1] {
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			c.t.Errorf("%s, %s(%s) returns an object and the error %v", c.state, name, describe(args), err)
		}
	}
}

func describe(args []reflect.Value) string {
	var s []string
	for _, a := range args {
		s = append(s, fmt.Sprintf("%.200s", fmt.Sprintf("%T", a.Interface())+fmt.Sprintf("%+v", a)))
	}
	return strings.Join(s, ", ")
}

// sweep calls all methods of all objects of a badArgsRig except those that it must skip.
func (c *caller) sweep(w *badArgsRig, but ...string) {
	types := slices.SortedFunc(func(yield func(reflect.Type) bool) {
		for t := range w.objects {
			if !yield(t) {
				return
			}
		}
	}, func(a, b reflect.Type) int { return strings.Compare(a.String(), b.String()) })
	for _, typ := range types {
		if typ == reflect.TypeFor[*roce.AH]() {
			continue // of package frame
		}
		for i := range typ.NumMethod() {
			if m := typ.Method(i); !slices.Contains(but, m.Name) {
				c.method(w, w.objects[typ], m)
			}
		}
	}
}

// TestBadArguments calls every public method of every object with bad arguments - nil, zero,
// negative, huge, of another device - while the object is open, when it is closed, and when
// its device is closed: none panics, none hangs, and an error comes without an object. The device still works
// afterwards.
func TestBadArguments(t *testing.T) {
	c := &caller{t: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.state = "open"
		w := newBadArgsRig(t)
		c.sweep(w, "Close", "SetAddrs", "SetLimits", "SetGone") // the last two are of tests
		c.works(w)
		if t.Failed() {
			return
		}
		c.state = "closed"
		w = newBadArgsRig(t)
		c.closeAll(w)
		c.sweep(w, "Close", "SetLimits", "SetGone")
		c.state = "of a closed device"
		w = newBadArgsRig(t)
		check(t, w.near.Close())
		c.sweep(w, "Close", "SetLimits", "SetGone")
		c.closeAll(w)
	}()
	for last := int64(-1); ; {
		select {
		case <-done:
			return
		case <-time.After(time.Minute):
			if n := c.calls.Load(); n == last {
				t.Fatalf("%s, %s does not return", c.state, *c.now.Load())
			} else {
				last = n
			}
		}
	}
}

// works checks that the device still transfers data.
func (c *caller) works(w *badArgsRig) {
	a, b := newPeer(c.t, w.near, 64), newPeer(c.t, w.far, 64)
	connect(c.t, a, b)
	a.post(roce.Write, 0, 8, b, 0)
	a.wait()
}

// closeAll closes all objects in an order that works, and then once more.
func (c *caller) closeAll(w *badArgsRig) {
	type closer interface{ Close() error }
	order := []reflect.Type{
		reflect.TypeFor[*roce.Listener](), reflect.TypeFor[*roce.UDListener](), reflect.TypeFor[*roce.FastRegPool](),
		reflect.TypeFor[*roce.IndirectMR](), reflect.TypeFor[*roce.FastMR](), reflect.TypeFor[*roce.MW](), reflect.TypeFor[*roce.MR](),
		reflect.TypeFor[*roce.QP](), reflect.TypeFor[*roce.SRQ](), reflect.TypeFor[*roce.XRCD](), reflect.TypeFor[*roce.CQ](),
		reflect.TypeFor[*roce.CompChannel](), reflect.TypeFor[*roce.PD](), reflect.TypeFor[*roce.Device](),
	}
	for _, typ := range order {
		o := w.objects[typ].Interface().(closer)
		if err := o.Close(); err != nil && !(c.state == "of a closed device" && errors.Is(err, roce.ErrClosed)) {
			c.t.Errorf("%s, close %v: %v", c.state, typ, err)
		}
		if err := o.Close(); !errors.Is(err, roce.ErrClosed) {
			c.t.Errorf("%s, close %v again: %v, want %v", c.state, typ, err, roce.ErrClosed)
		}
	}
}

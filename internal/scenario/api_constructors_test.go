package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/inside"
)

var errResolver = fmt.Errorf("the resolver failed: %w", syscall.EHOSTUNREACH)

// constructorRig is a device whose parts can be made to fail, with the arguments of its constructors. A server on a
// neighbour answers connection requests.
type constructorRig struct {
	t        *testing.T
	dev, far *roce.Device
	pd       *roce.PD
	cq       *roce.CQ
	ud       *roce.QP
	mr       *roce.MR
	xrcd     *roce.XRCD
	srq      *roce.SRQ
	channel  *roce.CompChannel

	resolve, join, accept atomic.Pointer[error]
}

func fails(p *atomic.Pointer[error]) error {
	if err := p.Load(); err != nil {
		return *err
	}
	return nil
}

func (w *constructorRig) Resolve(ctx context.Context, src, dst netip.Addr) (roce.Neighbour, error) {
	if err := fails(&w.resolve); err != nil {
		return roce.Neighbour{}, err
	}
	return roce.DerivedMACs{}.Resolve(ctx, src, dst)
}

func (w *constructorRig) Join(netip.Addr) (func() error, error) {
	return func() error { return nil }, fails(&w.join)
}

func newConstructorRig(t *testing.T) *constructorRig {
	t.Helper()
	w := &constructorRig{t: t}
	n := newNetwork(t)
	c := n.config("10.0.0.1")
	c.Resolver, c.Membership = w, w
	w.dev, w.far = n.open(c), n.device("10.0.0.2")
	w.pd, w.cq = w.dev.AllocPD(), ok(w.dev.CreateCQ(15))(t)
	w.mr = ok(w.pd.RegMR(make([]byte, 64), allRights))(t)
	w.xrcd = ok(w.dev.OpenXRCD(roce.XRCDConfig{}))(t)
	w.srq = ok(w.pd.CreateSRQ(roce.SRQConfig{MaxWR: 7}))(t)
	w.channel = ok(w.dev.CreateCompChannel())(t)
	w.ud = ok(w.pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: w.cq}))(t)
	check(t, w.ud.Init(0, roce.DefaultUDPQKey))
	check(t, w.ud.Ready(0))
	w.serve()
	return w
}

// serve answers requests of the device: it accepts connections and lookups unless w.accept says otherwise.
func (w *constructorRig) serve() {
	l := ok(w.far.Listen(context.Background(), ":7471", roce.ListenConfig{}))(w.t)
	u := ok(w.far.ListenUD(context.Background(), ":7471", roce.ListenConfig{}))(w.t)
	p := newPeer(w.t, w.far, 64)
	ud := ok(p.pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: p.cq}))(w.t)
	check(w.t, ud.Init(0, roce.DefaultUDPQKey))
	check(w.t, ud.Ready(0))
	go func() {
		for {
			r, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			if fails(&w.accept) != nil {
				r.Reject(nil)
			} else if c, err := r.Accept(context.Background(), roce.AcceptConfig{}); err == nil {
				go func() { <-c.Done(); c.Close() }()
			}
		}
	}()
	go func() {
		for {
			r, err := u.Accept(context.Background())
			if err != nil {
				return
			}
			if fails(&w.accept) != nil {
				r.Reject(nil)
			} else {
				r.Accept(ud, nil)
			}
		}
	}()
}

// closer closes something by a function.
type closer func() error

func (c closer) Close() error { return c() }

var nothing = closer(func() error { return nil })

// failure makes something fail until undo is called.
type failure struct {
	name   string
	inject func(w *constructorRig) (undo func())
	want   error
}

// setting sets one of the errors of a constructorRig.
func setting(which func(*constructorRig) *atomic.Pointer[error], err error) func(*constructorRig) func() {
	return func(w *constructorRig) func() {
		p := which(w)
		p.Store(&err)
		return func() { p.Store(nil) }
	}
}

// limits lowers the limits of the device.
func limits(qps, srqs, regions, windows int) func(*constructorRig) func() {
	return func(w *constructorRig) func() {
		setLimits(w.dev, qps, srqs, regions, windows)
		return func() { setLimits(w.dev, many, many, many, many) }
	}
}

const many = 1 << 20

var (
	gone = failure{"interface removed", func(w *constructorRig) func() {
		inside.NIC(w.dev).SetRemoved(true)
		return func() { inside.NIC(w.dev).SetRemoved(false) }
	}, roce.ErrNoDevice}
	noQP       = failure{"no queue pair left", limits(0, many, many, many), syscall.ENOMEM}
	noSRQ      = failure{"no shared receive queue left", limits(many, 0, many, many), syscall.ENOMEM}
	noRegion   = failure{"no region left", limits(many, many, 0, many), syscall.ENOMEM}
	fewRegions = failure{"few regions left", func(w *constructorRig) func() {
		return limits(many, many, countObjects(w.dev).keys+2, many)(w)
	}, syscall.ENOMEM}
	noWindow   = failure{"no window left", limits(many, many, many, 0), syscall.ENOMEM}
	unresolved = failure{"resolver fails", setting(func(w *constructorRig) *atomic.Pointer[error] { return &w.resolve }, errResolver), syscall.EHOSTUNREACH}
	noGroup    = failure{"kernel allows no more groups", setting(func(w *constructorRig) *atomic.Pointer[error] { return &w.join }, syscall.ENOBUFS), syscall.ENOMEM}
	rejected   = failure{"peer rejects", setting(func(w *constructorRig) *atomic.Pointer[error] { return &w.accept }, syscall.ECONNREFUSED), syscall.ECONNREFUSED}
	errSetup   = errors.New("the program's own error")
)

// bad is another way to call a constructor, with a mistake. want nil is any error.
type bad struct {
	name   string
	want   error
	create func(w *constructorRig) (made, error)
}

func arg(name string, want error, create func(w *constructorRig) (made, error)) bad {
	return bad{name, want, create}
}

// made is the result of a constructor.
type made = interface{ Close() error }

// as gives a constructor's result a common type.
func as[T made](v T, err error) (made, error) {
	if err != nil {
		return nil, err
	}
	return v, nil
}

// patience returns a context that only ends by itself if something hangs.
func (w *constructorRig) patience() context.Context { return within(w.t, time.Minute) }

var cancelled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// constructors lists those of the package, with each step that can fail.
var constructors = []struct {
	name   string
	create func(w *constructorRig) (made, error)
	faults []failure
	bad    []bad
}{
	{"CreateCQ", func(w *constructorRig) (made, error) {
		return as(w.dev.CreateCQWith(roce.CQConfig{Entries: 7, Channel: w.channel}))
	}, nil, []bad{
		arg("no entries", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.dev.CreateCQWith(roce.CQConfig{Channel: w.channel}))
		}),
		arg("no such shard", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.dev.CreateCQWith(roce.CQConfig{Entries: 1, Shard: 1, Channel: w.channel}))
		}),
		arg("closed channel", roce.ErrClosed, func(w *constructorRig) (made, error) {
			c := ok(w.dev.CreateCompChannel())(w.t)
			check(w.t, c.Close())
			return as(w.dev.CreateCQWith(roce.CQConfig{Entries: 1, Channel: c}))
		}),
	}},
	{"CreateQP", func(w *constructorRig) (made, error) {
		return as(w.pd.CreateQP(roce.QPConfig{SendCQ: w.cq, SRQ: w.srq}))
	}, []failure{noQP, gone}, []bad{
		arg("too deep", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.pd.CreateQP(roce.QPConfig{SendCQ: w.cq, SRQ: w.srq, Caps: roce.Caps{MaxSendWR: 1 << 30}}))
		}),
		arg("bad congestion control", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.pd.CreateQP(roce.QPConfig{SendCQ: w.cq, SRQ: w.srq, Congestion: &roce.DCQCN{}}))
		}),
		arg("queue of shared receives for XRC", syscall.EINVAL, func(w *constructorRig) (made, error) {
			s := ok(w.pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, XRCD: w.xrcd, CQ: w.cq}))(w.t)
			defer s.Close()
			return as(w.pd.CreateQP(roce.QPConfig{SendCQ: w.cq, SRQ: s}))
		}),
		arg("closed completion queue", roce.ErrClosed, func(w *constructorRig) (made, error) {
			c := ok(w.dev.CreateCQ(1))(w.t)
			check(w.t, c.Close())
			return as(w.pd.CreateQP(roce.QPConfig{SendCQ: w.cq, RecvCQ: c, SRQ: w.srq}))
		}),
		arg("closed domain", roce.ErrClosed, func(w *constructorRig) (made, error) {
			pd := w.dev.AllocPD()
			check(w.t, pd.Close())
			return as(pd.CreateQP(roce.QPConfig{SendCQ: w.cq, SRQ: w.srq}))
		}),
	}},
	{"CreateSRQ", func(w *constructorRig) (made, error) {
		return as(w.pd.CreateSRQ(roce.SRQConfig{MaxWR: 7, XRCD: w.xrcd, CQ: w.cq}))
	}, []failure{noSRQ, gone}, []bad{
		arg("no work requests", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.pd.CreateSRQ(roce.SRQConfig{XRCD: w.xrcd, CQ: w.cq}))
		}),
		arg("limit too high", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, Limit: 9, XRCD: w.xrcd, CQ: w.cq}))
		}),
		arg("closed XRC domain", roce.ErrClosed, func(w *constructorRig) (made, error) {
			x := ok(w.dev.OpenXRCD(roce.XRCDConfig{}))(w.t)
			check(w.t, x.Close())
			return as(w.pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, XRCD: x, CQ: w.cq}))
		}),
	}},
	{"OpenXRCD", func(w *constructorRig) (made, error) { return as(w.dev.OpenXRCD(roce.XRCDConfig{})) }, nil, []bad{
		arg("no such shard", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.dev.OpenXRCD(roce.XRCDConfig{Shard: 9})) }),
	}},
	{"XRCD.CreateQP", func(w *constructorRig) (made, error) { return as(w.xrcd.CreateQP(roce.QPConfig{})) }, []failure{noQP, gone}, []bad{
		arg("another type", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.xrcd.CreateQP(roce.QPConfig{Type: roce.UD})) }),
	}},
	{"XRCD.OpenQP", func(w *constructorRig) (made, error) {
		q, err := w.xrcd.CreateQP(roce.QPConfig{})
		if err != nil {
			return nil, err
		}
		h, err := w.xrcd.OpenQP(q.Num())
		return closer(func() error { return errors.Join(q.Close(), h.Close()) }), err
	}, []failure{noQP}, []bad{
		arg("no such number", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.xrcd.OpenQP(1)) }),
	}},
	{"RegMR", func(w *constructorRig) (made, error) { return as(w.pd.RegMR(make([]byte, 8), roce.LocalWrite)) }, []failure{noRegion}, []bad{
		arg("rights", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.RegMR(make([]byte, 8), roce.RemoteWrite)) }),
		arg("no memory", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.RegMR(nil, 0)) }),
	}},
	{"AllocMR", func(w *constructorRig) (made, error) { return as(w.pd.AllocMR(8, roce.LocalWrite)) }, []failure{noRegion}, []bad{
		arg("too much", syscall.ENOMEM, func(w *constructorRig) (made, error) { return as(w.pd.AllocMR(int(^uint(0)>>1), 0)) }),
	}},
	{"AllocMW", func(w *constructorRig) (made, error) { return as(w.pd.AllocMW(roce.MWType1)) }, []failure{noWindow}, []bad{
		arg("type", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.AllocMW(3)) }),
	}},
	{"AllocFastReg", func(w *constructorRig) (made, error) { return as(w.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1})) }, []failure{noRegion}, []bad{
		arg("pieces", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.AllocFastReg(roce.FastRegConfig{})) }),
	}},
	{"NewFastRegPool", func(w *constructorRig) (made, error) {
		return as(w.pd.NewFastRegPool(4, roce.FastRegConfig{Pieces: 1}))
	}, []failure{noRegion, fewRegions}, []bad{
		arg("pieces", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.NewFastRegPool(4, roce.FastRegConfig{})) }),
	}},
	{"AllocIndirect", func(w *constructorRig) (made, error) { return as(w.pd.AllocIndirect(3)) }, []failure{noRegion}, nil},
	{"RegIndirect", func(w *constructorRig) (made, error) { return as(w.pd.RegIndirect(oneOf(w.mr, 8), roce.LocalWrite)) }, []failure{noRegion}, []bad{
		arg("part outside", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.RegIndirect(oneOf(w.mr, 65), roce.LocalWrite)) }),
		arg("rights", syscall.EINVAL, func(w *constructorRig) (made, error) { return as(w.pd.RegIndirect(oneOf(w.mr, 8), roce.RemoteWrite)) }),
		arg("part that is not registered", syscall.EINVAL, func(w *constructorRig) (made, error) {
			f := ok(w.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(w.t)
			defer f.Close()
			return as(w.pd.RegIndirect(oneOf(f, 8), 0))
		}),
	}},
	{"CreateCompChannel", func(w *constructorRig) (made, error) { return as(w.dev.CreateCompChannel()) }, nil, nil},
	{"CreateAH", func(w *constructorRig) (made, error) {
		_, err := w.dev.CreateAH(w.patience(), roce.AHAttr{DGID: w.far.GIDs()[0]})
		return nothing, err
	}, []failure{unresolved}, []bad{
		arg("no destination", syscall.EINVAL, func(w *constructorRig) (made, error) {
			_, err := w.dev.CreateAH(w.patience(), roce.AHAttr{})
			return nothing, err
		}),
	}},
	{"AttachMulticast", func(w *constructorRig) (made, error) {
		g := roce.GID{0: 0xFF, 1: 2, 15: 9}
		return closer(func() error { return w.ud.DetachMulticast(g) }), w.ud.AttachMulticast(g)
	}, []failure{noGroup}, []bad{
		arg("no group", syscall.EINVAL, func(w *constructorRig) (made, error) { return nothing, w.ud.AttachMulticast(w.far.GIDs()[0]) }),
	}},
	{"Listen", func(w *constructorRig) (made, error) {
		return as(w.dev.Listen(context.Background(), ":7471", roce.ListenConfig{}))
	}, []failure{gone}, []bad{
		arg("foreign address", syscall.EADDRNOTAVAIL, func(w *constructorRig) (made, error) {
			return as(w.dev.Listen(context.Background(), "10.0.0.2:7471", roce.ListenConfig{}))
		}),
	}},
	{"ListenUD", func(w *constructorRig) (made, error) {
		return as(w.dev.ListenUD(context.Background(), ":7471", roce.ListenConfig{}))
	}, []failure{gone}, nil},
	{"ResolveUD", func(w *constructorRig) (made, error) {
		_, err := w.dev.ResolveUD(w.patience(), "10.0.0.2:7471", roce.ResolveConfig{})
		return nothing, err
	}, []failure{unresolved, gone}, []bad{
		arg("cancelled", context.Canceled, func(w *constructorRig) (made, error) {
			_, err := w.dev.ResolveUD(cancelled, "10.0.0.2:7471", roce.ResolveConfig{})
			return nothing, err
		}),
		arg("nobody listens", nil, func(w *constructorRig) (made, error) {
			_, err := w.dev.ResolveUD(w.patience(), "10.0.0.2:1", roce.ResolveConfig{})
			return nothing, err
		}),
	}},
	{"Dial", func(w *constructorRig) (made, error) {
		return as(w.dev.Dial(w.patience(), "10.0.0.2:7471", roce.DialConfig{}))
	}, []failure{noQP, unresolved, gone, rejected}, []bad{
		arg("cancelled", context.Canceled, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(cancelled, "10.0.0.2:7471", roce.DialConfig{}))
		}),
		arg("nobody listens", syscall.ECONNREFUSED, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(w.patience(), "10.0.0.2:1", roce.DialConfig{}))
		}),
		arg("setup fails", errSetup, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(w.patience(), "10.0.0.2:7471", roce.DialConfig{Setup: func(*roce.QP) error { return errSetup }}))
		}),
		arg("private data", nil, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(w.patience(), "10.0.0.2:7471", roce.DialConfig{Param: roce.ConnParam{PrivateData: make([]byte, 300)}}))
		}),
		arg("too deep", syscall.EINVAL, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(w.patience(), "10.0.0.2:7471", roce.DialConfig{QPConfig: roce.QPConfig{Caps: roce.Caps{MaxSendWR: 1 << 30}}}))
		}),
		arg("own domain, setup fails", errSetup, func(w *constructorRig) (made, error) {
			return as(w.dev.Dial(w.patience(), "10.0.0.2:7471", roce.DialConfig{PD: w.pd, Setup: func(*roce.QP) error { return errSetup }}))
		}),
	}},
}

func oneOf(r roce.Region, n uint64) roce.Layout {
	return roce.Layout{Parts: []roce.Part{{MR: r, Length: n}}}
}

// typed reports whether an error is an Error that names its object and wraps an errno.
func typed(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, errSetup) {
		return true
	}
	var (
		e     *roce.Error
		errno syscall.Errno
	)
	return errors.As(err, &e) && e.Op != "" && e.Detail != "" && errors.As(err, &errno)
}

// TestConstructorsFail makes each constructor fail at each possible step: afterwards the device has as many objects as
// before, a retry succeeds, and the arguments can be closed.
func TestConstructorsFail(t *testing.T) {
	for _, c := range constructors {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newConstructorRig(t)
				retry := func(after string) {
					t.Helper()
					o, err := c.create(w)
					if err != nil {
						t.Fatalf("after %s a retry fails: %v", after, err)
					}
					if err := o.Close(); err != nil {
						t.Errorf("after %s, closing what a retry made: %v", after, err)
					}
				}
				retry("nothing") // now the device has the objects that it makes once and keeps
				waitTimeWait()
				attempt := func(name string, want error, create func(*constructorRig) (made, error), undo func()) {
					before, routines := countObjects(w.dev), runtime.NumGoroutine()
					o, err := create(w)
					undo()
					waitTimeWait()
					switch {
					case err == nil:
						t.Errorf("%s: no error", name)
						o.Close()
						return
					case want != nil && !errors.Is(err, want):
						t.Errorf("%s: error %v, want %v", name, err, want)
					case !typed(err):
						t.Errorf("%s: the error %v has no type: %T", name, err, err)
					}
					if after := countObjects(w.dev); after != before {
						t.Errorf("%s: left on the device: %+v, was %+v", name, after, before)
					}
					if now := runtime.NumGoroutine(); now > routines {
						t.Errorf("%s: %d goroutines, were %d", name, now, routines)
					}
					retry(name)
					waitTimeWait()
				}
				for _, f := range c.faults {
					attempt(f.name, f.want, c.create, f.inject(w))
				}
				for _, b := range c.bad {
					attempt(b.name, b.want, b.create, func() {})
				}
				for _, o := range []made{w.ud, w.srq, w.xrcd, w.mr, w.cq, w.channel, w.pd} {
					if err := o.Close(); err != nil {
						t.Errorf("at the end, close %T: %v", o, err)
					}
				}
				left := countObjects(w.dev)
				if left != (objects{}) {
					t.Errorf("at the end the device has %+v", left)
				}
				check(t, w.dev.Close())
				if _, err := c.create(w); !errors.Is(err, roce.ErrClosed) {
					t.Errorf("on a closed device: error %v, want %v", err, roce.ErrClosed)
				}
			})
		})
	}
}

// waitTimeWait waits until connections have left TimeWait, in the time of the bubble.
func waitTimeWait() { time.Sleep(5 * time.Minute) }

package ofi_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/ofi"
)

// end is one side of a connection with everything it needs.
type end struct {
	t      testing.TB
	fabric *ofi.Fabric
	domain *ofi.Domain
	eq     *ofi.EQ
	cq     *ofi.CQ
	ep     *ofi.Endpoint
	mr     *ofi.MR
	mem    []byte
}

func newEnd(t testing.TB, d *roce.Device) *end {
	t.Helper()
	e := &end{t: t, mem: make([]byte, 64<<10)}
	info := must(ofi.GetInfo(d, "", "", 0, nil))(t)
	e.fabric = must(ofi.OpenFabric(info))(t)
	e.eq = e.fabric.OpenEQ()
	e.domain = must(e.fabric.OpenDomain(info))(t)
	e.cq = must(e.domain.OpenCQ(0, ofi.FormatData))(t)
	e.mr = must(e.domain.RegMR(e.mem, ofi.SendAccess|ofi.RecvAccess|ofi.ReadAccess|ofi.WriteAccess|ofi.RemoteRead|ofi.RemoteWrite))(t)
	return e
}

func must[T any](v T, err error) func(testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func (e *end) open(i *ofi.Info) {
	e.t.Helper()
	e.ep = must(e.domain.OpenEndpoint(i, e))(e.t)
	check(e.t, e.ep.BindEQ(e.eq))
	check(e.t, e.ep.BindCQ(e.cq, true, true))
	check(e.t, e.ep.Enable())
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (e *end) event(want ofi.EventType) ofi.Event {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	ev := must(e.eq.Read(ctx))(e.t)
	if ev.Type != want {
		e.t.Fatalf("event %v, want %v", ev.Type, want)
	}
	return ev
}

func (e *end) entry() ofi.Entry {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(e.t.Context(), time.Minute)
	defer cancel()
	var entries [1]ofi.Entry
	must(e.cq.SRead(ctx, entries[:]))(e.t)
	return entries[0]
}

// pair connects two ends and returns them: the server's, the client's.
func pair(t testing.TB, f fault.Config) (server, client *end) {
	t.Helper()
	a, b := tooltest.Pair(t, f)
	server, client = newEnd(t, a), newEnd(t, b)
	info := must(ofi.GetInfo(a, tooltest.Server4, "0", ofi.Source, nil))(t)
	pep := must(server.fabric.OpenPassive(info, server.eq, nil))(t)
	check(t, pep.Listen())
	t.Cleanup(func() { pep.Close() })

	client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
	check(t, client.ep.Connect(pep.Name(), []byte("hello")))
	ev := server.event(ofi.ConnRequest)
	if string(ev.Data) != "hello" || ev.Passive != pep {
		t.Errorf("request with %q of %p", ev.Data, ev.Passive)
	}
	server.open(ev.Info)
	check(t, server.ep.Recv(server.mem[:4096], server.mr.Desc(), "early")) // before accepting
	check(t, server.ep.Accept([]byte("welcome")))
	if ev := client.event(ofi.Connected); string(ev.Data) != "welcome" || ev.Endpoint != client.ep || ev.Endpoint.Context() != client {
		t.Errorf("connected with %q", ev.Data)
	}
	server.event(ofi.Connected)
	t.Cleanup(func() { server.ep.Close(); client.ep.Close() })
	return server, client
}

func TestConnect(t *testing.T) {
	server, client := pair(t, fault.Config{})
	if got := must(client.ep.Peer())(t); got != server.ep.Name() {
		t.Errorf("the client's peer is %v, the server %v", got, server.ep.Name())
	}
	if got := must(server.ep.Peer())(t); got != client.ep.Name() {
		t.Errorf("the server's peer is %v, the client %v", got, client.ep.Name())
	}
	check(t, client.ep.Shutdown(t.Context()))
	server.event(ofi.Shutdown)
	client.event(ofi.Shutdown)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, err := server.cq.SRead(ctx, make([]ofi.Entry, 1))
	var failed *ofi.CQError
	if !errors.As(err, &failed) || failed.Err != syscall.ECANCELED || failed.Context != "early" || failed.ProvErrno != roce.StatusWRFlushErr {
		t.Errorf("the posted receive ended with %v", err)
	}
}

func TestTransfers(t *testing.T) {
	for _, f := range []fault.Config{{}, {Seed: 2, Tx: fault.Rates{Loss: 0.02, Dup: 0.05}}} {
		server, client := pair(t, f)
		copy(client.mem, "a message")
		check(t, client.ep.Send(client.mem[:9], client.mr.Desc(), 1))
		if e := client.entry(); e.Context != 1 || e.Flags != ofi.OpSend|ofi.OpMsg {
			t.Errorf("send: %+v", e)
		}
		if e := server.entry(); e.Context != "early" || e.Flags != ofi.OpRecv|ofi.OpMsg || e.Len != 9 || string(e.Buf[:e.Len]) != "a message" {
			t.Errorf("receive: %+v", e)
		}

		check(t, server.ep.Recv(server.mem[:100], server.mr.Desc(), 2))
		check(t, client.ep.SendData(nil, nil, 0xCAFE0001, 3))
		client.entry()
		if e := server.entry(); e.Flags != ofi.OpRecv|ofi.OpMsg|ofi.OpRemoteCQData || e.Data != 0xCAFE0001 || e.Len != 0 {
			t.Errorf("receive with data: %+v", e)
		}

		check(t, server.ep.Recv(server.mem[:100], server.mr.Desc(), 4))
		small := []byte("injected")
		check(t, client.ep.Inject(small))
		clear(small) // the caller may change it
		if e := server.entry(); string(e.Buf[:e.Len]) != "injected" {
			t.Errorf("injected: %+v", e)
		}

		copy(client.mem[1000:], bytes.Repeat([]byte("rma"), 1000))
		check(t, client.ep.Write(client.mem[1000:4000], client.mr.Desc(), server.mr.Addr()+8192, server.mr.Key(), 5))
		if e := client.entry(); e.Context != 5 || e.Flags != ofi.OpWrite|ofi.OpRMA {
			t.Errorf("write: %+v", e)
		}
		check(t, client.ep.Read(client.mem[10000:13000], client.mr.Desc(), server.mr.Addr()+8192, server.mr.Key(), 6))
		if e := client.entry(); e.Context != 6 || e.Flags != ofi.OpRead|ofi.OpRMA || !bytes.Equal(client.mem[10000:13000], client.mem[1000:4000]) {
			t.Errorf("read back: %+v", e)
		}
		check(t, server.ep.Recv(nil, nil, 7))
		check(t, client.ep.WriteData(client.mem[1000:1003], client.mr.Desc(), 77, server.mr.Addr(), server.mr.Key(), 8))
		if e := server.entry(); e.Flags != ofi.OpRemoteWrite|ofi.OpRMA|ofi.OpRemoteCQData || e.Data != 77 {
			t.Errorf("write with data: %+v", e)
		}
		client.entry()

		result, desc := client.mem[:8], client.mr.Desc()
		word := server.mr.Addr() + 16384
		for _, a := range []struct {
			name string
			post func() error
			want uint64
		}{
			{"sum", func() error { return client.ep.FetchAtomic(ofi.Sum, 5, result, desc, word, server.mr.Key(), 9) }, 0},
			{"compare and swap", func() error { return client.ep.CompareAtomic(ofi.CSwap, 42, 5, result, desc, word, server.mr.Key(), 9) }, 5},
			{"read", func() error { return client.ep.FetchAtomic(ofi.AtomicRead, 0, result, desc, word, server.mr.Key(), 9) }, 42},
		} {
			check(t, a.post())
			client.entry()
			if got := ofi.Word(result); got != a.want {
				t.Errorf("%s: the word was %d, want %d", a.name, got, a.want)
			}
		}
	}
}

func TestCancel(t *testing.T) {
	server, client := pair(t, fault.Config{})
	for i := range 4 {
		check(t, server.ep.Recv(server.mem[4096*(i+1):][:4096], server.mr.Desc(), i))
	}
	check(t, server.ep.Cancel(1))
	check(t, server.ep.Cancel("early"))
	for _, want := range []any{1, "early"} {
		var failed *ofi.CQError
		if _, err := server.cq.Read(make([]ofi.Entry, 4)); !errors.As(err, &failed) || failed.Context != want || !errors.Is(err, syscall.ECANCELED) {
			t.Errorf("%v, want %v canceled", err, want)
		}
	}
	if err := server.ep.Cancel(1); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("canceled twice: %v", err)
	}
	for _, want := range []any{0, 2, 3} {
		check(t, client.ep.Send(client.mem[:1], client.mr.Desc(), nil))
		if e := server.entry(); e.Context != want {
			t.Errorf("a message went to %v, want %v", e.Context, want)
		}
	}
}

func TestReject(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	server, client := newEnd(t, a), newEnd(t, b)
	pep := must(server.fabric.OpenPassive(must(ofi.GetInfo(a, tooltest.Server4, "0", ofi.Source, nil))(t), server.eq, nil))(t)
	check(t, pep.Listen())
	defer pep.Close()
	client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
	defer client.ep.Close()
	check(t, client.ep.Connect(pep.Name(), nil))
	check(t, server.event(ofi.ConnRequest).Info.Request.Reject([]byte("not today")))
	_, err := client.eq.Read(t.Context())
	var refused *ofi.EQError
	if !errors.As(err, &refused) || refused.Err != syscall.ECONNREFUSED || string(refused.Data) != "not today" || refused.ProvErrno != 28 || refused.Endpoint != client.ep {
		t.Errorf("rejected with %+v", err)
	}
}

// A shared context serves two endpoints.
func TestSharedRecv(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	server := newEnd(t, a)
	srx := must(server.domain.OpenSharedRecv(8))(t)
	pep := must(server.fabric.OpenPassive(must(ofi.GetInfo(a, tooltest.Server4, "0", ofi.Source, nil))(t), server.eq, nil))(t)
	check(t, pep.Listen())
	defer pep.Close()
	for i := range 4 {
		check(t, srx.Recv(server.mem[i*100:][:100], server.mr.Desc(), i))
	}
	var eps []*ofi.Endpoint
	for i := range 2 {
		client := newEnd(t, b)
		client.open(must(ofi.GetInfo(b, "", "", 0, nil))(t))
		defer client.ep.Close()
		check(t, client.ep.Connect(pep.Name(), nil))
		ep := must(server.domain.OpenEndpoint(server.event(ofi.ConnRequest).Info, i))(t)
		check(t, ep.BindEQ(server.eq))
		check(t, ep.BindCQ(server.cq, true, true))
		check(t, ep.BindSharedRecv(srx))
		check(t, ep.Enable())
		check(t, ep.Accept(nil))
		client.event(ofi.Connected)
		server.event(ofi.Connected)
		eps = append(eps, ep)
		client.mem[0] = byte('a' + i)
		check(t, client.ep.Send(client.mem[:1], client.mr.Desc(), nil))
		if e := server.entry(); e.Context != i || e.Buf[0] != byte('a'+i) {
			t.Errorf("message of endpoint %d: %+v", i, e)
		}
	}
	if err := srx.Close(); !errors.Is(err, syscall.EBUSY) {
		t.Errorf("closing a context in use: %v", err)
	}
	for _, ep := range eps {
		check(t, ep.Close())
	}
	check(t, srx.Close())
}

func TestRefusals(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	e := newEnd(t, a)
	info := must(ofi.GetInfo(a, "", "", 0, nil))(t)
	ep := must(e.domain.OpenEndpoint(info, nil))(t)
	other := must(e.fabric.OpenDomain(info))(t)
	foreign := must(other.OpenSharedRecv(0))(t)
	for name, c := range map[string]struct{ err, want error }{
		"no completion queue":      {ep.BindCQ(nil, true, true), syscall.EINVAL},
		"no event queue":           {ep.BindEQ(nil), syscall.EINVAL},
		"no shared receives":       {ep.BindSharedRecv(nil), syscall.EINVAL},
		"foreign shared receives":  {ep.BindSharedRecv(foreign), syscall.EINVAL},
		"passive without device":   {second(e.fabric.OpenPassive(&ofi.Info{}, e.eq, nil)), syscall.EINVAL},
		"enable without queues":    {ep.Enable(), syscall.EINVAL},
		"receive before enable":    {ep.Recv(e.mem, e.mr.Desc(), nil), syscall.EINVAL},
		"send before connected":    {ep.Send(e.mem, e.mr.Desc(), nil), syscall.ENOTCONN},
		"accept without request":   {ep.Accept(nil), syscall.EINVAL},
		"too much private data":    {ep.Connect(info.Dest, make([]byte, 56)), syscall.EINVAL},
		"memory of no region":      {ep.Send(make([]byte, 8), e.mr.Desc(), nil), syscall.EINVAL},
		"memory without region":    {ep.Send(e.mem, nil, nil), syscall.EINVAL},
		"atomic of another kind":   {ep.Atomic(ofi.Sum, e.mem[:8], e.mr.Desc(), 0, 0, nil), syscall.ENOSYS},
		"atomic of another size":   {ep.Atomic(ofi.AtomicWrite, e.mem[:4], e.mr.Desc(), 0, 0, nil), syscall.EINVAL},
		"inject more than allowed": {ep.Inject(make([]byte, 300)), syscall.EINVAL},
		"no such node":             {second(ofi.GetInfo(a, "nowhere", "1", 0, nil)), errno.ENODATA},
		"no such port":             {second(ofi.GetInfo(a, "", "http", 0, nil)), errno.ENODATA},
		"no such access":           {second(e.domain.RegMR(e.mem, 1)), syscall.EINVAL},
		"no events":                {second(e.eq.TryRead()), syscall.EAGAIN},
		"no completions":           {second(e.cq.Read(make([]ofi.Entry, 1))), syscall.EAGAIN},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	check(t, foreign.Close())
	check(t, other.Close())
	check(t, ep.Close())
	check(t, e.mr.Close())
	if err := e.domain.Close(); err != nil {
		t.Error(err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestSecondClose: closing an object twice returns net.ErrClosed.
func TestSecondClose(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	e := newEnd(t, a)
	info := must(ofi.GetInfo(a, "", "", 0, nil))(t)
	eq, passive := e.fabric.OpenEQ(), must(e.fabric.OpenPassive(info, e.eq, nil))(t)
	for name, o := range map[string]interface{ Close() error }{"endpoint": must(e.domain.OpenEndpoint(info, nil))(t), "passive endpoint": passive,
		"event queue": eq, "completion queue": must(e.domain.OpenCQ(0, ofi.FormatMsg))(t), "domain": must(e.fabric.OpenDomain(info))(t),
		"shared receives": must(e.domain.OpenSharedRecv(0))(t), "fabric": must(ofi.OpenFabric(info))(t)} {
		check(t, o.Close())
		if err := o.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("closing the %s again: %v", name, err)
		}
	}
	if err := passive.Listen(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Listen of a closed endpoint: %v", err)
	}
}

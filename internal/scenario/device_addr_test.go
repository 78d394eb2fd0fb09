package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/linktest"
)

// onLoopback opens a device on an address of the loopback interface that no other test uses.
func onLoopback(t testing.TB, last byte, c roce.InterfaceConfig) *roce.Device {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("other systems have 127.0.0.1 only")
	}
	d, err := roce.OpenAddr(linktest.Loopback(last), c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// TestOpenAddr connects two devices by UDP sockets and moves data.
func TestOpenAddr(t *testing.T) {
	for _, c := range []roce.InterfaceConfig{{}, {Options: roce.Options{Polled: true}}, {Queues: 3}} {
		t.Run(fmt.Sprintf("polled=%v,queues=%d", c.Polled, c.Queues), func(t *testing.T) {
			a := onLoopback(t, 21, c)
			b := onLoopback(t, 22, roce.InterfaceConfig{})
			if ga, gb := a.Query().GUID, b.Query().GUID; ga == gb || ga == 0 || gb == 0 {
				t.Errorf("GUIDs %x and %x", ga, gb)
			}
			service := netip.AddrPortFrom(linktest.Loopback(22), 7471).String()
			ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
			defer cancel()
			l := ok(b.Listen(ctx, service, roce.ListenConfig{}))(t)
			defer l.Close()
			far := make([]byte, 1<<20)
			type accepted struct {
				c   *roce.Conn
				mr  *roce.MR
				err error
			}
			peer := make(chan accepted, 1)
			go func() {
				r, err := l.Accept(ctx)
				if err != nil {
					peer <- accepted{err: err}
					return
				}
				c, err := r.Accept(ctx, roce.AcceptConfig{})
				if err != nil {
					peer <- accepted{err: err}
					return
				}
				mr, err := c.QP().PD().RegMR(far, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead)
				peer <- accepted{c, mr, err}
			}()
			conn := ok(a.Dial(ctx, service, roce.DialConfig{}))(t)
			p := <-peer
			if p.err != nil {
				t.Fatal(p.err)
			}
			near := make([]byte, len(far))
			for i := range near {
				near[i] = byte(i * i >> 7)
			}
			want := bytes.Clone(near)
			mr := ok(conn.QP().PD().RegMR(near, roce.LocalWrite))(t)
			do := func(op roce.SendWR) {
				t.Helper()
				op.Flags, op.SG = roce.Signaled, []roce.SGE{mr.SGE(0, len(near))}
				op.RemoteAddr, op.RKey = p.mr.Addr(), p.mr.RKey()
				if err := conn.QP().PostSend(&op); err != nil {
					t.Fatal(err)
				}
				if wc, err := conn.QP().SendCQ().Next(ctx); err != nil || wc.Status != 0 {
					t.Fatal(wc.Status, err)
				}
			}
			do(roce.SendWR{Opcode: roce.Write})
			clear(near)
			do(roce.SendWR{Opcode: roce.Read})
			if !bytes.Equal(near, want) || !bytes.Equal(far, want) {
				t.Error("the data is not what was written")
			}
			if c := a.Counters(); c.ICRCErr != 0 || c.Link.TxErrors+c.Link.TxOversize+c.Link.RxErrors != 0 {
				t.Errorf("counters %+v", c)
			}
			if err := conn.Disconnect(ctx); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestOpenAddrErrors(t *testing.T) {
	a := onLoopback(t, 23, roce.InterfaceConfig{})
	for _, test := range []struct {
		addr netip.Addr
		c    roce.InterfaceConfig
		want error
	}{
		{linktest.Loopback(23), roce.InterfaceConfig{Exclusive: true}, syscall.EADDRINUSE},
		{netip.MustParseAddr("192.0.2.77"), roce.InterfaceConfig{}, syscall.EADDRNOTAVAIL},
		{netip.MustParseAddr("0.0.0.0"), roce.InterfaceConfig{}, syscall.EINVAL},
		{netip.MustParseAddr("239.1.2.3"), roce.InterfaceConfig{}, syscall.EINVAL},
		{linktest.Loopback(24), roce.InterfaceConfig{Driver: "raw"}, syscall.EINVAL},
		{linktest.Loopback(24), roce.InterfaceConfig{Driver: "carrier-pigeon"}, syscall.EINVAL},
		{linktest.Loopback(24), roce.InterfaceConfig{Queues: -1}, syscall.EINVAL},
	} {
		if d, err := roce.OpenAddr(test.addr, test.c); !errors.Is(err, test.want) {
			t.Errorf("open %v: %v, %v, want %v", test.addr, d, err, test.want)
		}
	}
	pd := a.AllocPD()
	cq := ok(a.CreateCQ(1))(t)
	q := ok(pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: cq, RecvCQ: cq}))(t)
	if err := q.AttachMulticast(bth.GIDFrom(netip.MustParseAddr("239.1.2.3"))); !errors.Is(err, syscall.EOPNOTSUPP) {
		t.Errorf("attach to a group: %v", err)
	}
}

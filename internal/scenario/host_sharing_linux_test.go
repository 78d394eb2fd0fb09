package scenario_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
)

// eachSharing runs f for each driver by which devices share an interface, with one queue and
// with three.
func eachSharing(t *testing.T, f func(t *testing.T, c roce.InterfaceConfig)) {
	for _, driver := range []string{"raw", "udp"} {
		for _, queues := range []int{1, 3} {
			t.Run(fmt.Sprintf("%s,%d", driver, queues), func(t *testing.T) { f(t, roce.InterfaceConfig{Driver: driver, Queues: queues}) })
		}
	}
}

// far is a device with a listener whose connections send each message back.
type far struct {
	dev  *roce.Device
	port uint16
}

func newFar(t *testing.T, d *roce.Device, port uint16) *far {
	t.Helper()
	f := &far{dev: d, port: port}
	l := ok(d.Listen(patient(t), fmt.Sprintf(":%d", port), roce.ListenConfig{}))(t)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			r, err := l.Accept(t.Context())
			if err != nil {
				return
			}
			go f.serve(t, r)
		}
	}()
	return f
}

// serve accepts a connection and sends each message back.
func (f *far) serve(t *testing.T, r *roce.ConnRequest) {
	const size = 64 << 10
	buf := make([]byte, size)
	var mr *roce.MR
	c, err := r.Accept(t.Context(), roce.AcceptConfig{Setup: func(q *roce.QP) (err error) {
		if mr, err = q.PD().RegMR(buf, roce.LocalWrite); err == nil {
			err = q.PostRecv(&roce.RecvWR{SG: []roce.SGE{mr.SGE(0, size)}})
		}
		return err
	}})
	if err != nil {
		return
	}
	for {
		wc, err := c.QP().RecvCQ().Next(t.Context())
		if err != nil || wc.Status != 0 {
			return
		}
		n := int(wc.ByteLen)
		if c.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{mr.SGE(0, n)}}) != nil {
			return
		}
		if wc, err := c.QP().SendCQ().Next(t.Context()); err != nil || wc.Status != 0 {
			return
		}
		if c.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{mr.SGE(0, size)}}) != nil {
			return
		}
	}
}

// echo connects a shard of a device to the listener, and checks that messages come back
// unchanged.
func (f *far) echo(t *testing.T, from *roce.Device, shard int, local, to netip.Addr) error {
	const size, rounds = 64 << 10, 4
	buf := make([]byte, 2*size)
	for i := range size {
		buf[i] = byte(i*i>>7) ^ byte(f.port) ^ byte(shard)
	}
	cq, err := from.CreateCQWith(roce.CQConfig{Entries: 64, Shard: shard})
	if err != nil {
		return err
	}
	c, err := from.Dial(patient(t), netip.AddrPortFrom(to, f.port).String(), roce.DialConfig{Local: local, QPConfig: roce.QPConfig{SendCQ: cq, RecvCQ: cq}})
	if err != nil {
		return err
	}
	defer c.Close()
	mr, err := c.QP().PD().RegMR(buf, roce.LocalWrite)
	if err != nil {
		return err
	}
	for n := 1; n <= rounds; n++ {
		length := size * n / rounds
		clear(buf[size:])
		if err := c.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{mr.SGE(size, size)}}); err != nil {
			return err
		}
		if err := c.QP().PostSend(&roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{mr.SGE(0, length)}}); err != nil {
			return err
		}
		wc, err := cq.Next(patient(t))
		if err != nil || wc.Status != 0 {
			return fmt.Errorf("message %d: %v, %w", n, wc.Status, err)
		}
		if !bytes.Equal(buf[:length], buf[size:size+length]) {
			return errors.New("another message came back")
		}
	}
	return c.Disconnect(patient(t))
}

// TestSharedInterface: two devices share an interface. Each listens and dials: a device in
// another network namespace, each other, and themselves, all at the same time.
func TestSharedInterface(t *testing.T) { eachSharing(t, testSharedInterface) }

func testSharedInterface(t *testing.T, c roce.InterfaceConfig) {
	x, y := netlab.Pair(t, netlab.Config{Queues: 3})
	more4, more6 := netip.MustParseAddr("10.88.0.77"), netip.MustParseAddr("fd88::77")
	check(t, x.AddAddr(more4, 24))
	check(t, x.AddAddr(more6, 64))
	one, two, peer := openOn(t, x, c), openOn(t, x, c), openOn(t, y, c)
	f1, f2, f3 := newFar(t, one, 7001), newFar(t, two, 7002), newFar(t, peer, 7003)
	var wg sync.WaitGroup
	for i, v := range []struct {
		name      string
		to        *far
		from      *roce.Device
		local, at netip.Addr
	}{
		{"first to peer", f3, one, x.IP4, y.IP4}, {"second to peer", f3, two, x.IP4, y.IP4},
		{"first to peer, IPv6", f3, one, x.IP6, y.IP6}, {"second to peer, IPv6", f3, two, x.IP6, y.IP6},
		{"peer to first", f1, peer, y.IP4, x.IP4}, {"peer to second", f2, peer, y.IP4, x.IP4},
		{"peer to first, IPv6", f1, peer, y.IP6, x.IP6}, {"peer to second, IPv6", f2, peer, y.IP6, more6},
		{"first to second", f2, one, x.IP4, x.IP4}, {"second to first", f1, two, x.IP4, x.IP4},
		{"first to second, IPv6", f2, one, x.IP6, x.IP6}, {"second to first, IPv6", f1, two, x.IP6, x.IP6},
		{"first to another address", f2, one, x.IP4, more4}, {"from another address", f1, two, more4, x.IP4},
		{"first to another address, IPv6", f2, one, x.IP6, more6}, {"from another address, IPv6", f1, two, more6, x.IP6},
		{"first to itself", f1, one, x.IP4, x.IP4}, {"second to itself, IPv6", f2, two, x.IP6, more6},
	} {
		for shard := range c.Queues {
			wg.Go(func() {
				if err := v.to.echo(t, v.from, (i+shard)%c.Queues, v.local, v.at); err != nil {
					t.Errorf("%s, shard %d: %v", v.name, shard, err)
				}
			})
		}
	}
	wg.Wait()
	for _, from := range []*roce.Device{one, two, peer} {
		to := x.IP4
		if from == peer {
			to = more4
		}
		_, err := from.Dial(patient(t), netip.AddrPortFrom(to, 7999).String(), roce.DialConfig{})
		var r *roce.RejectError
		if !errors.As(err, &r) || r.Reason != cm.RejectInvalidServiceID {
			t.Errorf("dialed a port that nobody listens on: %v", err)
		}
	}
	if _, err := two.Listen(patient(t), ":7001", roce.ListenConfig{}); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("listen on the port of another: %v", err)
	}
	for i, d := range []*roce.Device{one, two, peer} {
		if c := d.Counters(); c.ICRCErr != 0 || c.Link.RxErrors+c.Link.TxErrors+c.Link.TxOversize != 0 {
			t.Errorf("device %d: %+v", i, c)
		}
	}
	check(t, one.Close())
	if err := f2.echo(t, peer, 0, y.IP4, x.IP4); err != nil {
		t.Errorf("to the second after the first is closed: %v", err)
	}
	if err := newFar(t, two, 7001).echo(t, peer, 0, y.IP6, x.IP6); err != nil {
		t.Errorf("on the port of the first after that is closed: %v", err)
	}
}

// TestSharedGroup: a datagram to a group reaches the queue pairs of all devices on an interface,
// whether it is from the network or from one of them.
func TestSharedGroup(t *testing.T) { eachSharing(t, testSharedGroup) }

func testSharedGroup(t *testing.T, c roce.InterfaceConfig) {
	x, y := netlab.Pair(t, netlab.Config{Queues: 3})
	one, two, peer := openOn(t, x, c), openOn(t, x, c), openOn(t, y, c)
	for _, g := range []roce.GID{groupGID("239.1.2.3"), groupGID("ff0e::7")} {
		ends := []*udEnd{newUD(t, one), newUD(t, two), newUD(t, peer)}
		for _, u := range ends {
			check(t, u.qp.AttachMulticast(g))
			u.recv() // room for one that comes twice
			u.recv()
		}
		for _, from := range ends {
			for _, u := range ends {
				u.recv()
			}
			from.cast(g, "hello, group")
			for _, u := range ends {
				u.want(from, "hello, group")
			}
		}
		check(t, ends[0].qp.DetachMulticast(g))
		ends[2].cast(g, "without the first")
		ends[1].want(ends[2], "without the first")
		ends[2].want(ends[2], "without the first")
		ends[0].wantNothing()
		for _, u := range ends[1:] {
			check(t, u.qp.DetachMulticast(g))
		}
	}
}

// opaque is a Port that hides the Port inside of it.
type opaque struct{ link.Port }

// A program's wrapper of a port may hide that the address is shared: the device still knows it, and takes its numbers from
// its slot.
func TestSharedBehindWrapper(t *testing.T) {
	hide := roce.InterfaceConfig{Wrap: func(p link.Port) (link.Port, error) { return opaque{p}, nil }}
	var devices []*roce.Device
	for _, a := range []string{"127.0.91.1", "127.0.91.1", "127.0.91.2"} {
		d := ok(roce.OpenAddr(netip.MustParseAddr(a), hide))(t)
		t.Cleanup(func() { d.Close() })
		devices = append(devices, d)
	}
	newFar(t, devices[0], 7471)
	newFar(t, devices[1], 7472)
	for _, port := range []string{"7471", "7472"} {
		c := ok(devices[2].Dial(patient(t), "127.0.91.1:"+port, roce.DialConfig{}))(t)
		check(t, c.Close())
	}
}

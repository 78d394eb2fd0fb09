package scenario_test

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// loopModes runs a test on one device in both modes.
func loopModes(t *testing.T, f func(t *testing.T, d *roce.Device)) {
	for _, polled := range []bool{false, true} {
		name := "background"
		if polled {
			name = "polled"
		}
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				c := n.config("10.0.0.1")
				c.Polled = polled
				d := n.open(c)
				start := time.Now()
				f(t, d)
				if took := time.Since(start); took > 100*time.Millisecond {
					t.Errorf("took %v: something waited for a timer", took)
				}
				if s := d.Counters().Link; s.TxPackets > 0 {
					t.Errorf("%d packets to the device itself went through the port", s.TxPackets)
				}
			})
		})
	}
}

// exchange sends, writes and reads a lot from a to b.
func exchange(t *testing.T, a, b *peer) {
	t.Helper()
	const size = 1 << 20
	n := size
	if a == b {
		n = size / 2 // the other half is the other end
	}
	off := size - n
	fill(a.buf[:n], 5)
	same := func(what string) {
		t.Helper()
		if !bytes.Equal(a.buf[:n], b.buf[off:off+n]) {
			t.Errorf("%s: the data differs", what)
		}
		clear(b.buf[off:])
	}
	for range 100 {
		b.recv(off, n)
		a.post(roce.Send, 0, 100, nil, 0)
		for range 2 {
			if a == b {
				a.wait()
			}
		}
		if a != b {
			a.wait()
			b.wait()
		}
	}
	clear(b.buf[off:])
	a.post(roce.Write, 0, n, b, off)
	a.wait()
	same("WRITE")
	b.post(roce.Read, off, n, a, 0)
	b.wait()
	same("READ")
	b.recv(off, n)
	a.post(roce.Send, 0, n, nil, 0)
	if a == b {
		a.wait()
		a.wait()
	} else {
		a.wait()
		b.wait()
	}
	same("SEND")
}

func TestLoopbackPair(t *testing.T) {
	loopModes(t, func(t *testing.T, d *roce.Device) {
		a, b := newPeer(t, d, 1<<20), newPeer(t, d, 1<<20)
		connect(t, a, b)
		start := time.Now()
		exchange(t, a, b)
		exchange(t, b, a)
		if took := time.Since(start); took > 0 {
			t.Errorf("took %v: something waited for a timer", took)
		}
		if c := d.Counters(); c.RetransPkts > 0 {
			t.Errorf("%d packets were sent again", c.RetransPkts)
		}
	})
}

func TestLoopbackSelf(t *testing.T) {
	loopModes(t, func(t *testing.T, d *roce.Device) {
		a := newPeer(t, d, 1<<20)
		connect(t, a, a)
		exchange(t, a, a)
	})
}

// TestLoopbackMany lets many pairs fill the loopback queue inside the device.
func TestLoopbackMany(t *testing.T) {
	loopModes(t, func(t *testing.T, d *roce.Device) {
		const size = 300_000
		var as, bs []*peer
		for i := range 20 {
			a, b := newPeer(t, d, size), newPeer(t, d, 2*size)
			connect(t, a, b)
			fill(a.buf, i)
			a.post(roce.Write, 0, size, b, 0)
			b.post(roce.Read, size, size, a, 0)
			as, bs = append(as, a), append(bs, b)
		}
		for i, a := range as {
			b := bs[i]
			a.wait()
			b.wait()
			if !bytes.Equal(a.buf, b.buf[:size]) || !bytes.Equal(a.buf, b.buf[size:]) {
				t.Fatalf("pair %d: the data differs", i)
			}
		}
	})
}

// TestLoopbackPost: posting a transfer to the device itself does not run all of it inside the call. The rest continues at
// once.
func TestLoopbackPost(t *testing.T) {
	const size = 16 << 20
	for _, polled := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			c.Polled = polled
			d := n.open(c)
			a, b := newPeer(t, d, size), newPeer(t, d, size)
			connect(t, a, b)
			for _, pause := range []time.Duration{time.Minute, time.Millisecond} { // without ticks, with ticks
				time.Sleep(pause)
				start, before := time.Now(), d.Counters().SentPkts
				a.post(roce.Write, 0, size, b, 0)
				if sent := d.Counters().SentPkts - before; polled && (sent == 0 || sent > 2048) {
					t.Errorf("PostSend sent %d packets, want some but not all of 4096", sent)
				}
				a.wait()
				if took := time.Since(start); took > 0 {
					t.Errorf("polled=%v: took %v: what was left waited for a timer", polled, took)
				}
			}
		})
	}
}

func TestLoopbackDial(t *testing.T) {
	loopModes(t, func(t *testing.T, d *roce.Device) {
		ctx := within(t, time.Minute)
		l := ok(d.Listen(ctx, "10.0.0.1:7471", roce.ListenConfig{}))(t)
		var server *roce.Conn
		var wg sync.WaitGroup
		wg.Go(func() {
			r, err := l.Accept(ctx)
			if err == nil {
				server, err = r.Accept(ctx, roce.AcceptConfig{})
			}
			if err != nil {
				t.Error(err)
			}
		})
		client := ok(d.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{}))(t)
		wg.Wait()

		buf := make([]byte, 2000)
		fill(buf[:1000], 1)
		ms := ok(server.QP().PD().RegMR(buf[1000:], roce.LocalWrite))(t)
		mc := ok(client.QP().PD().RegMR(buf[:1000], 0))(t)
		check(t, server.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{ms.SGE(0, 1000)}}))
		check(t, client.QP().PostSend(&roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{mc.SGE(0, 1000)}}))
		wc := ok(server.QP().RecvCQ().Next(ctx))(t)
		if wc.Status != cq.Success || wc.ByteLen != 1000 || !bytes.Equal(buf[:1000], buf[1000:]) {
			t.Errorf("completion %+v", wc)
		}
		check(t, ms.Close())
		check(t, mc.Close())

		wg.Go(func() { <-server.Done() })
		check(t, client.Disconnect(ctx))
		wg.Wait()
		check(t, client.Close())
		check(t, server.Close())
		check(t, l.Close())

		_, err := d.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{})
		wantReject(t, err, 8)
	})
}

// TestDatagrams: UD queue pairs send to another device and to their own.
func TestDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		da, db := n.device("10.0.0.1"), n.device("10.0.0.2")
		ctx := context.Background()
		type ud struct {
			dev *roce.Device
			cq  *roce.CQ
			qp  *roce.QP
			mr  *roce.MR
		}
		const qkey = 0x1234
		open := func(d *roce.Device) ud {
			u := ud{dev: d, cq: ok(d.CreateCQ(10))(t)}
			pd := d.AllocPD()
			u.mr = ok(pd.RegMR(make([]byte, 1000), roce.LocalWrite))(t)
			u.qp = ok(pd.CreateQP(roce.QPConfig{Type: qp.UD, SendCQ: u.cq}))(t)
			check(t, u.qp.Init(0, qkey))
			check(t, u.qp.Modify(&roce.Attr{State: qp.RTR}, qp.AttrState))
			check(t, u.qp.Modify(&roce.Attr{State: qp.RTS}, qp.AttrState|qp.AttrSQPSN))
			return u
		}
		a, a2, b := open(da), open(da), open(db)
		for i, to := range []ud{a, a2, b} { // itself, its device, another
			ah := ok(da.CreateAH(ctx, roce.AHAttr{DGID: to.dev.GIDs()[0]}))(t)
			check(t, to.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{to.mr.SGE(100, 540)}}))
			text := []byte{1, 2, 3, byte(i)}
			copy(a.mr.Bytes(), text)
			check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{a.mr.SGE(0, 4)}, AH: ah, RemoteQPN: to.qp.Num(), RemoteQKey: qkey}))
			wc := ok(to.cq.Next(ctx))(t)
			if wc.Status != cq.Success || wc.ByteLen != 44 || wc.SrcQPN != a.qp.Num() || !bytes.Equal(to.mr.Bytes()[140:144], text) {
				t.Errorf("datagram %d: completion %+v", i, wc)
			}
		}
	})
}

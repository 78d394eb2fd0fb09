package scenario_test

import (
	"bytes"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// sharedPeer is newPeerOn with a queue pair that takes its receives from srq.
func sharedPeer(t testing.TB, d *roce.Device, srq *roce.SRQ, shard, size int) *peer {
	t.Helper()
	p := &peer{t: t, dev: d, pd: srq.PD(), buf: make([]byte, size), psn: d.RandomPSN()}
	p.cq = ok(d.CreateCQWith(roce.CQConfig{Entries: 1023, Shard: shard}))(t)
	p.mr = ok(p.pd.RegMR(p.buf, allRights))(t)
	p.qp = ok(p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq, SRQ: srq, Caps: deepCaps}))(t)
	check(t, p.qp.Init(roce.DefaultQPAccess, 0))
	return p
}

// TestSRQ: clients send to queue pairs of one server that share a receive
// queue, which is too short for all of them and is resized all the time: nothing is lost, every message
// arrives whole at the queue pair it was sent to.
func TestSRQ(t *testing.T) {
	for _, where := range []string{"on the wire", "inside the device"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const clients, messages, size, slots = 4, 40, 5000, 7
				n := newNetwork(t)
				ds, dc := n.device("10.0.0.1"), (*roce.Device)(nil)
				if dc = ds; where == "on the wire" {
					dc = n.device("10.0.0.2")
				}
				srq := ok(ds.AllocPD().CreateSRQ(roce.SRQConfig{MaxWR: slots}))(t)
				buf := make([]byte, slots*size)
				mr := ok(srq.PD().RegMR(buf, roce.LocalWrite))(t)
				post := func(slot int) roce.RecvWR {
					return roce.RecvWR{ID: uint64(slot), SG: []roce.SGE{mr.SGE(slot*size, size)}}
				}
				var wrs []roce.RecvWR
				for slot := range slots {
					wrs = append(wrs, post(slot))
				}
				if n := ok(srq.PostRecvs(wrs))(t); n != slots || srq.Len() != slots {
					t.Fatalf("%d posted, %d in the queue", n, srq.Len())
				}
				var wg sync.WaitGroup
				wg.Go(func() { // meanwhile it grows and shrinks
					for i := range 100 {
						if err := srq.Modify(roce.SRQAttr{MaxWR: slots << (i % 4)}, roce.SRQMaxWR); err != nil {
							t.Error(err)
						}
						time.Sleep(time.Microsecond)
					}
				})
				for i := range clients {
					c, s := newPeer(t, dc, messages*size), sharedPeer(t, ds, srq, 0, 64)
					connect(t, c, s)
					fill(c.buf, i)
					for m := range messages {
						c.post(roce.Send, m*size, size-m, nil, 0)
					}
					wg.Go(func() {
						for m := range messages {
							wc := s.wait()
							slot := int(wc.ID)
							if wc.QPN != s.qp.Num() || int(wc.ByteLen) != size-m || !bytes.Equal(buf[slot*size:][:size-m], c.buf[m*size:][:size-m]) {
								t.Errorf("client %d: message %d: %+v", i, m, wc)
							}
							wr := post(slot)
							if err := srq.PostRecv(&wr); err != nil {
								t.Error(err)
							}
						}
						for range messages {
							c.wait()
						}
					})
				}
				wg.Wait()
				if srq.Len() != slots {
					t.Errorf("%d receives in the queue, want %d", srq.Len(), slots)
				}
			})
		})
	}
}

// TestSRQEvents: the limit raises one event, which names the queue; a queue pair that goes to ERR raises
// LAST_WQE_REACHED.
func TestSRQEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		srq := ok(d.AllocPD().CreateSRQ(roce.SRQConfig{MaxWR: 10, Limit: 9, UserData: "mine"}))(t)
		a, b := newPeer(t, n.device("10.0.0.2"), 64), sharedPeer(t, d, srq, 0, 64)
		connect(t, a, b)
		for range 10 {
			check(t, srq.PostRecv(&roce.RecvWR{}))
		}
		for range 3 {
			a.post(roce.Send, 0, 0, nil, 0)
			a.wait()
			b.wait()
		}
		if got, want := srq.Query(), (roce.SRQAttr{MaxWR: 16, MaxSGE: 1}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		check(t, srq.Modify(roce.SRQAttr{MaxWR: 20, Limit: 7}, roce.SRQMaxWR|roce.SRQLimit))
		a.post(roce.Send, 0, 0, nil, 0)
		b.wait()
		check(t, b.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState))
		for _, want := range []roce.Event{{Type: roce.EventSRQLimit, SRQ: srq}, {Type: roce.EventSRQLimit, SRQ: srq}, {Type: roce.EventLastWQE, QP: b.qp}} {
			if e := ok(d.NextEvent(within(t, time.Minute)))(t); e != want {
				t.Errorf("event %v, want %v", e, want)
			}
		}
		if srq.UserData() != "mine" || srq.Len() != 6 {
			t.Errorf("%v, %d left", srq.UserData(), srq.Len())
		}
	})
}

// TestSRQConnect: the handshake tells the peer that the queue pair has a shared receive queue, and the
// queue pair is made on the shard of that queue.
func TestSRQConnect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.open(n.multi("10.0.0.1", 2, destQPN)), n.open(n.multi("10.0.0.2", 2, destQPN))
		ctx := within(t, time.Minute)
		l := ok(server.Listen(ctx, ":7471", roce.ListenConfig{}))(t)
		shared := func(d *roce.Device) (*roce.PD, roce.QPConfig) {
			pd := d.AllocPD()
			srq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 4, Shard: 1}))(t)
			check(t, srq.PostRecv(&roce.RecvWR{ID: 77}))
			return pd, roce.QPConfig{SRQ: srq}
		}
		for _, bits := range [][2]bool{{false, true}, {true, false}, {true, true}} {
			var ac roce.AcceptConfig
			var dc roce.DialConfig
			if bits[0] {
				dc.PD, dc.QPConfig = shared(client)
			}
			if bits[1] {
				ac.PD, ac.QPConfig = shared(server)
			}
			var sc *roce.Conn
			var wg sync.WaitGroup
			wg.Go(func() {
				r, err := l.Accept(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				if r.Offer().SRQ != bits[0] {
					t.Errorf("the request says SRQ %v, want %v", r.Offer().SRQ, bits[0])
				}
				if sc, err = r.Accept(ctx, ac); err != nil {
					t.Error(err)
				}
			})
			cc := ok(client.Dial(ctx, "10.0.0.1:7471", dc))(t)
			wg.Wait()
			if bits[1] {
				check(t, cc.QP().PostSend(&roce.SendWR{Opcode: roce.Send}))
				if wc := ok(sc.QP().RecvCQ().Next(ctx))(t); wc.Status != cq.Success || wc.ID != 77 {
					t.Errorf("received %+v", wc)
				}
			}
			check(t, cc.Disconnect(ctx))
			check(t, cc.Close())
			<-sc.Done()
			check(t, sc.Close())
		}
	})
}

// TestSRQErrors: the errno of each refusal.
func TestSRQErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d, other := n.open(n.multi("10.0.0.1", 2, destQPN)), n.device("10.0.0.2")
		pd := d.AllocPD()
		attr := d.Query()
		for _, c := range []roce.SRQConfig{{}, {MaxWR: -1}, {MaxWR: attr.MaxSRQWR + 1}, {MaxWR: 1, MaxSGE: attr.MaxSRQSGE + 1},
			{MaxWR: 10, Limit: 17}, {MaxWR: 1, Shard: 2}, {MaxWR: 1, Shard: -1}} {
			_, err := pd.CreateSRQ(c)
			wantErr(t, fmt.Sprintf("create %+v", c), err, syscall.EINVAL)
		}
		srq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t)
		check(t, srq.PostRecv(&roce.RecvWR{}))
		wantErr(t, "post to a full queue", srq.PostRecv(&roce.RecvWR{}), syscall.ENOMEM)
		posted, err := srq.PostRecvs([]roce.RecvWR{{}})
		wantErr(t, "post a list to a full queue", err, syscall.ENOMEM)
		wantErr(t, "shrink to nothing", srq.Modify(roce.SRQAttr{}, roce.SRQMaxWR), syscall.EINVAL)
		wantErr(t, "domain in use", pd.Close(), syscall.EBUSY)
		foreign := ok(other.AllocPD().CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t)
		_, err = pd.CreateQP(roce.QPConfig{SendCQ: ok(d.CreateCQ(1))(t), SRQ: foreign})
		wantErr(t, "queue of another device", err, syscall.EINVAL)
		scq := ok(d.CreateCQWith(roce.CQConfig{Entries: 1, Shard: 1}))(t)
		_, err = pd.CreateQP(roce.QPConfig{SendCQ: scq, SRQ: srq})
		wantErr(t, "queue of another shard", err, syscall.EINVAL)
		scq = ok(d.CreateCQ(1))(t)
		q := ok(pd.CreateQP(roce.QPConfig{SendCQ: scq, SRQ: srq}))(t)
		check(t, q.Init(0, 0))
		wantErr(t, "post to the queue pair", q.PostRecv(&roce.RecvWR{}), syscall.EINVAL)
		wantErr(t, "queue in use", srq.Close(), syscall.EBUSY)
		if posted != 0 || q.SRQ() != srq || srq.Num() == 0 {
			t.Errorf("%d posted, %v, number %v", posted, q.SRQ(), srq.Num())
		}
		check(t, q.Close())
		check(t, srq.Close())
		wantErr(t, "close again", srq.Close(), roce.ErrClosed)
		wantErr(t, "post to a closed queue", srq.PostRecv(&roce.RecvWR{}), roce.ErrClosed)
		_, err = pd.CreateQP(roce.QPConfig{SendCQ: scq, SRQ: srq})
		wantErr(t, "use a closed queue", err, roce.ErrClosed)
		check(t, scq.Close())
		check(t, pd.Close())
		_, err = pd.CreateSRQ(roce.SRQConfig{MaxWR: 1})
		wantErr(t, "create in a closed domain", err, roce.ErrClosed)
	})
}

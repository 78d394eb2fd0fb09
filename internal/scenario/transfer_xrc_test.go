package scenario_test

import (
	"bytes"
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/qp"
)

// xrcServer is a device with an XRC domain and services in it: shared receive
// queues with a completion queue and memory of their own.
type xrcServer struct {
	dev      *roce.Device
	xrcd     *roce.XRCD
	services []*xrcService
}

type xrcService struct {
	*roce.SRQ
	buf []byte
	mr  *roce.MR
}

// newXRCServer makes a server with n services, each with slots receives of size
// bytes posted, behind size bytes that are open to peers.
func newXRCServer(t testing.TB, d *roce.Device, shard, n, slots, size int) *xrcServer {
	t.Helper()
	s := &xrcServer{dev: d, xrcd: ok(d.OpenXRCD(roce.XRCDConfig{Shard: shard}))(t)}
	for range n {
		pd := d.AllocPD()
		v := &xrcService{buf: make([]byte, (slots+1)*size)}
		v.mr = ok(pd.RegMR(v.buf, allRights))(t)
		v.SRQ = ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: slots, XRCD: s.xrcd, CQ: ok(d.CreateCQWith(roce.CQConfig{Entries: 255, Shard: shard}))(t)}))(t)
		for slot := 1; slot <= slots; slot++ {
			check(t, v.PostRecv(&roce.RecvWR{ID: uint64(slot), SG: []roce.SGE{v.mr.SGE(slot*size, size)}}))
		}
		s.services = append(s.services, v)
	}
	return s
}

// xrcClient makes an initiator that is connected to a new target of the server.
func xrcClient(t testing.TB, d *roce.Device, s *xrcServer, size int) (c *peer, target *roce.QP) {
	t.Helper()
	c = &peer{t: t, dev: d, pd: d.AllocPD(), buf: make([]byte, size), psn: d.RandomPSN()}
	c.cq = ok(d.CreateCQ(1023))(t)
	c.mr = ok(c.pd.RegMR(c.buf, allRights))(t)
	c.qp = ok(c.pd.CreateQP(roce.QPConfig{Type: qp.XRCSend, SendCQ: c.cq, Caps: deepCaps}))(t)
	target = ok(s.xrcd.CreateQP(roce.QPConfig{}))(t)
	psn := s.dev.RandomPSN()
	for _, end := range []struct {
		q        *roce.QP
		to       roce.QPN
		dev      *roce.Device
		own, psn roce.PSN
	}{{c.qp, target.Num(), s.dev, c.psn, psn}, {target, c.qp.Num(), d, psn, c.psn}} {
		check(t, end.q.Init(roce.DefaultQPAccess, 0))
		check(t, end.q.Connect(context.Background(), roce.Peer{AHAttr: roce.AHAttr{DGID: end.dev.GIDs()[0]}, QPN: end.to, PSN: end.psn,
			MTU: d.Query().PathMTU, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16}, end.own))
	}
	return c, target
}

// to is a work request for a service of the server.
func (c *peer) to(s *xrcService, op roce.Opcode, off, n int) *roce.SendWR {
	c.next++
	return &roce.SendWR{ID: c.next, Opcode: op, Flags: roce.Signaled, SG: []roce.SGE{c.mr.SGE(off, n)}, RemoteSRQN: s.Num(),
		RemoteAddr: s.mr.Addr(), RKey: s.mr.RKey()}
}

// TestXRC: two clients reach two services over one connection each: messages,
// memory and atomics, on the wire and inside the device.
func TestXRC(t *testing.T) {
	for _, where := range []string{"on the wire", "inside the device", "another shard"} {
		t.Run(where, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				const size, shards = 20_000, 2
				n := newNetwork(t)
				ds := n.open(n.multi("10.0.0.1", shards, destQPN))
				dc := ds
				if where == "on the wire" {
					dc = n.device("10.0.0.2")
				}
				shard := 0
				if where == "another shard" {
					shard = 1
				}
				s := newXRCServer(t, ds, shard, 2, 3, size)
				for i := range 2 {
					c, target := xrcClient(t, dc, s, 4*size)
					fill(c.buf, i)
					for k, v := range s.services {
						check(t, c.qp.PostSend(c.to(v, roce.Send, k*size, size-k)))
						c.wait()
						wc := ok(v.CQ().Next(within(t, time.Minute)))(t)
						if wc.Status != cq.Success || wc.QPN != target.Num() || int(wc.ByteLen) != size-k ||
							!bytes.Equal(v.buf[int(wc.ID)*size:][:size-k], c.buf[k*size:][:size-k]) {
							t.Errorf("client %d: service %d received %+v", i, k, wc)
						}
						check(t, c.qp.PostSend(c.to(v, roce.Write, k*size, size)))
						check(t, c.qp.PostSend(c.to(v, roce.Read, (2+k)*size, size)))
						c.wait()
						c.wait()
						if !bytes.Equal(v.buf[:size], c.buf[k*size:][:size]) || !bytes.Equal(v.buf[:size], c.buf[(2+k)*size:][:size]) {
							t.Errorf("client %d: service %d: the data differs", i, k)
						}
					}
				}
				// A request to one service cannot access memory of the other.
				c, target := xrcClient(t, dc, s, 64)
				wr := c.to(s.services[0], roce.Read, 0, 8)
				wr.RemoteSRQN = s.services[1].Num()
				check(t, c.qp.PostSend(wr))
				c.waitFor(cq.RemAccessErr)
				if target.State() != qp.Err {
					t.Errorf("the target is in %v", target.State())
				}
			})
		})
	}
}

// TestXRCUnknownQueue: a request to a queue outside the domain fails the connection, and the target raises an event.
func TestXRCUnknownQueue(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		s := newXRCServer(t, d, 0, 1, 1, 64)
		other := newXRCServer(t, d, 0, 1, 1, 64)
		c, target := xrcClient(t, n.device("10.0.0.2"), s, 64)
		check(t, c.qp.PostSend(c.to(other.services[0], roce.Send, 0, 8)))
		c.waitFor(cq.RemInvReqErr)
		for _, want := range []roce.EventType{roce.EventReqErr, roce.EventLastWQE} {
			if e := ok(d.NextEvent(within(t, time.Minute)))(t); e.Type != want || e.QP != target {
				t.Errorf("event %v, want %v of %v", e, want, target.Num())
			}
		}
		if other.services[0].Len() != 1 {
			t.Error("a receive is gone")
		}
	})
}

// TestXRCOpenQP: a target lives until the last of its users has closed it.
func TestXRCOpenQP(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		s, other := newXRCServer(t, d, 0, 1, 1, 64), newXRCServer(t, d, 0, 1, 1, 64)
		c, target := xrcClient(t, n.device("10.0.0.2"), s, 64)
		rc := newPeer(t, d, 64)
		for name, open := range map[string]func() (*roce.QP, error){
			"no queue pair":              func() (*roce.QP, error) { return s.xrcd.OpenQP(target.Num() ^ 1) },
			"queue pair of another type": func() (*roce.QP, error) { return s.xrcd.OpenQP(rc.qp.Num()) },
			"of another domain":          func() (*roce.QP, error) { return other.xrcd.OpenQP(target.Num()) },
		} {
			_, err := open()
			wantErr(t, name, err, syscall.EINVAL)
		}
		again := ok(s.xrcd.OpenQP(target.Num()))(t)
		if again.Num() != target.Num() {
			t.Errorf("opened %v", again.Num())
		}
		check(t, target.Close())
		wantErr(t, "close the first handle again", target.Close(), roce.ErrClosed)
		wantErr(t, "use of a closed handle", target.Modify(&roce.Attr{MinRNRTimer: 1}, qp.AttrMinRNRTimer), roce.ErrClosed)
		check(t, again.Modify(&roce.Attr{MinRNRTimer: 1}, qp.AttrMinRNRTimer))
		wantErr(t, "post on a target", again.PostSend(&roce.SendWR{Opcode: roce.Send}), syscall.EINVAL)
		check(t, c.qp.PostSend(c.to(s.services[0], roce.Send, 0, 8)))
		c.wait()
		wantErr(t, "domain in use", s.xrcd.Close(), syscall.EBUSY)
		check(t, again.Close())
		wantErr(t, "close once more", again.Close(), roce.ErrClosed)
		_, err := s.xrcd.OpenQP(target.Num())
		wantErr(t, "open a closed one", err, syscall.EINVAL)
		wantErr(t, "domain with a queue in it", s.xrcd.Close(), syscall.EBUSY)
		check(t, s.services[0].Close())
		check(t, s.xrcd.Close())
		wantErr(t, "close the domain again", s.xrcd.Close(), roce.ErrClosed)
		_, err = s.xrcd.OpenQP(target.Num())
		wantErr(t, "open in a closed domain", err, roce.ErrClosed)
		_, err = s.xrcd.CreateQP(roce.QPConfig{})
		wantErr(t, "create in a closed domain", err, roce.ErrClosed)
	})
}

// TestXRCErrors: the errno of each refusal.
func TestXRCErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d, other := n.open(n.multi("10.0.0.1", 2, destQPN)), n.device("10.0.0.2")
		for _, shard := range []int{-1, 2} {
			_, err := d.OpenXRCD(roce.XRCDConfig{Shard: shard})
			wantErr(t, fmt.Sprintf("XRC domain on shard %d", shard), err, syscall.EINVAL)
		}
		pd := d.AllocPD()
		x, c0, c1 := ok(d.OpenXRCD(roce.XRCDConfig{}))(t), ok(d.CreateCQ(1))(t), ok(d.CreateCQWith(roce.CQConfig{Entries: 1, Shard: 1}))(t)
		foreign, theirs := ok(other.OpenXRCD(roce.XRCDConfig{}))(t), ok(other.CreateCQ(1))(t)
		for name, c := range map[string]roce.SRQConfig{
			"without completion queue":          {MaxWR: 1, XRCD: x},
			"without XRC domain":                {MaxWR: 1, CQ: c0},
			"completion queue of another shard": {MaxWR: 1, XRCD: x, CQ: c1},
			"XRC domain of another device":      {MaxWR: 1, XRCD: foreign, CQ: theirs},
		} {
			_, err := pd.CreateSRQ(c)
			wantErr(t, "queue "+name, err, syscall.EINVAL)
		}
		srq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, XRCD: x, CQ: c0}))(t)
		wantErr(t, "completion queue in use", c0.Close(), syscall.EBUSY)
		for name, c := range map[string]roce.QPConfig{
			"RC with a queue for XRC":             {SendCQ: c0, SRQ: srq},
			"initiator with a queue":              {Type: qp.XRCSend, SendCQ: c0, SRQ: ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 1}))(t)},
			"initiator without completion queue":  {Type: qp.XRCSend},
			"target in a protection domain":       {Type: qp.XRCRecv, SendCQ: c0},
			"masked atomics, which are RC's only": {Type: qp.XRCSend, SendCQ: c0, MaskedAtomics: true},
		} {
			_, err := pd.CreateQP(c)
			wantErr(t, name, err, syscall.EINVAL)
		}
		_, err := x.CreateQP(roce.QPConfig{Type: qp.XRCSend, SendCQ: c0})
		wantErr(t, "initiator in an XRC domain", err, syscall.EINVAL)

		ini, tgt := ok(pd.CreateQP(roce.QPConfig{Type: qp.XRCSend, SendCQ: c0}))(t), ok(x.CreateQP(roce.QPConfig{UserData: 7}))(t)
		if ini.RecvCQ() != nil || tgt.PD() != nil || tgt.SendCQ() != nil || tgt.UserData() != 7 || srq.CQ() != c0 {
			t.Error("the objects of the queue pairs are not what they were made of")
		}
		_, err = d.Dial(within(t, time.Minute), "10.0.0.2:7471", roce.DialConfig{QP: ini})
		wantErr(t, "dial with an initiator", err, syscall.EINVAL)
		for _, q := range []*roce.QP{ini, tgt} {
			check(t, q.Init(0, 0))
			wantErr(t, "post a receive", q.PostRecv(&roce.RecvWR{}), syscall.EINVAL)
			check(t, q.Close())
		}
		wantErr(t, "post to the target", tgt.PostSend(&roce.SendWR{}), roce.ErrClosed)
		check(t, srq.Close())
		check(t, c0.Close())
		_, err = pd.CreateSRQ(roce.SRQConfig{MaxWR: 1, XRCD: x, CQ: c0})
		wantErr(t, "queue with a closed completion queue", err, roce.ErrClosed)
		check(t, x.Close())
		if d.Query().Caps&roce.CapXRC == 0 {
			t.Error("the device does not say that it has XRC")
		}
	})
}

// TestXRCOpenQPEvents: an event of a target is raised for each of its handles, and for none
// that is closed.
func TestXRCOpenQPEvents(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		s := newXRCServer(t, d, 0, 1, 1, 64)
		c, first := xrcClient(t, n.device("10.0.0.2"), s, 64)
		second, third := ok(s.xrcd.OpenQP(first.Num()))(t), ok(s.xrcd.OpenQP(first.Num()))(t)
		check(t, first.Close())
		wr := c.to(s.services[0], roce.Write, 0, 8)
		wr.RKey ^= 0xFFFF00 // the key of no region
		check(t, c.qp.PostSend(wr))
		c.waitFor(cq.RemAccessErr)
		access := func(e roce.Event) bool { return e.Type == roce.EventAccessErr }
		seen := map[*roce.QP]int{}
		for range 2 {
			e := ok(d.NextEventFunc(within(t, time.Minute), access))(t)
			seen[e.QP]++
		}
		if seen[second] != 1 || seen[third] != 1 {
			t.Errorf("events per handle: %v of the second, %v of the third, want one each", seen[second], seen[third])
		}
		check(t, second.Close())
		check(t, third.Close())
	})
}

package scenario_test

import (
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/qp"
)

const dcKey = 0xFEED_0000_0000_0001

// dcServer is a target on a device, with a region that peers may use.
type dcServer struct {
	*roce.DCT
	dev *roce.Device
	srq *roce.SRQ
	cq  *roce.CQ
	mr  *roce.MR
}

func newDCServer(t testing.TB, d *roce.Device, set func(*roce.DCTConfig)) *dcServer {
	t.Helper()
	s := &dcServer{dev: d}
	pd := d.AllocPD()
	s.cq = ok(d.CreateCQ(255))(t)
	s.srq = ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 64}))(t)
	s.mr = ok(pd.RegMR(make([]byte, 1<<16), roce.LocalWrite|roce.RemoteRead|roce.RemoteWrite|roce.RemoteAtomic))(t)
	c := roce.DCTConfig{CQ: s.cq, SRQ: s.srq, Key: dcKey &^ (1 << 63), Access: roce.RemoteRead | roce.RemoteWrite | roce.RemoteAtomic, MinRNRTimer: 1}
	if set != nil {
		set(&c)
	}
	s.DCT = ok(pd.CreateDCT(c))(t)
	for i := range 64 {
		check(t, s.srq.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{s.mr.SGE(1<<15+i*256, 256)}}))
	}
	return s
}

// dcClient is an initiator on a device.
type dcClient struct {
	*roce.QP
	dev *roce.Device
	mr  *roce.MR
}

func newDCClient(t testing.TB, d *roce.Device, to roce.GID) *dcClient {
	t.Helper()
	pd := d.AllocPD()
	c := &dcClient{dev: d}
	c.QP = ok(pd.CreateQP(roce.QPConfig{Type: roce.DCI, SendCQ: ok(d.CreateCQ(255))(t)}))(t)
	c.mr = ok(pd.RegMR(make([]byte, 1<<14), roce.LocalWrite))(t)
	ah := ok(d.CreateAH(t.Context(), roce.AHAttr{DGID: to}))(t)
	check(t, c.ReadyDC(roce.Initiator{Key: dcKey &^ (1 << 63), AV: ah, MTU: roce.MTU1024, Timeout: 14, RetryCnt: 7, RNRRetry: 7, RdAtomic: 8}))
	return c
}

// do posts a work request to a server and waits for its completion.
func (c *dcClient) do(t testing.TB, s *dcServer, wr roce.SendWR) roce.WC {
	t.Helper()
	wr.AH = ok(c.dev.CreateAH(t.Context(), roce.AHAttr{DGID: s.dev.GIDs()[0]}))(t)
	wr.RemoteQPN, wr.RKey, wr.Flags = s.Num(), s.mr.RKey(), roce.Signaled
	if wr.DCKey == 0 {
		wr.DCKey = 1 << 63
	}
	check(t, c.PostSend(&wr))
	return ok(c.SendCQ().Next(patient(t)))(t)
}

// TestDC: initiators of two devices, one after another, on targets of both: over the
// network and inside a device.
func TestDC(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
		servers := []*dcServer{newDCServer(t, a, nil), newDCServer(t, b, nil)}
		clients := []*dcClient{newDCClient(t, a, b.GIDs()[0]), newDCClient(t, b, a.GIDs()[0]), newDCClient(t, b, a.GIDs()[0])}
		for round := range 3 {
			for i, c := range clients {
				for _, s := range servers {
					fill(c.mr.Bytes()[:5000], round*8+i)
					wc := c.do(t, s, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{c.mr.SGE(0, 5000)}, RemoteAddr: s.mr.Addr() + 8})
					if wc.Status != roce.StatusSuccess {
						t.Fatal("WRITE:", wc.Status)
					}
					if wc = c.do(t, s, roce.SendWR{Opcode: roce.Read, SG: []roce.SGE{c.mr.SGE(8192, 5000)}, RemoteAddr: s.mr.Addr() + 8}); wc.Status != roce.StatusSuccess {
						t.Fatal("READ:", wc.Status)
					}
					if string(c.mr.Bytes()[8192:8192+5000]) != string(c.mr.Bytes()[:5000]) {
						t.Error("READ brought other data")
					}
					c.do(t, s, roce.SendWR{Opcode: roce.FetchAdd, CompareAdd: 1, SG: []roce.SGE{c.mr.SGE(16000, 8)}, RemoteAddr: s.mr.Addr()})
					if wc = c.do(t, s, roce.SendWR{Opcode: roce.SendImm, Imm: uint32(i), Inline: []byte("hello")}); wc.Status != roce.StatusSuccess {
						t.Fatal("SEND:", wc.Status)
					}
					if r := ok(s.cq.Next(patient(t)))(t); r.Imm != uint32(i) || r.ByteLen != 5 || r.QPN != s.Num() || r.Status != roce.StatusSuccess {
						t.Errorf("received %+v", r)
					}
				}
			}
		}
		for _, s := range servers {
			if v := s.mr.Load64(0); v != 9 {
				t.Errorf("%d additions, want 9", v)
			}
			if q := s.Query(); q.State != roce.DCTActive || q.KeyViolations != 0 {
				t.Errorf("%+v", q)
			}
		}
	})
}

// TestDCTArm: a connect with another key fires an armed target once.
func TestDCTArm(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
		s := newDCServer(t, b, nil)
		wantErr(t, "arm with a comp_mask", s.Arm(1), syscall.EINVAL)
		check(t, s.Arm(0))
		if q := s.Query(); q.State != roce.DCTArmed || q.GIDIndex != 0 || q.MTU == 0 || q.SRQ != s.srq || q.CQ != s.cq || q.PD == nil || q.Port != 1 {
			t.Errorf("%+v", q)
		}
		for i := range uint64(3) {
			c := newDCClient(t, a, b.GIDs()[0])
			if wc := c.do(t, s, roce.SendWR{Opcode: roce.Send, DCKey: 4711 + i}); wc.Status != cq.RemAccessErr {
				t.Error(wc.Status)
			}
		}
		e := ok(b.NextEvent(patient(t)))(t)
		if e.Type != roce.EventDCTKeyViolation || e.DCT != s.DCT {
			t.Error(e)
		}
		if e, more := b.TryNextEvent(); more {
			t.Error("another event:", e)
		}
		if q := s.Query(); q.State != roce.DCTFired || q.KeyViolations != 3 {
			t.Errorf("%+v", q)
		}
		wantErr(t, "close of the queue in use", s.srq.Close(), syscall.EBUSY)
		check(t, s.Close())
		check(t, s.srq.Close())
		wantErr(t, "arm after close", s.Arm(0), roce.ErrClosed)
	})
}

// TestDCTRefusals has the errno of each refusal.
func TestDCTRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
		s := newDCServer(t, d, nil)
		pd := d.AllocPD()
		foreign := newDCServer(t, other, nil)
		for _, tt := range []struct {
			name string
			set  func(*roce.DCTConfig)
			want error
		}{
			{"no CQ", func(c *roce.DCTConfig) { c.CQ = nil }, syscall.EINVAL},
			{"CQ of another device", func(c *roce.DCTConfig) { c.CQ = foreign.cq }, syscall.EINVAL},
			{"no SRQ", func(c *roce.DCTConfig) { c.SRQ = nil }, syscall.EINVAL},
			{"SRQ of another device", func(c *roce.DCTConfig) { c.SRQ = foreign.srq }, syscall.EINVAL},
			{"port 2", func(c *roce.DCTConfig) { c.Port = 2 }, syscall.EINVAL},
			{"P_Key index", func(c *roce.DCTConfig) { c.PKeyIndex = 1 }, syscall.EINVAL},
			{"GID index", func(c *roce.DCTConfig) { c.GIDIndex = 9 }, errno.ENODATA},
			{"MTU", func(c *roce.DCTConfig) { c.MTU = 6 }, syscall.EINVAL},
			{"RNR timer", func(c *roce.DCTConfig) { c.MinRNRTimer = 32 }, syscall.EINVAL},
			{"access", func(c *roce.DCTConfig) { c.Access = roce.MWBind }, syscall.EINVAL},
			{"create flags", func(c *roce.DCTConfig) { c.Flags = 1 }, syscall.EINVAL},
			{"flow label", func(c *roce.DCTConfig) { c.FlowLabel = 1 << 20 }, syscall.EINVAL},
			{"READs", func(c *roce.DCTConfig) { c.MaxDestRdAtomic = 255 }, syscall.EINVAL},
		} {
			c := roce.DCTConfig{CQ: s.cq, SRQ: s.srq}
			tt.set(&c)
			_, err := pd.CreateDCT(c)
			wantErr(t, tt.name, err, tt.want)
		}
		_, err := pd.CreateQP(roce.QPConfig{Type: qp.DCT, SendCQ: s.cq, SRQ: s.srq})
		wantErr(t, "a target by CreateQP", err, syscall.EINVAL)
		c := newDCClient(t, d, other.GIDs()[0])
		wantErr(t, "foreign address handle", c.PostSend(&roce.SendWR{Opcode: roce.Send, AH: ok(other.CreateAH(t.Context(), roce.AHAttr{DGID: d.GIDs()[0]}))(t)}), syscall.EINVAL)
		wantErr(t, "receive", c.PostRecv(&roce.RecvWR{}), syscall.EINVAL)
		if a := d.Query(); a.Caps&roce.CapDC == 0 || a.MaxDCReqRdAtom != roce.MaxRdAtomic || a.MaxDCResRdAtom != roce.MaxRdAtomic {
			t.Errorf("%+v", a)
		}
	})
}

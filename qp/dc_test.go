package qp_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// completions waits for n completions of an initiator and returns them.
func (w *dcWorld) completions(t testing.TB, n *node, k int) (out []cq.WC) {
	t.Helper()
	w.run(t, 20*time.Second, func() bool {
		out = append(out, drain(n.send)...)
		return len(out) >= k
	})
	return out
}

// TestDCIStates tries every change of state with every required attribute missing, and
// with every attribute that the table does not have.
func TestDCIStates(t *testing.T) {
	reach := map[qp.State][]int{qp.Reset: nil, qp.Init: {0}, qp.RTR: {0, 2}, qp.RTS: {0, 2, 3}}
	at := func(s qp.State) (*dcWorld, *node) {
		w := newDCWorld(1, impairment{})
		n := w.add(t, qp.Config{Type: qp.DCI, Caps: qp.Caps{MaxSendWR: 1}})
		for _, i := range reach[s] {
			a := w.dciAttr(n)
			a.State = dciStates[i].to
			if err := n.Modify(&a, qp.AttrState|dciStates[i].required); err != nil {
				t.Fatal(err)
			}
		}
		return w, n
	}
	moves := qp.AttrAltPath | qp.AttrPathMigState
	for _, row := range dciStates {
		try := func(mask qp.AttrMask) error {
			w, n := at(row.from)
			a := w.dciAttr(n)
			a.State, a.AltAV, a.AltPort = row.to, a.AV, 1
			return n.Modify(&a, qp.AttrState|mask)
		}
		if err := try(row.required | row.optional&^moves); err != nil {
			t.Errorf("%v to %v: %v", row.from, row.to, err)
		}
		for bit := qp.AttrMask(1); bit <= qp.AttrDCKey; bit <<= 1 {
			var want error
			switch {
			case bit == qp.AttrState:
				continue
			case row.required&bit != 0:
				if err := try(row.required &^ bit); !errors.Is(err, syscall.EINVAL) {
					t.Errorf("%v to %v without %v: %v", row.from, row.to, bit, err)
				}
			case row.optional&bit&moves != 0:
				want = syscall.EOPNOTSUPP // the table accepts it, but there is no path to change over to
			case row.optional&bit == 0:
				want = syscall.EINVAL
			}
			if err := try(row.required | bit); !errors.Is(err, want) && (want != nil || err != nil) {
				t.Errorf("%v to %v with %v: %v, want %v", row.from, row.to, bit, err, want)
			}
		}
	}
	// Modify refuses changes of state that are not in the table.
	for _, e := range [][2]qp.State{{qp.Reset, qp.RTR}, {qp.Init, qp.RTS}, {qp.RTR, qp.RTR}, {qp.RTS, qp.SQD}, {qp.RTS, qp.Init}} {
		_, n := at(e[0])
		if err := n.Modify(&qp.Attr{State: e[1]}, qp.AttrState); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%v to %v: %v", e[0], e[1], err)
		}
	}
}

// TestDCOperations does every operation of the service on two targets in turn.
func TestDCOperations(t *testing.T) {
	w := newDCWorld(2, impairment{})
	n := w.initiator(t, nil)
	local, lm := n.region(t, 8192)
	sg := func(k int) []mr.SGE { return []mr.SGE{{Addr: lm.Addr(), Length: uint32(k), LKey: lm.LKey()}} }
	for i := range local {
		local[i] = byte(i * 7)
	}
	want := bytes.Clone(local)
	for i := range 2 {
		w.target(t, qp.DCTConfig{}, 8192)
		w.targets[i].post(t, 4)
	}
	for _, d := range w.targets {
		for _, wr := range []qp.SendWR{
			{ID: 1, Opcode: qp.Send, SG: sg(3000)},
			{ID: 2, Opcode: qp.SendImm, SG: sg(10), Imm: 77},
			{ID: 3, Opcode: qp.Write, SG: sg(5000), RemoteAddr: d.mr.Addr() + 8},
			{ID: 4, Opcode: qp.WriteImm, SG: sg(1), RemoteAddr: d.mr.Addr() + 6000, Imm: 78},
			{ID: 5, Opcode: qp.FetchAdd, SG: []mr.SGE{{Addr: lm.Addr() + 8000, Length: 8, LKey: lm.LKey()}}, RemoteAddr: d.mr.Addr(), CompareAdd: 5},
			{ID: 6, Opcode: qp.CompareSwap, SG: []mr.SGE{{Addr: lm.Addr() + 8008, Length: 8, LKey: lm.LKey()}}, RemoteAddr: d.mr.Addr(), CompareAdd: 5, Swap: 9},
			{ID: 7, Opcode: qp.Read, SG: []mr.SGE{{Addr: lm.Addr() + 6000, Length: 1500, LKey: lm.LKey()}}, RemoteAddr: d.mr.Addr() + 8},
		} {
			if err := n.PostSend(w.to(n, d, wr)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for i, wc := range w.completions(t, n, 14) {
		if wc.Status != cq.Success || wc.ID != uint64(i%7+1) {
			t.Fatalf("completion %d: %v %v", i, wc.ID, wc.Status)
		}
	}
	for _, d := range w.targets {
		got := drain(d.node.recv)
		if len(got) != 3 || got[0].ByteLen != 3000 || got[1].Imm != 77 || got[2].Imm != 78 || got[0].QPN != d.Num() {
			t.Fatalf("receives %+v", got)
		}
		if !bytes.Equal(d.data(got[0].ID, 3000), want[:3000]) || !bytes.Equal(d.buf[8:5008], want[:5000]) {
			t.Error("wrong data")
		}
		if v := binary.NativeEndian.Uint64(d.buf); v != 9 {
			t.Errorf("atomics left %d", v)
		}
	}
	if !bytes.Equal(local[6000:7500], want[:1500]) {
		t.Error("READ brought wrong data")
	}
	if old := binary.NativeEndian.Uint64(local[8008:]); old != 5 {
		t.Errorf("COMPARE_SWAP found %d", old)
	}
	// The initiator has left the first target, and will leave the second one.
	if a, b := w.targets[0].DCTStatus().Initiators, w.targets[1].DCTStatus().Initiators; a != 0 || b != 1 {
		t.Errorf("%d and %d initiators, want 0 and 1", a, b)
	}
	w.idle(2 * qp.DCLinger)
	if b := w.targets[1].DCTStatus().Initiators; b != 0 {
		t.Errorf("%d initiators after a pause", b)
	}
	if err := n.PostSend(w.to(n, w.targets[1], qp.SendWR{ID: 8, Opcode: qp.Send, SG: sg(3)})); err != nil {
		t.Fatal(err)
	}
	if wc := w.completions(t, n, 1)[0]; wc.Status != cq.Success {
		t.Error("after a pause:", wc.Status)
	}
}

// TestDCTKeyViolation arms a target. The first wrong key raises an event, and each wrong key is counted.
func TestDCTKeyViolation(t *testing.T) {
	w := newDCWorld(3, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	d.post(t, 8)
	violate := func() {
		t.Helper()
		n := w.initiator(t, nil)
		for i := range 2 {
			if err := n.PostSend(w.to(n, d, qp.SendWR{ID: uint64(i), Opcode: qp.Send, DCKey: dcKey + 1})); err != nil {
				t.Fatal(err)
			}
		}
		wcs := w.completions(t, n, 2)
		if wcs[0].Status != cq.RemAccessErr || wcs[1].Status != cq.WRFlushErr || n.State() != qp.Err {
			t.Fatalf("%v, %v in %v", wcs[0].Status, wcs[1].Status, n.State())
		}
	}
	check := func(state qp.DCTState, violations uint64, events int) {
		t.Helper()
		if s := d.DCTStatus(); s.State != state || s.KeyViolations != violations || s.Initiators != 0 || len(d.events) != events {
			t.Fatalf("%+v, events %v; want %v, %d violations, %d events", s, d.events, state, violations, events)
		}
	}
	check(qp.DCTActive, 0, 0)
	violate()
	check(qp.DCTActive, 1, 0)
	for round := range 2 {
		if err := d.ArmDCT(); err != nil {
			t.Fatal(err)
		}
		check(qp.DCTArmed, uint64(2*round+1), round)
		violate()
		check(qp.DCTFired, uint64(2*round+2), round+1)
		violate()
		check(qp.DCTFired, uint64(2*round+3), round+1)
	}
	if d.events[0] != qp.EventDCTKeyViolation {
		t.Error(d.events)
	}
	n := w.initiator(t, nil)
	if err := n.ArmDCT(); !errors.Is(err, syscall.EINVAL) {
		t.Error("armed a DCI:", err)
	}
}

// TestDCRefusals tests queue pairs that cannot be created and work requests that cannot be posted.
func TestDCRefusals(t *testing.T) {
	w := newDCWorld(4, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	n := w.initiator(t, nil)
	ah := qp.NewAH(w.path(n.addr, d.addr))
	for _, tt := range []struct {
		name string
		wr   qp.SendWR
	}{
		{"no address handle", qp.SendWR{Opcode: qp.Send}},
		{"target number", qp.SendWR{Opcode: qp.Send, AH: ah, RemoteQPN: 1 << 24}},
		{"SEND_WITH_INV", qp.SendWR{Opcode: qp.SendInv, AH: ah}},
		{"FLUSH", qp.SendWR{Opcode: qp.Flush, AH: ah}},
		{"BIND_MW", qp.SendWR{Opcode: qp.BindMW, AH: ah}},
		{"masked", qp.SendWR{Opcode: qp.MaskedFetchAdd, AH: ah}},
	} {
		if err := n.PostSend(&tt.wr); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if err := n.PostRecv(&qp.RecvWR{}); !errors.Is(err, syscall.EINVAL) {
		t.Error("receive of a DCI:", err)
	}
	if err := d.PostSend(&qp.SendWR{Opcode: qp.Send}); !errors.Is(err, syscall.EINVAL) {
		t.Error("send of a DCT:", err)
	}
	good := func() qp.Config {
		return qp.Config{Type: qp.DCT, PD: d.pd, Memory: d.mem, RecvCQ: d.node.recv, SRQ: d.host.srq,
			DCT: &qp.DCTConfig{MTU: bth.MTU1024, Rand: w.rng.Uint64, PathBack: func(*frame.Packet, bool) *frame.Path { return nil }}}
	}
	if _, err := qp.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*qp.Config){
		"no SRQ":           func(c *qp.Config) { c.SRQ = nil },
		"no CQ":            func(c *qp.Config) { c.RecvCQ = nil },
		"no PD":            func(c *qp.Config) { c.PD = nil },
		"no parameters":    func(c *qp.Config) { c.DCT = nil },
		"MTU":              func(c *qp.Config) { c.DCT.MTU = 6 },
		"access":           func(c *qp.Config) { c.DCT.Access = mr.MWBind },
		"RNR timer":        func(c *qp.Config) { c.DCT.MinRNRTimer = 32 },
		"READs":            func(c *qp.Config) { c.DCT.MaxDestRdAtomic = qp.MaxRdAtomic + 1 },
		"initiators":       func(c *qp.Config) { c.DCT.MaxInitiators = -1 },
		"parameters of RC": func(c *qp.Config) { c.Type, c.SendCQ = qp.RC, c.RecvCQ },
		"SRQ of a DCI":     func(c *qp.Config) { c.Type, c.SendCQ, c.DCT = qp.DCI, c.RecvCQ, nil },
	} {
		c := good()
		spoil(&c)
		if _, err := qp.New(c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDCFailures tests the ways in which a connection fails, and the status of each.
func TestDCFailures(t *testing.T) {
	for _, tt := range []struct {
		name   string
		target qp.DCTConfig
		attr   func(*qp.Attr)
		recvs  int
		deaf   bool
		status cq.Status
	}{
		{name: "no answer", deaf: true, recvs: 1, status: cq.RetryExcErr},
		{name: "no receive", attr: func(a *qp.Attr) { a.RNRRetry = 2 }, status: cq.RNRRetryExcErr},
		{name: "receive comes late", attr: func(a *qp.Attr) { a.RNRRetry = 7 }, recvs: -1, status: cq.Success},
		{name: "path MTU too large", target: qp.DCTConfig{MTU: bth.MTU512}, recvs: 1, status: cq.RemInvReqErr},
		{name: "path MTU smaller", target: qp.DCTConfig{MTU: bth.MTU4096}, recvs: 1, status: cq.Success},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newDCWorld(5, impairment{})
			d := w.target(t, tt.target, 64)
			n := w.initiator(t, tt.attr)
			d.post(t, max(tt.recvs, 0))
			if tt.deaf {
				w.drop = func(*frame.Packet) bool { return true }
			}
			if err := n.PostSend(w.to(n, d, qp.SendWR{Opcode: qp.Send})); err != nil {
				t.Fatal(err)
			}
			if tt.recvs < 0 {
				w.idle(time.Second / 2)
				d.post(t, 1)
			}
			if wc := w.completions(t, n, 1)[0]; wc.Status != tt.status {
				t.Errorf("%v, want %v", wc.Status, tt.status)
			}
		})
	}
}

// TestDCTBound fills a target: the next initiator waits until another has been idle.
func TestDCTBound(t *testing.T) {
	w := newDCWorld(6, impairment{})
	d := w.target(t, qp.DCTConfig{MaxInitiators: 4}, 64)
	d.post(t, 64)
	var all []*node
	for i := range 5 {
		n := w.initiator(t, nil)
		all = append(all, n)
		if err := n.PostSend(w.to(n, d, qp.SendWR{Opcode: qp.Send})); err != nil {
			t.Fatal(err)
		}
		if i < 4 {
			w.completions(t, n, 1)
		}
	}
	if s := d.DCTStatus(); s.Initiators != 4 || s.Sources != 4 {
		t.Fatalf("%+v", s)
	}
	begin := w.now
	if wc := w.completions(t, all[4], 1)[0]; wc.Status != cq.Success {
		t.Fatal(wc.Status)
	}
	if waited := w.now.Sub(begin); waited < qp.DCLinger/2 {
		t.Errorf("waited for %v only", waited)
	}
	if s := d.DCTStatus(); s.Initiators > 4 {
		t.Errorf("%+v", s)
	}
}

// TestDCTForgets loses every DISCONNECT: the target forgets the initiator after a while.
func TestDCTForgets(t *testing.T) {
	w := newDCWorld(7, impairment{})
	d := w.target(t, qp.DCTConfig{}, 64)
	d.post(t, 4)
	n := w.initiator(t, nil)
	w.drop = func(p *frame.Packet) bool { return p.Op == bth.DCDisconnect }
	if err := n.PostSend(w.to(n, d, qp.SendWR{Opcode: qp.Send})); err != nil {
		t.Fatal(err)
	}
	w.completions(t, n, 1)
	w.idle(qp.DCContextIdle / 2)
	if s := d.DCTStatus(); s.Initiators != 1 {
		t.Fatalf("%+v", s)
	}
	w.idle(qp.DCContextIdle)
	if s := d.DCTStatus(); s.Initiators != 0 || s.Sources != 0 {
		t.Fatalf("%+v", s)
	}
	// And a new connection replaces a context that was left over.
	for range 2 {
		if err := n.PostSend(w.to(n, d, qp.SendWR{Opcode: qp.Send})); err != nil {
			t.Fatal(err)
		}
		if wc := w.completions(t, n, 1)[0]; wc.Status != cq.Success {
			t.Fatal(wc.Status)
		}
		w.idle(2 * qp.DCLinger)
	}
	if s := d.DCTStatus(); s.Initiators != 1 {
		t.Errorf("%+v", s)
	}
}

// TestTargetReceives: the error of a receive that is posted to a target names the shared receive queue.
func TestTargetReceives(t *testing.T) {
	d := newDCWorld(1, impairment{}).target(t, qp.DCTConfig{}, 64)
	err := d.PostRecv(&qp.RecvWR{})
	if err == nil || strings.Contains(err.Error(), "XRC") || !strings.Contains(err.Error(), "shared receive queue") {
		t.Errorf("a receive for a target: %v", err)
	}
}

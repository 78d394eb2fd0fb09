package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// modifyRow is a row of the table of modify_qp, copied from the InfiniBand
// Architecture Specification (11.2.5.2) as Linux has it. Names are those of enum
// ibv_qp_attr_mask.
type modifyRow struct{ required, optional []string }

var (
	rcChange = []string{"CUR_STATE", "ACCESS_FLAGS", "ALT_PATH", "PATH_MIG_STATE", "MIN_RNR_TIMER"}
	ucChange = []string{"CUR_STATE", "ACCESS_FLAGS", "ALT_PATH", "PATH_MIG_STATE"}
	udChange = []string{"CUR_STATE", "QKEY"}
	notify   = []string{"EN_SQD_ASYNC_NOTIFY"}
)

// modifyTable is the table. It leaves out the changes that have only the attribute state: of any state to RESET, and
// of any state but RESET to ERR.
var modifyTable = map[qp.Type]map[string]modifyRow{
	qp.RC: {
		"RESET→INIT": {required: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→INIT":  {optional: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→RTR": {required: []string{"AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"},
			optional: []string{"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX"}},
		"RTR→RTS": {required: []string{"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_QP_RD_ATOMIC"},
			optional: []string{"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "MIN_RNR_TIMER", "PATH_MIG_STATE"}},
		"RTS→RTS": {optional: rcChange},
		"RTS→SQD": {optional: notify},
		"SQD→RTS": {optional: rcChange},
		"SQD→SQD": {optional: []string{"PORT", "AV", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC", "MAX_DEST_RD_ATOMIC",
			"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "MIN_RNR_TIMER", "PATH_MIG_STATE"}},
	},
	qp.UC: {
		"RESET→INIT": {required: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→INIT":  {optional: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→RTR": {required: []string{"AV", "PATH_MTU", "DEST_QPN", "RQ_PSN"},
			optional: []string{"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX"}},
		"RTR→RTS": {required: []string{"SQ_PSN"}, optional: []string{"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE"}},
		"RTS→RTS": {optional: ucChange},
		"RTS→SQD": {optional: notify},
		"SQD→RTS": {optional: ucChange},
		"SQD→SQD": {optional: []string{"AV", "ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX", "PATH_MIG_STATE"}},
		"SQE→RTS": {optional: []string{"CUR_STATE", "ACCESS_FLAGS"}},
	},
	qp.XRCSend: {
		"RESET→INIT": {required: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→INIT":  {optional: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→RTR": {required: []string{"AV", "PATH_MTU", "DEST_QPN", "RQ_PSN"},
			optional: []string{"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX"}},
		"RTR→RTS": {required: []string{"TIMEOUT", "RETRY_CNT", "RNR_RETRY", "SQ_PSN", "MAX_QP_RD_ATOMIC"},
			optional: []string{"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "PATH_MIG_STATE"}},
		"RTS→RTS": {optional: ucChange},
		"RTS→SQD": {optional: notify},
		"SQD→RTS": {optional: ucChange},
		"SQD→SQD": {optional: []string{"PORT", "AV", "TIMEOUT", "RETRY_CNT", "RNR_RETRY", "MAX_QP_RD_ATOMIC", "ALT_PATH", "ACCESS_FLAGS",
			"PKEY_INDEX", "PATH_MIG_STATE"}},
	},
	qp.XRCRecv: {
		"RESET→INIT": {required: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→INIT":  {optional: []string{"PKEY_INDEX", "PORT", "ACCESS_FLAGS"}},
		"INIT→RTR": {required: []string{"AV", "PATH_MTU", "DEST_QPN", "RQ_PSN", "MAX_DEST_RD_ATOMIC", "MIN_RNR_TIMER"},
			optional: []string{"ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX"}},
		"RTR→RTS": {required: []string{"TIMEOUT", "SQ_PSN"},
			optional: []string{"CUR_STATE", "ALT_PATH", "ACCESS_FLAGS", "MIN_RNR_TIMER", "PATH_MIG_STATE"}},
		"RTS→RTS": {optional: rcChange},
		"RTS→SQD": {optional: notify},
		"SQD→RTS": {optional: rcChange},
		"SQD→SQD": {optional: []string{"PORT", "AV", "TIMEOUT", "MAX_DEST_RD_ATOMIC", "ALT_PATH", "ACCESS_FLAGS", "PKEY_INDEX",
			"MIN_RNR_TIMER", "PATH_MIG_STATE"}},
	},
	qp.UD: {
		"RESET→INIT": {required: []string{"PKEY_INDEX", "PORT", "QKEY"}},
		"INIT→INIT":  {optional: []string{"PKEY_INDEX", "PORT", "QKEY"}},
		"INIT→RTR":   {optional: []string{"PKEY_INDEX", "QKEY"}},
		"RTR→RTS":    {required: []string{"SQ_PSN"}, optional: udChange},
		"RTS→RTS":    {optional: udChange},
		"RTS→SQD":    {optional: notify},
		"SQD→RTS":    {optional: udChange},
		"SQD→SQD":    {optional: []string{"PKEY_INDEX", "QKEY"}},
		"SQE→RTS":    {optional: udChange},
	},
}

// attrBits are the bits of the mask by name.
var attrBits = map[string]roce.AttrMask{"CUR_STATE": qp.AttrCurState, "EN_SQD_ASYNC_NOTIFY": qp.AttrSQDNotify, "ACCESS_FLAGS": qp.AttrAccess,
	"PKEY_INDEX": qp.AttrPKeyIndex, "PORT": qp.AttrPort, "QKEY": qp.AttrQKey, "AV": qp.AttrAV, "PATH_MTU": qp.AttrPathMTU,
	"TIMEOUT": qp.AttrTimeout, "RETRY_CNT": qp.AttrRetryCnt, "RNR_RETRY": qp.AttrRNRRetry, "RQ_PSN": qp.AttrRQPSN,
	"MAX_QP_RD_ATOMIC": qp.AttrMaxRdAtomic, "ALT_PATH": qp.AttrAltPath, "MIN_RNR_TIMER": qp.AttrMinRNRTimer, "SQ_PSN": qp.AttrSQPSN,
	"MAX_DEST_RD_ATOMIC": qp.AttrMaxDestRdAtomic, "PATH_MIG_STATE": qp.AttrPathMigState, "CAP": qp.AttrCap, "DEST_QPN": qp.AttrDestQPN}

// maskOf turns names into a mask.
func maskOf(names ...string) (m roce.AttrMask) {
	for _, n := range names {
		if attrBits[n] == 0 {
			panic("no attribute " + n)
		}
		m |= attrBits[n]
	}
	return m
}

// modifier makes queue pairs of a type in any state, with legal attributes.
type modifier struct {
	t   *testing.T
	dev *roce.Device
	typ qp.Type
	pd  *roce.PD
	cq  *roce.CQ
	mr  *roce.MR
	ah  *roce.AH
	xrc *roce.XRCD
}

func newModifier(t *testing.T, d, peer *roce.Device, typ qp.Type) *modifier {
	t.Helper()
	m := &modifier{t: t, dev: d, typ: typ, pd: d.AllocPD(), cq: ok(d.CreateCQ(1023))(t)}
	m.mr = ok(m.pd.RegMR(make([]byte, 8192), allRights))(t)
	m.ah = ok(d.CreateAH(context.Background(), roce.AHAttr{DGID: peer.GIDs()[0]}))(t)
	m.xrc = ok(d.OpenXRCD(roce.XRCDConfig{}))(t)
	return m
}

func (m *modifier) caps() roce.Caps {
	return roce.Caps{MaxSendWR: 4, MaxRecvWR: 4, MaxSendSGE: 2, MaxRecvSGE: 2, MaxInlineData: 64}
}

// attr has a legal value for every attribute.
func (m *modifier) attr(from, to qp.State) *roce.Attr {
	migration := qp.Rearm
	if to == qp.SQD {
		migration = qp.Migrated // rearming needs RTS
	}
	return &roce.Attr{State: to, CurState: from, Port: 1, QKey: testQKey, Access: roce.RemoteWrite, AV: m.ah, PathMTU: bth.MTU1024, DestQPN: 5,
		Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 1, MaxDestRdAtomic: 1, AltAV: m.ah, AltPort: 1, AltTimeout: 14,
		PathMigState: migration}
}

// send returns a work request of n bytes that any service takes.
func (m *modifier) send(n int) *roce.SendWR {
	return &roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{m.mr.SGE(0, n)}, AH: m.ah, RemoteQPN: 5, RemoteQKey: testQKey}
}

// at makes a queue pair in a state.
func (m *modifier) at(s qp.State) *roce.QP {
	m.t.Helper()
	create := m.pd.CreateQP
	if m.typ == qp.XRCRecv {
		create = m.xrc.CreateQP
	}
	q := ok(create(roce.QPConfig{Type: m.typ, SendCQ: m.cq, Caps: m.caps()}))(m.t)
	m.t.Cleanup(func() { q.Close() })
	paths := map[qp.State][]qp.State{qp.Init: {qp.Init}, qp.RTR: {qp.Init, qp.RTR}, qp.RTS: {qp.Init, qp.RTR, qp.RTS},
		qp.SQD: {qp.Init, qp.RTR, qp.RTS, qp.SQD}, qp.SQE: {qp.Init, qp.RTR, qp.RTS}, qp.Err: {qp.Init, qp.Err}}
	for _, to := range paths[s] {
		from := q.State()
		row := modifyTable[m.typ][fmt.Sprintf("%v→%v", from, to)]
		check(m.t, q.Modify(m.attr(from, to), qp.AttrState|maskOf(row.required...)))
	}
	if s == qp.SQE { // by an error of its own
		wr := m.send(8)
		wr.SG[0].LKey++
		check(m.t, q.PostSend(wr))
		var wc [1]roce.WC
		for m.cq.Poll(wc[:]) == 0 || wc[0].Status != cq.LocProtErr {
		}
	}
	if got := q.State(); got != s {
		m.t.Fatalf("%v queue pair in %v, want %v", m.typ, got, s)
	}
	return q
}

// TestErrnoModify walks the product of services, states and states. A transition of the table works with the required
// attributes and any optional one, and is EINVAL without a required one or with another one. Other transitions are
// EINVAL. A refusal changes nothing.
func TestErrnoModify(t *testing.T) {
	n := newNetwork(t)
	d, peer := n.device("10.0.0.1"), n.device("10.0.0.2")
	all := []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.SQE, qp.Err, 7}
	tried := 0
	for typ, table := range modifyTable {
		m := newModifier(t, d, peer, typ)
		for _, from := range all[:7] {
			if from == qp.SQE && typ != qp.UC && typ != qp.UD {
				continue // the reliable services have no such state
			}
			for _, to := range all {
				edge := fmt.Sprintf("%v→%v", from, to)
				row, legal := table[edge]
				if to == qp.Reset || to == qp.Err && from != qp.Reset {
					row, legal = modifyRow{}, true
				}
				required, optional := maskOf(row.required...), maskOf(row.optional...)
				try := func(mask roce.AttrMask, legal bool) {
					t.Helper()
					tried++
					q := m.at(from)
					before, _ := q.Query()
					err := q.Modify(m.attr(from, to), qp.AttrState|mask)
					after, _ := q.Query()
					switch {
					case legal && (err != nil || after.State != to):
						t.Errorf("%v %s with %v: %v, state %v", typ, edge, mask, err, after.State)
					case !legal && (!errors.Is(err, syscall.EINVAL) || after != before):
						t.Errorf("%v %s with %v: %v, want EINVAL; attributes %+v, before %+v", typ, edge, mask, err, after, before)
					}
					check(t, q.Close())
				}
				try(required, legal)
				if !legal {
					continue
				}
				for _, bit := range attrBits {
					switch {
					case required&bit != 0:
						try(required&^bit, false)
					case bit == qp.AttrPathMigState && optional&bit != 0:
						try(required|bit|qp.AttrAltPath, true) // needs a path to migrate to
					case optional&bit != 0:
						try(required|bit, true)
					default:
						try(required|bit, false)
					}
				}
			}
		}
	}
	t.Logf("%d transitions tried", tried)
}

// TestErrnoModifyValues: the values that modify_qp refuses, each with a change of
// state that is otherwise right.
func TestErrnoModifyValues(t *testing.T) {
	n := newNetwork(t)
	d, peer := n.device("10.0.0.1"), n.device("10.0.0.2")
	m := newModifier(t, d, peer, qp.RC)
	for _, c := range []struct {
		name     string
		from, to qp.State
		change   func(*roce.Attr)
		want     syscall.Errno
	}{
		{"port 2", qp.Reset, qp.Init, func(a *roce.Attr) { a.Port = 2 }, syscall.EINVAL},
		{"port 0", qp.Reset, qp.Init, func(a *roce.Attr) { a.Port = 0 }, syscall.EINVAL},
		{"pkey_index 5", qp.Reset, qp.Init, func(a *roce.Attr) { a.PKeyIndex = 5 }, syscall.EINVAL},
		{"access flags that no queue pair has", qp.Reset, qp.Init, func(a *roce.Attr) { a.Access = mr.HugeTLB }, syscall.EINVAL},
		{"all access flags", qp.Reset, qp.Init, func(a *roce.Attr) { a.Access = roce.DefaultQPAccess | mr.MWBind }, none},
		{"no address vector", qp.Init, qp.RTR, func(a *roce.Attr) { a.AV = nil }, syscall.EINVAL},
		{"max_dest_rd_atomic 252", qp.Init, qp.RTR, func(a *roce.Attr) { a.MaxDestRdAtomic = 252 }, none},
		{"max_dest_rd_atomic 253", qp.Init, qp.RTR, func(a *roce.Attr) { a.MaxDestRdAtomic = 253 }, syscall.EINVAL},
		{"dest_qp_num of 25 bits", qp.Init, qp.RTR, func(a *roce.Attr) { a.DestQPN = 1 << 24 }, syscall.EINVAL},
		{"rq_psn of 25 bits", qp.Init, qp.RTR, func(a *roce.Attr) { a.RQPSN = 1 << 24 }, syscall.EINVAL},
		{"path_mtu 0", qp.Init, qp.RTR, func(a *roce.Attr) { a.PathMTU = 0 }, syscall.EINVAL},
		{"path_mtu 6", qp.Init, qp.RTR, func(a *roce.Attr) { a.PathMTU = 6 }, syscall.EINVAL},
		{"path_mtu of the port", qp.Init, qp.RTR, func(a *roce.Attr) { a.PathMTU = d.Query().ActiveMTU }, none},
		{"min_rnr_timer 32", qp.Init, qp.RTR, func(a *roce.Attr) { a.MinRNRTimer = 32 }, syscall.EINVAL},
		{"max_rd_atomic 252", qp.RTR, qp.RTS, func(a *roce.Attr) { a.MaxRdAtomic = 252 }, none},
		{"max_rd_atomic 253", qp.RTR, qp.RTS, func(a *roce.Attr) { a.MaxRdAtomic = 253 }, syscall.EINVAL},
		{"timeout 31", qp.RTR, qp.RTS, func(a *roce.Attr) { a.Timeout = 31 }, none},
		{"timeout 32", qp.RTR, qp.RTS, func(a *roce.Attr) { a.Timeout = 32 }, syscall.EINVAL},
		{"retry_cnt 8", qp.RTR, qp.RTS, func(a *roce.Attr) { a.RetryCnt = 8 }, syscall.EINVAL},
		{"rnr_retry 8", qp.RTR, qp.RTS, func(a *roce.Attr) { a.RNRRetry = 8 }, syscall.EINVAL},
		{"sq_psn of 25 bits", qp.RTR, qp.RTS, func(a *roce.Attr) { a.SQPSN = 1 << 24 }, syscall.EINVAL},
	} {
		q := m.at(c.from)
		a := m.attr(c.from, c.to)
		c.change(a)
		row := modifyTable[qp.RC][fmt.Sprintf("%v→%v", c.from, c.to)]
		err := q.Modify(a, qp.AttrState|maskOf(row.required...))
		errnoRow{c.name, func() error { return err }, c.want}.check(t)
		if want := map[bool]qp.State{true: c.to, false: c.from}[c.want == none]; q.State() != want {
			t.Errorf("%s: state %v, want %v", c.name, q.State(), want)
		}
	}
	// A wrong current state, and a path MTU that the port does not have.
	a := m.attr(qp.Init, qp.RTS)
	wantErr(t, "CUR_STATE that is not", m.at(qp.RTR).Modify(a, qp.AttrState|qp.AttrCurState|maskOf(modifyTable[qp.RC]["RTR→RTS"].required...)), syscall.EINVAL)
	small := n.config("10.0.0.3")
	small.Ports[0] = smallPort{small.Ports[0]} // 1500
	m = newModifier(t, n.open(small), peer, qp.RC)
	a = m.attr(qp.Init, qp.RTR)
	a.PathMTU = bth.MTU4096
	wantErr(t, "path_mtu beyond the port's", m.at(qp.Init).Modify(a, qp.AttrState|maskOf(modifyTable[qp.RC]["INIT→RTR"].required...)), syscall.EINVAL)
}

package scenario_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/errno"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// none is the errno of success.
const none syscall.Errno = 0

// errnoRow is a call and the errno it must fail with. A row that differs from
// rxe is in docs/rxe-differences.md.
type errnoRow struct {
	name string
	call func() error
	want syscall.Errno
}

func (r errnoRow) check(t *testing.T) {
	t.Helper()
	err := r.call()
	if r.want == none {
		if err != nil {
			t.Errorf("%s: %v, want success", r.name, err)
		}
		return
	}
	if !errors.Is(err, r.want) {
		t.Errorf("%s: error %v, want %v", r.name, err, r.want)
	}
	var errno syscall.Errno
	if !errors.As(err, &errno) {
		t.Errorf("%s: %v wraps no errno", r.name, err)
	}
	var e *roce.Error
	if !errors.As(err, &e) || e.Op == "" || e.Detail == "" {
		t.Errorf("%s: %v is no roce.Error with an operation and a detail: %#v", r.name, err, e)
	}
	if strings.Count(err.Error(), "roce: ") != 1 {
		t.Errorf("%s: the prefix is not there once: %v", r.name, err)
	}
}

func runErrnoRows(t *testing.T, name string, rows []errnoRow) {
	t.Run(name, func(t *testing.T) {
		for _, r := range rows {
			r.check(t)
		}
	})
}

// second drops the result of a call.
func second[T any](_ T, err error) error { return err }

// TestErrno goes through the errors of the verbs, object by object.
// TestErrnoModify and TestErrnoDestroy go through the rest.
func TestErrno(t *testing.T) {
	n := newNetwork(t)
	d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
	errnoQueries(t, d)
	errnoMemory(t, d)
	errnoCQ(t, d, other)
	errnoQP(t, d, other)
	errnoAH(t, d, other)
	errnoPostSend(t, d, other)
	errnoPostRecv(t, d)
}

func errnoQueries(t *testing.T, d *roce.Device) {
	port := func(p int) func() error { return func() error { return second(d.QueryPort(p)) } }
	gid := func(p, i int) func() error { return func() error { return second(d.QueryGID(p, i)) } }
	gidEx := func(p, i int) func() error { return func() error { return second(d.QueryGIDEx(p, i)) } }
	pkey := func(p, i int) func() error { return func() error { return second(d.QueryPKey(p, i)) } }
	runErrnoRows(t, "query", []errnoRow{
		{"query_port 1", port(1), none},
		{"query_port 0", port(0), syscall.EINVAL},
		{"query_port 2", port(2), syscall.EINVAL},
		{"query_gid 0", gid(1, 0), none},
		{"query_gid of an empty index", gid(1, 7), none},
		{"query_gid beyond the table", gid(1, 1024), syscall.EINVAL},
		{"query_gid of port 2", gid(2, 0), syscall.EINVAL},
		{"query_gid_ex 0", gidEx(1, 0), none},
		{"query_gid_ex of an empty index", gidEx(1, 7), errno.ENODATA},
		{"query_gid_ex beyond the table", gidEx(1, 1024), syscall.EINVAL},
		{"query_pkey 0", pkey(1, 0), none},
		{"query_pkey 1", pkey(1, 1), syscall.ENOENT},
		{"query_pkey of port 2", pkey(2, 0), syscall.EINVAL},
		{"get_pkey_index 0xFFFF", func() error { return second(d.PKeyIndex(1, 0xFFFF)) }, none},
		{"get_pkey_index 0x1234", func() error { return second(d.PKeyIndex(1, 0x1234)) }, syscall.ENOENT},
	})
}

func errnoMemory(t *testing.T, d *roce.Device) {
	pd, buf := d.AllocPD(), make([]byte, 64)
	reg := func(b []byte, a roce.Access) func() error {
		return func() error {
			m, err := pd.RegMR(b, a)
			if err == nil {
				err = m.Close()
			}
			return err
		}
	}
	runErrnoRows(t, "reg_mr", []errnoRow{
		{"read only", reg(buf, 0), none},
		{"REMOTE_READ", reg(buf, roce.RemoteRead), none},
		{"everything", reg(buf, allRights|mr.MWBind|mr.FlushGlobal|mr.RelaxedOrdering), none},
		{"REMOTE_WRITE without LOCAL_WRITE", reg(buf, roce.RemoteWrite), syscall.EINVAL},
		{"REMOTE_ATOMIC without LOCAL_WRITE", reg(buf, roce.RemoteAtomic), syscall.EINVAL},
		{"no memory", reg(nil, roce.LocalWrite), syscall.EINVAL},
		{"unknown flag", reg(buf, 1<<15), syscall.EINVAL},
		{"optional flags", reg(buf, 0x3FF<<20), none},
		{"ZERO_BASED", reg(buf, roce.ZeroBased), none},
		{"ON_DEMAND", reg(buf, mr.OnDemand), syscall.EOPNOTSUPP},
		{"HUGETLB", reg(buf, mr.HugeTLB), syscall.EOPNOTSUPP},
		{"FLUSH_PERSISTENT of ordinary memory", reg(buf, roce.LocalWrite|mr.FlushPersistent), syscall.EINVAL},
		{"address that wraps", func() error { return second(pd.RegMRIova(buf, 1<<64-63, 0)) }, syscall.EINVAL},
		{"address that ends at the top", func() error { return second(pd.RegMRIova(buf, 1<<64-65, 0)) }, none},
	})
}

func errnoCQ(t *testing.T, d, other *roce.Device) {
	create := func(n int) func() error { return func() error { return second(d.CreateCQ(n)) } }
	config := func(c roce.CQConfig) func() error { return func() error { return second(d.CreateCQWith(c)) } }
	q, channel, foreign := ok(d.CreateCQ(10))(t), ok(d.CreateCompChannel())(t), ok(other.CreateCompChannel())(t)
	armed := ok(d.CreateCQWith(roce.CQConfig{Entries: 1, Channel: channel}))(t)
	runErrnoRows(t, "cq", []errnoRow{
		{"create_cq 1", create(1), none},
		{"create_cq 0", create(0), syscall.EINVAL},
		{"create_cq -1", create(-1), syscall.EINVAL},
		{"create_cq max+1", create(d.Query().MaxCQE + 1), syscall.EINVAL},
		{"create_cq on vector 1 of 1", config(roce.CQConfig{Entries: 1, Shard: 1}), syscall.EINVAL},
		{"create_cq on vector -1", config(roce.CQConfig{Entries: 1, Shard: -1}), syscall.EINVAL},
		{"create_cq on another device's channel", config(roce.CQConfig{Entries: 1, Channel: foreign}), syscall.EINVAL},
		{"resize_cq 1000", func() error { return q.Resize(1000) }, none},
		{"resize_cq 0", func() error { return q.Resize(0) }, syscall.EINVAL},
		{"resize_cq max+1", func() error { return q.Resize(cq.MaxEntries + 1) }, syscall.EINVAL},
		{"req_notify_cq", func() error { return armed.RequestNotify(true) }, none},
		{"req_notify_cq without a channel", func() error { return q.RequestNotify(false) }, syscall.EINVAL},
		{"destroy_comp_channel in use", channel.Close, syscall.EBUSY},
	})
}

func errnoQP(t *testing.T, d, other *roce.Device) {
	pd, q, foreign := d.AllocPD(), ok(d.CreateCQ(10))(t), ok(other.CreateCQ(10))(t)
	attr := d.Query()
	create := func(c roce.QPConfig) func() error { return func() error { return second(pd.CreateQP(c)) } }
	caps := func(c roce.Caps) func() error { return create(roce.QPConfig{SendCQ: q, Caps: c}) }
	typ := func(typ qp.Type) func() error { return create(roce.QPConfig{Type: typ, SendCQ: q}) }
	runErrnoRows(t, "create_qp", []errnoRow{
		{"RC", typ(qp.RC), none}, {"UC", typ(qp.UC), none}, {"UD", typ(qp.UD), none},
		{"GSI", typ(qp.GSI), syscall.EINVAL},
		{"RAW_PACKET", typ(8), syscall.EOPNOTSUPP},
		{"DRIVER", typ(255), syscall.EOPNOTSUPP},
		{"no completion queue", create(roce.QPConfig{}), syscall.EINVAL},
		{"another device's queue", create(roce.QPConfig{SendCQ: foreign}), syscall.EINVAL},
		{"another device's receive queue", create(roce.QPConfig{SendCQ: q, RecvCQ: foreign}), syscall.EINVAL},
		{"no queues at all", caps(roce.Caps{MaxSendSGE: 1}), none},
		{"largest", caps(roce.Caps{MaxSendWR: 10, MaxRecvWR: 10, MaxSendSGE: attr.MaxSGE, MaxRecvSGE: attr.MaxSGE, MaxInlineData: attr.MaxInline}), none},
		{"max_send_wr", caps(roce.Caps{MaxSendWR: attr.MaxQPWR + 1}), syscall.EINVAL},
		{"max_recv_wr", caps(roce.Caps{MaxRecvWR: attr.MaxQPWR + 1}), syscall.EINVAL},
		{"max_send_sge", caps(roce.Caps{MaxSendSGE: attr.MaxSGE + 1}), syscall.EINVAL},
		{"max_recv_sge", caps(roce.Caps{MaxRecvSGE: attr.MaxSGE + 1}), syscall.EINVAL},
		{"max_inline_data", caps(roce.Caps{MaxInlineData: attr.MaxInline + 1}), syscall.EINVAL},
		{"negative sizes", caps(roce.Caps{MaxSendWR: -1}), syscall.EINVAL},
	})
}

func errnoAH(t *testing.T, d, other *roce.Device) {
	dst := other.GIDs()[0]
	create := func(a roce.AHAttr) func() error {
		return func() error { return second(d.CreateAH(context.Background(), a)) }
	}
	runErrnoRows(t, "create_ah", []errnoRow{
		{"good", create(roce.AHAttr{DGID: dst}), none},
		{"no GRH", create(roce.AHAttr{}), syscall.EINVAL},
		{"port 2", create(roce.AHAttr{DGID: dst, Port: 2}), syscall.EINVAL},
		{"empty source index", create(roce.AHAttr{DGID: dst, SGIDIndex: 1}), errno.ENODATA},
		{"source index beyond the table", create(roce.AHAttr{DGID: dst, SGIDIndex: 5000}), errno.ENODATA},
		{"negative source index", create(roce.AHAttr{DGID: dst, SGIDIndex: -1}), errno.ENODATA},
		{"another IP version", create(roce.AHAttr{DGID: bth.GID{0: 0xFD, 15: 1}}), syscall.EINVAL},
	})
}

func errnoPostSend(t *testing.T, d, other *roce.Device) {
	var rows []errnoRow
	for _, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		m := newModifier(t, d, other, typ)
		// States.
		for _, s := range []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.SQE, qp.Err} {
			if s == qp.SQE && typ == qp.RC {
				continue // has none
			}
			q := m.at(s)
			want := none
			if s < qp.RTS {
				want = syscall.EINVAL
			}
			rows = append(rows, errnoRow{fmt.Sprintf("%v in %v", typ, s), func() error { return q.PostSend(m.send(1)) }, want})
		}
		// Operations.
		allowed := map[qp.Type][]roce.Opcode{
			qp.RC: {roce.Write, roce.WriteImm, roce.Send, roce.SendImm, roce.Read, roce.CompareSwap, roce.FetchAdd, roce.SendInv,
				qp.Flush, qp.AtomicWrite},
			qp.UC: {roce.Write, roce.WriteImm, roce.Send, roce.SendImm},
			qp.UD: {roce.Send, roce.SendImm},
		}[typ]
		ops := []roce.Opcode{roce.Write, roce.WriteImm, roce.Send, roce.SendImm, roce.Read, roce.CompareSwap, roce.FetchAdd, roce.SendInv,
			qp.Flush, qp.AtomicWrite, 10, 11, 12, 13, 255}
		for _, op := range ops {
			want := syscall.EINVAL
			for _, a := range allowed {
				if a == op {
					want = none
				}
			}
			rows = append(rows, errnoRow{fmt.Sprintf("%v on %v", op, typ), func() error {
				wr := m.send(8)
				wr.Opcode = op
				if op == qp.Flush {
					*wr = roce.SendWR{Opcode: op, FlushType: bth.FlushGlobal, Length: 8}
				}
				return m.at(qp.RTS).PostSend(wr)
			}, want})
		}
		rows = append(rows,
			errnoRow{fmt.Sprintf("unknown operation on %v", typ), func() error {
				return m.at(qp.RTS).PostSend(&roce.SendWR{Opcode: 200, AH: m.ah})
			}, syscall.EINVAL},
			errnoRow{fmt.Sprintf("too many elements on %v", typ), func() error {
				return m.at(qp.RTS).PostSend(&roce.SendWR{Opcode: roce.Send, SG: make([]roce.SGE, 3), AH: m.ah})
			}, syscall.EINVAL},
			errnoRow{fmt.Sprintf("too much inline on %v", typ), func() error {
				return m.at(qp.RTS).PostSend(&roce.SendWR{Opcode: roce.Send, Inline: make([]byte, 65), AH: m.ah})
			}, syscall.EINVAL},
			errnoRow{fmt.Sprintf("bad key on %v", typ), func() error { // found later
				wr := m.send(8)
				wr.SG[0].LKey++
				return m.at(qp.RTS).PostSend(wr)
			}, none},
			errnoRow{fmt.Sprintf("full queue on %v", typ), func() error {
				q := m.at(qp.SQD) // starts nothing
				for range m.caps().MaxSendWR {
					if err := q.PostSend(m.send(1)); err != nil {
						return err
					}
				}
				return q.PostSend(m.send(1))
			}, syscall.ENOMEM},
		)
	}
	rc, ud := newModifier(t, d, other, qp.RC), newModifier(t, d, other, qp.UD)
	post := func(m *modifier, change func(*roce.SendWR)) func() error {
		return func() error {
			wr := m.send(8)
			change(wr)
			return m.at(qp.RTS).PostSend(wr)
		}
	}
	rows = append(rows, []errnoRow{
		{"longer than 2^31", post(rc, func(wr *roce.SendWR) { wr.SG = []roce.SGE{{Length: 1 << 31}, {Length: 1}} }), syscall.EINVAL},
		{"atomic of 4 bytes", post(rc, func(wr *roce.SendWR) { wr.Opcode, wr.SG[0].Length = roce.FetchAdd, 4 }), syscall.EINVAL},
		{"atomic of 16 bytes", post(rc, func(wr *roce.SendWR) { wr.Opcode, wr.SG[0].Length = roce.FetchAdd, 16 }), syscall.EINVAL},
		{"atomic at an odd address", post(rc, func(wr *roce.SendWR) { wr.Opcode, wr.RemoteAddr = roce.CompareSwap, 4 }), syscall.EINVAL},
		{"READ inline", post(rc, func(wr *roce.SendWR) { wr.Opcode, wr.SG, wr.Inline = roce.Read, nil, make([]byte, 8) }), syscall.EINVAL},
		{"inline and elements", post(rc, func(wr *roce.SendWR) { wr.Inline = make([]byte, 8) }), syscall.EINVAL},
		{"UD without an address handle", post(ud, func(wr *roce.SendWR) { wr.AH = nil }), syscall.EINVAL},
		{"UD to a QPN of 25 bits", post(ud, func(wr *roce.SendWR) { wr.RemoteQPN = 1 << 24 }), syscall.EINVAL},
		{"UD beyond the MTU", post(ud, func(wr *roce.SendWR) { wr.SG[0].Length = 4097 }), syscall.EINVAL},
	}...)
	runErrnoRows(t, "post_send", rows)
}

func errnoPostRecv(t *testing.T, d *roce.Device) {
	m := newModifier(t, d, d, qp.RC)
	var rows []errnoRow
	for _, s := range []qp.State{qp.Reset, qp.Init, qp.RTR, qp.RTS, qp.SQD, qp.Err} {
		q, want := m.at(s), none
		if s == qp.Reset {
			want = syscall.EINVAL
		}
		rows = append(rows, errnoRow{fmt.Sprintf("in %v", s), func() error { return q.PostRecv(&roce.RecvWR{}) }, want})
	}
	srq := ok(m.pd.CreateSRQ(roce.SRQConfig{MaxWR: 4}))(t)
	shared := ok(m.pd.CreateQP(roce.QPConfig{SendCQ: m.cq, SRQ: srq}))(t)
	check(t, shared.Init(0, 0))
	rows = append(rows, []errnoRow{
		{"too many elements", func() error { return m.at(qp.Init).PostRecv(&roce.RecvWR{SG: make([]roce.SGE, 3)}) }, syscall.EINVAL},
		{"bad key", func() error { return m.at(qp.Init).PostRecv(&roce.RecvWR{SG: []roce.SGE{{Length: 8, LKey: 77}}}) }, none},
		{"longer than 2^31", func() error {
			return m.at(qp.Init).PostRecv(&roce.RecvWR{SG: []roce.SGE{{Length: 1 << 31}, {Length: 1}}})
		}, syscall.EINVAL},
		{"full queue", func() error {
			q := m.at(qp.Init)
			for range m.caps().MaxRecvWR {
				if err := q.PostRecv(&roce.RecvWR{}); err != nil {
					return err
				}
			}
			return q.PostRecv(&roce.RecvWR{})
		}, syscall.ENOMEM},
		{"with a shared receive queue", func() error { return shared.PostRecv(&roce.RecvWR{}) }, syscall.EINVAL},
		{"a shared receive queue: too many elements", func() error { return srq.PostRecv(&roce.RecvWR{SG: make([]roce.SGE, 2)}) }, syscall.EINVAL},
		{"a shared receive queue: full", func() error {
			for range 9 {
				if err := srq.PostRecv(&roce.RecvWR{}); err != nil {
					return err
				}
			}
			return nil
		}, syscall.ENOMEM},
	}...)
	runErrnoRows(t, "post_recv", rows)
}

// family has one object of every kind, which depend on each other.
type family struct {
	names []string
	close map[string]func() error
	uses  map[string][]string // the objects that an object keeps in use
}

func newFamily(t *testing.T, d *roce.Device) *family {
	t.Helper()
	pd := d.AllocPD()
	channel := ok(d.CreateCompChannel())(t)
	send := ok(d.CreateCQWith(roce.CQConfig{Entries: 4, Channel: channel}))(t)
	recv := ok(d.CreateCQ(4))(t)
	m := ok(pd.RegMR(make([]byte, 8), 0))(t)
	srq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 4}))(t)
	q := ok(pd.CreateQP(roce.QPConfig{SendCQ: send, RecvCQ: recv, SRQ: srq, Caps: roce.Caps{MaxSendWR: 1}}))(t)
	mw := ok(pd.AllocMW(roce.MWType2))(t)
	fast := ok(pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(t)
	xrcd := ok(d.OpenXRCD(roce.XRCDConfig{}))(t)
	xsrq := ok(pd.CreateSRQ(roce.SRQConfig{MaxWR: 4, XRCD: xrcd, CQ: recv}))(t)
	target := ok(xrcd.CreateQP(roce.QPConfig{}))(t)
	return &family{
		names: []string{"pd", "channel", "send cq", "recv cq", "mr", "srq", "qp", "mw", "fast mr", "xrcd", "xrc srq", "target"},
		close: map[string]func() error{"pd": pd.Close, "channel": channel.Close, "send cq": send.Close, "recv cq": recv.Close,
			"mr": m.Close, "srq": srq.Close, "qp": q.Close, "mw": mw.Close, "fast mr": fast.Close, "xrcd": xrcd.Close,
			"xrc srq": xsrq.Close, "target": target.Close},
		uses: map[string][]string{"qp": {"pd", "send cq", "recv cq", "srq"}, "mr": {"pd"}, "srq": {"pd"}, "send cq": {"channel"},
			"mw": {"pd"}, "fast mr": {"pd"}, "xrc srq": {"pd", "xrcd", "recv cq"}, "target": {"xrcd"}},
	}
}

// TestErrnoDestroy closes objects in any order: closing an object in use is EBUSY and changes nothing, and closing a
// closed one fails.
func TestErrnoDestroy(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	orders := 2000
	if testing.Short() || raceEnabled {
		orders = 200
	}
	for n := range orders {
		f := newFamily(t, d)
		order := rand.New(rand.NewPCG(uint64(n), 2)).Perm(len(f.names))
		closed := map[string]bool{}
		busy := func(name string) bool {
			for user, uses := range f.uses {
				for _, u := range uses {
					if u == name && !closed[user] {
						return true
					}
				}
			}
			return false
		}
		for len(closed) < len(f.names) {
			for _, i := range order {
				name := f.names[i]
				err := f.close[name]()
				switch {
				case closed[name]:
					wantErr(t, "closing "+name+" again", err, roce.ErrClosed)
				case busy(name):
					wantErr(t, "closing "+name+" in use", err, syscall.EBUSY)
				case err != nil:
					t.Fatalf("order %v: closing %s: %v", order, name, err)
				default:
					closed[name] = true
				}
			}
		}
	}
}

package rxe

import (
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

func (n *Node) AllocPD() (verbs.Handle, error) { return n.made("alloc_pd") }

func (n *Node) DeallocPD(pd verbs.Handle) error { return n.do("dealloc_pd", arg{"pd", pd}) }

func ahArgs(a verbs.AH) []arg {
	return []arg{{"grh", !a.NoGRH}, {"dgid", a.DGID[:]}, {"sgid", a.SGIDIndex}, {"fl", a.FlowLabel}, {"tc", a.TrafficClass}, {"hop", a.HopLimit}}
}

func (n *Node) CreateAH(pd verbs.Handle, a verbs.AH) (verbs.Handle, error) {
	return n.made("create_ah", append(ahArgs(a), arg{"pd", pd}, arg{"port", a.Port})...)
}

func (n *Node) DestroyAH(ah verbs.Handle) error { return n.do("destroy_ah", arg{"ah", ah}) }

// Alloc gets memory in the guest.
func (n *Node) Alloc(size uint64) (uint64, error) {
	r := n.call("alloc", arg{"len", size})
	return r.num("addr"), r.failure()
}

// ReadMem reads memory in the guest.
func (n *Node) ReadMem(addr, size uint64) ([]byte, error) {
	r := n.call("mem_read", arg{"addr", addr}, arg{"len", size})
	return r.bytes("data"), r.failure()
}

// WriteMem writes memory in the guest.
func (n *Node) WriteMem(addr uint64, b []byte) error {
	return n.do("mem_write", arg{"addr", addr}, arg{"data", b})
}

func (n *Node) RegMR(pd verbs.Handle, addr, size uint64, access mr.Access) (verbs.MR, error) {
	return n.region(verbs.MR{Addr: addr, Len: size, Access: access},
		arg{"pd", pd}, arg{"addr", addr}, arg{"len", size}, arg{"access", access})
}

func (n *Node) RegMRIova(pd verbs.Handle, addr, size, iova uint64, access mr.Access) (verbs.MR, error) {
	return n.region(verbs.MR{Addr: iova, Len: size, Access: access},
		arg{"pd", pd}, arg{"addr", addr}, arg{"len", size}, arg{"access", access}, arg{"iova", iova})
}

func (n *Node) region(m verbs.MR, args ...arg) (verbs.MR, error) {
	r := n.call("reg_mr", args...)
	m.H, m.LKey, m.RKey = r.handle(), bth.LKey(r.num("lkey")), bth.RKey(r.num("rkey"))
	return m, r.failure()
}

func (n *Node) ReregMR(m verbs.MR, flags int, pd verbs.Handle, addr, size uint64, access mr.Access) (verbs.MR, error) {
	r := n.call("rereg_mr", arg{"mr", m.H}, arg{"flags", flags}, arg{"pd", pd}, arg{"addr", addr}, arg{"len", size}, arg{"access", access})
	m.LKey, m.RKey = bth.LKey(r.num("lkey")), bth.RKey(r.num("rkey"))
	if flags&verbs.ReregTranslation != 0 {
		m.Addr, m.Len = addr, size
	}
	if flags&verbs.ReregAccess != 0 {
		m.Access = access
	}
	return m, r.failure()
}

func (n *Node) DeregMR(m verbs.Handle) error { return n.do("dereg_mr", arg{"mr", m}) }

// AllocFastMR always fails: only users in the kernel have fast registration.
func (n *Node) AllocFastMR(verbs.Handle, int) (verbs.MR, error) {
	return verbs.MR{}, &verbs.Error{Side: n.side, Call: "alloc_mr", Errno: syscall.EOPNOTSUPP}
}

// MapFastMR always fails, too.
func (n *Node) MapFastMR(m verbs.MR, _, _ uint64) (verbs.MR, error) {
	return m, &verbs.Error{Side: n.side, Call: "map_mr_sg", Errno: syscall.EOPNOTSUPP}
}

// RegIndirect always fails: rxe has no indirect regions.
func (n *Node) RegIndirect(verbs.Handle, []verbs.Part, uint64, uint64, mr.Access) (verbs.MR, error) {
	return verbs.MR{}, &verbs.Error{Side: n.side, Call: "create_mkey", Errno: syscall.EOPNOTSUPP}
}

func (n *Node) AllocMW(pd verbs.Handle, typ int) (verbs.MW, error) {
	r := n.call("alloc_mw", arg{"pd", pd}, arg{"type", typ})
	return verbs.MW{H: r.handle(), RKey: bth.RKey(r.num("rkey"))}, r.failure()
}

func (n *Node) DeallocMW(mw verbs.Handle) error { return n.do("dealloc_mw", arg{"mw", mw}) }

func (n *Node) BindMW(q, mw verbs.Handle, b verbs.Bind, id uint64, flags qp.SendFlags) (bth.RKey, error) {
	r := n.call("bind_mw", arg{"qp", q}, arg{"mw", mw}, arg{"mr", b.MR}, arg{"addr", b.Addr}, arg{"len", b.Len},
		arg{"access", b.Access}, arg{"id", id}, arg{"flags", flags})
	return bth.RKey(r.num("rkey")), r.failure()
}

// sendOps are the operations for which an extended queue pair is created (enum
// ibv_qp_create_send_ops_flags): all for which libibverbs 44 has an ibv_wr_* call.
var sendOps = map[qp.Type]int{
	qp.RC: 1<<10 - 1,   // WRITE to SEND_WITH_INV
	qp.UC: 1<<4 - 1,    // WRITE and SEND, with and without immediate data
	qp.UD: 1<<2 | 1<<3, // SEND, with and without immediate data
}

const (
	flushOp       = 1 << 11
	atomicWriteOp = 1 << 12
)

// CreateQP calls ibv_create_qp or, for an extended queue pair, ibv_create_qp_ex.
func (n *Node) CreateQP(i verbs.QPInit) (verbs.QP, error) {
	ops := 0
	if i.Extended {
		ops = sendOps[i.Type]
		if n.offers&verbs.HasAtomicWrite != 0 && i.Type == qp.RC {
			ops |= atomicWriteOp
		}
		if n.offers&verbs.HasFlushPost != 0 && i.Type == qp.RC {
			ops |= flushOp
		}
	}
	r := n.call("create_qp", arg{"pd", i.PD}, arg{"type", i.Type}, arg{"scq", i.SendCQ}, arg{"rcq", i.RecvCQ}, arg{"srq", i.SRQ},
		arg{"xrcd", i.XRCD}, arg{"swr", uint32(i.Caps.MaxSendWR)}, arg{"rwr", uint32(i.Caps.MaxRecvWR)},
		arg{"ssge", uint32(i.Caps.MaxSendSGE)}, arg{"rsge", uint32(i.Caps.MaxRecvSGE)}, arg{"inline", uint32(i.Caps.MaxInlineData)},
		arg{"sigall", i.SignalAll}, arg{"ops", ops})
	return verbs.QP{H: r.handle(), QPN: bth.QPN(r.num("qpn")), Caps: caps(r)}, r.failure()
}

func caps(r *reply) qp.Caps {
	return qp.Caps{MaxSendWR: r.int("swr"), MaxRecvWR: r.int("rwr"), MaxSendSGE: r.int("ssge"), MaxRecvSGE: r.int("rsge"),
		MaxInlineData: r.int("inline")}
}

func (n *Node) ModifyQP(q verbs.Handle, a *verbs.QPAttr, mask qp.AttrMask) error {
	av := a.AV
	if mask&qp.AttrAltPath != 0 {
		av = a.Alt
	}
	args := append(ahArgs(av), arg{"qp", q}, arg{"mask", mask}, arg{"state", a.State}, arg{"cur", a.CurState}, arg{"mtu", a.PathMTU},
		arg{"mig", a.MigState}, arg{"qkey", a.QKey}, arg{"rqpsn", a.RQPSN}, arg{"sqpsn", a.SQPSN}, arg{"dqpn", a.DestQPN},
		arg{"access", a.Access}, arg{"pkey", a.PKeyIndex}, arg{"sqdnotify", a.SQDNotify}, arg{"rd", a.MaxRdAtomic},
		arg{"destrd", a.MaxDestRdAtomic}, arg{"minrnr", a.MinRNRTimer}, arg{"port", a.Port}, arg{"timeout", a.Timeout},
		arg{"retry", a.RetryCnt}, arg{"rnr", a.RNRRetry}, arg{"ahport", av.Port}, arg{"altport", a.Alt.Port}, arg{"alttimeout", a.AltTimeout})
	return n.do("modify_qp", args...)
}

func (n *Node) QueryQP(q verbs.Handle, mask qp.AttrMask) (verbs.QPAttr, qp.Caps, error) {
	r := n.call("query_qp", arg{"qp", q}, arg{"mask", mask})
	return verbs.QPAttr{
		State: qp.State(r.num("state")), CurState: qp.State(r.num("cur")), PathMTU: bth.MTU(r.num("mtu")),
		MigState: uint8(r.num("mig")), QKey: bth.QKey(r.num("qkey")), RQPSN: bth.PSN(r.num("rqpsn")), SQPSN: bth.PSN(r.num("sqpsn")),
		DestQPN: bth.QPN(r.num("dqpn")), Access: mr.Access(r.num("access")), PKeyIndex: uint16(r.num("pkey")),
		Draining: r.num("draining") != 0, MaxRdAtomic: uint8(r.num("rd")), MaxDestRdAtomic: uint8(r.num("destrd")),
		MinRNRTimer: bth.RNRTimer(r.num("minrnr")), Port: uint8(r.num("port")), Timeout: uint8(r.num("timeout")),
		RetryCnt: uint8(r.num("retry")), RNRRetry: uint8(r.num("rnr")),
	}, caps(r), r.failure()
}

func (n *Node) DestroyQP(q verbs.Handle) error { return n.do("destroy_qp", arg{"qp", q}) }

var _ verbs.Doorbell = (*Node)(nil)

// Doorbell makes the kernel process a send queue.
func (n *Node) Doorbell(q verbs.Handle) error { return n.do("doorbell", arg{"qp", q}) }

// AttachMcast calls ibv_attach_mcast. It also makes the guest's IP stack join the group.
func (n *Node) AttachMcast(q verbs.Handle, g bth.GID) error {
	if err := n.do("attach_mcast", arg{"qp", q}, arg{"gid", g[:]}); err != nil {
		return err
	}
	if !g.Is4() {
		return nil
	}
	return n.do("join", arg{"group", g.Addr().Unmap().String()}, arg{"netdev", netdev})
}

// netdev is the guest's interface.
const netdev = "eth0"

func (n *Node) DetachMcast(q verbs.Handle, g bth.GID) error {
	return n.do("detach_mcast", arg{"qp", q}, arg{"gid", g[:]})
}

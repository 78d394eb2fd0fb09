package rxe

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Node is a device context in the guest. Its methods are calls of libibverbs there.
type Node struct {
	client
	kernel string
	offers verbs.Feature
	index  int
	gid    bth.GID
}

var _ verbs.Node = (*Node)(nil)

// Open opens a device context: conn is a new connection to the agent. The Node uses the
// first IPv4 address in the GID table.
func Open(conn net.Conn, kernel string, offers verbs.Feature) (*Node, error) {
	n := &Node{client: client{conn: conn, in: bufio.NewReader(conn), side: "rxe"}, kernel: kernel, offers: offers}
	if err := n.findGID(); err != nil {
		conn.Close()
		return nil, err
	}
	return n, nil
}

// findGID finds the first IPv4 address in the GID table.
func (n *Node) findGID() error {
	r := n.call("query_gid_table", arg{"max", 64})
	if r.err != nil {
		return r.err
	}
	for i := 0; i+2 < len(r.keys); i += 3 {
		e := &reply{keys: r.keys[i : i+3], vals: r.vals[i : i+3]}
		if g := gid(e.bytes("gid")); g.Is4() {
			n.index, n.gid = e.int("index"), g
			return e.err
		}
	}
	return errors.New("rxe: no IPv4 address in the GID table")
}

func (n *Node) Label() string { return "rxe" }

func (n *Node) Kernel() string { return n.kernel }

func (n *Node) Offers() verbs.Feature { return n.offers }

func (n *Node) GID() (int, bth.GID) { return n.index, n.gid }

// Alternate returns no address: rxe does not support path migration.
func (n *Node) Alternate() (int, bth.GID) { return -1, bth.GID{} }

// Close closes the connection, at which the agent's process ends and the kernel destroys its
// objects.
func (n *Node) Close() error { return n.conn.Close() }

// CapFlags returns the capabilities of the device.
func (n *Node) CapFlags() (uint64, error) {
	r := n.call("query_device")
	return r.num("cap_flags"), r.failure()
}

func gid(b []byte) (g bth.GID) {
	copy(g[:], b)
	return g
}

func (n *Node) NextEvent(wait time.Duration) (verbs.Event, error) {
	r := n.call("get_event", arg{"ms", wait.Milliseconds()})
	return verbs.Event{Type: r.int("type"), Object: verbs.Handle(r.num("object")), Port: r.int("port")}, r.failure()
}

// Counter reads one of hw_counters.
func (n *Node) Counter(name string) (uint64, error) {
	r := n.call("counter", arg{"name", name})
	return r.num("value"), r.failure()
}

func (n *Node) CreateChannel() (verbs.Handle, error) { return n.made("create_channel") }

func (n *Node) DestroyChannel(c verbs.Handle) error {
	return n.do("destroy_channel", arg{"channel", c})
}

func (n *Node) CreateCQ(size int, channel verbs.Handle, vector int) (verbs.CQ, error) {
	r := n.call("create_cq", arg{"n", uint64(int64(size))}, arg{"channel", channel}, arg{"vector", uint64(int64(vector))})
	return verbs.CQ{H: r.handle(), Cap: r.int("cap")}, r.failure()
}

func (n *Node) ResizeCQ(c verbs.Handle, size int) (int, error) {
	r := n.call("resize_cq", arg{"cq", c}, arg{"n", uint64(int64(size))})
	return r.int("cap"), r.failure()
}

func (n *Node) DestroyCQ(c verbs.Handle) error { return n.do("destroy_cq", arg{"cq", c}) }

func (n *Node) ReqNotify(c verbs.Handle, solicited bool) error {
	return n.do("req_notify", arg{"cq", c}, arg{"solicited", solicited})
}

func (n *Node) CQEvent(channel verbs.Handle, wait time.Duration) (verbs.Handle, error) {
	r := n.call("get_cq_event", arg{"channel", channel}, arg{"ms", wait.Milliseconds()})
	return verbs.Handle(r.num("cq")), r.failure()
}

// Poll repeats ibv_poll_cq until it has max completions, or the time wait has passed.
func (n *Node) Poll(c verbs.Handle, max int, wait time.Duration) ([]cq.WC, error) {
	r := n.call("poll_cq", arg{"cq", c}, arg{"n", max}, arg{"ms", wait.Milliseconds()})
	if r.err != nil {
		return nil, r.err
	}
	var wcs []cq.WC
	for _, v := range r.vals {
		w, err := parseWC(v)
		if err != nil {
			return wcs, err
		}
		wcs = append(wcs, w)
	}
	return wcs, nil
}

func parseWC(s string) (w cq.WC, err error) {
	parts := strings.Split(s, ":")
	v := make([]uint64, 11)
	if len(parts) != len(v) {
		return w, fmt.Errorf("verbs agent: completion %q", s)
	}
	for i, p := range parts {
		if v[i], err = strconv.ParseUint(p, 10, 64); err != nil {
			return w, fmt.Errorf("verbs agent: completion %q: %v", s, err)
		}
	}
	w = cq.WC{ID: v[0], Status: cq.Status(v[1]), Opcode: cq.Opcode(v[2]), VendorErr: uint32(v[3]), ByteLen: uint32(v[4]),
		QPN: bth.QPN(v[6]), SrcQPN: bth.QPN(v[7]), Flags: cq.Flags(v[8]), PKeyIndex: uint16(v[9]), SLID: uint16(v[10])}
	if w.Flags&cq.WithInv != 0 {
		w.InvKey = bth.RKey(v[5])
	} else {
		w.Imm = uint32(v[5])
	}
	return w, nil
}

func (n *Node) OpenXRCD() (verbs.Handle, error) { return n.made("open_xrcd") }

func (n *Node) CreateSRQ(pd verbs.Handle, a verbs.SRQAttr) (verbs.Sink, error) {
	r := n.call("create_srq", arg{"pd", pd}, arg{"wr", uint32(a.MaxWR)}, arg{"sge", uint32(a.MaxSGE)}, arg{"limit", uint32(a.Limit)})
	return verbs.Sink{H: r.handle(), MaxWR: r.int("wr"), MaxSGE: r.int("sge")}, r.failure()
}

// CreateXRCSRQ always fails: rxe has no XRC domains.
func (n *Node) CreateXRCSRQ(_, _, _ verbs.Handle, _ verbs.SRQAttr) (verbs.Sink, error) {
	_, err := n.OpenXRCD()
	return verbs.Sink{}, err
}

func (n *Node) ModifySRQ(srq verbs.Handle, a verbs.SRQAttr, mask int) error {
	return n.do("modify_srq", arg{"srq", srq}, arg{"mask", mask}, arg{"wr", uint32(a.MaxWR)}, arg{"limit", uint32(a.Limit)})
}

func (n *Node) QuerySRQ(srq verbs.Handle) (verbs.SRQAttr, error) {
	r := n.call("query_srq", arg{"srq", srq})
	return verbs.SRQAttr{MaxWR: r.int("wr"), MaxSGE: r.int("sge"), Limit: r.int("limit")}, r.failure()
}

func (n *Node) DestroySRQ(srq verbs.Handle) error { return n.do("destroy_srq", arg{"srq", srq}) }

func (n *Node) PostSRQRecv(srq verbs.Handle, wrs ...verbs.RecvWR) error {
	return n.postRecv("srq", srq, wrs)
}

func (n *Node) PostRecv(q verbs.Handle, wrs ...verbs.RecvWR) error { return n.postRecv("qp", q, wrs) }

func (n *Node) postRecv(where string, h verbs.Handle, wrs []verbs.RecvWR) error {
	for i, wr := range wrs {
		args := append([]arg{{where, h}, {"id", wr.ID}, {"more", i < len(wrs)-1}}, sg(wr.SG)...)
		if err := n.do("post_recv", args...); err != nil {
			return err
		}
	}
	return nil
}

func sg(list []mr.SGE) (args []arg) {
	for _, s := range list {
		args = append(args, arg{"sg", fmt.Sprintf("%d:%d:%d", s.Addr, s.Length, s.LKey)})
	}
	return args
}

func (n *Node) PostSend(q verbs.Handle, wrs ...verbs.SendWR) error { return n.postSend(q, wrs, false) }

// PostSendEx posts by ibv_wr_start to ibv_wr_complete.
func (n *Node) PostSendEx(q verbs.Handle, wrs ...verbs.SendWR) error { return n.postSend(q, wrs, true) }

func (n *Node) postSend(q verbs.Handle, wrs []verbs.SendWR, extended bool) error {
	for i, wr := range wrs {
		args := append([]arg{{"qp", q}, {"id", wr.ID}, {"op", wr.Op}, {"flags", wr.Flags}, {"raddr", wr.RemoteAddr},
			{"rkey", wr.RKey}, {"imm", wr.Imm}, {"cmp", wr.CompareAdd}, {"swap", wr.Swap}, {"ah", wr.AH}, {"qpn", wr.QPN},
			{"qkey", wr.QKey}, {"srqn", wr.SRQN}, {"more", i < len(wrs)-1}, {"ex", extended}}, sg(wr.SG)...)
		if wr.Inline != nil {
			args = append(args, arg{"data", wr.Inline})
		}
		if wr.InvKey != 0 {
			args = append(args, arg{"inv", wr.InvKey})
		}
		if wr.Op == qp.Flush {
			args = append(args, arg{"flushlen", wr.FlushLength}, arg{"flushtype", wr.FlushType}, arg{"flushlevel", wr.FlushLevel})
		}
		if wr.MW != 0 {
			args = append(args, arg{"mw", wr.MW}, arg{"newkey", wr.NewKey}, arg{"mr", wr.Bind.MR}, arg{"maddr", wr.Bind.Addr},
				arg{"mlen", wr.Bind.Len}, arg{"maccess", wr.Bind.Access})
		}
		if err := n.do("post_send", args...); err != nil {
			return err
		}
	}
	return nil
}

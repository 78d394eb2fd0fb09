package roce

import (
	"slices"
	"syscall"

	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// XRCDConfig says how [Device.OpenXRCD] opens an XRC domain.
type XRCDConfig struct {
	// Shard is the one its target queue pairs and shared receive queues are of,
	// see [CQConfig].
	Shard int
}

// XRCD is an XRC domain (struct ibv_xrcd). It holds target queue pairs (type
// qp.XRCRecv), which receive, and the shared receive queues they receive for:
// the sender, a queue pair of type qp.XRCSend, names one of them in every work
// request ([SendWR].RemoteSRQN). So one connection from a node serves all that
// has a queue in the domain. Its methods may be called from any goroutine.
type XRCD struct {
	dev    *Device
	shard  *nic.Shard
	engine *qp.XRCD
	closed bool // changes with every shard locked
}

// OpenXRCD creates an XRC domain (ibv_open_xrcd without a file: it is shared by
// sharing the object). It fails with EINVAL when there is no such shard.
func (d *Device) OpenXRCD(c XRCDConfig) (*XRCD, error) {
	if c.Shard < 0 || c.Shard >= d.nic.Shards() {
		return nil, fail("open xrcd", syscall.EINVAL, "shard %d, the device has %d", c.Shard, d.nic.Shards())
	}
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	return &XRCD{dev: d, shard: d.nic.Shard(c.Shard), engine: qp.NewXRCD()}, nil
}

// CreateQP creates a target queue pair in state RESET (ibv_create_qp_ex with
// type IBV_QPT_XRC_RECV). It has no domain, no completion queues and nothing to
// post to; of the configuration only UserData counts. What the peer may do is
// what [QP.Init] says, with memory of the domain of the shared receive queue that
// it names. Receives complete into that queue's CQ, with the number of this
// queue pair as WC.QPN.
func (x *XRCD) CreateQP(c QPConfig) (*QP, error) {
	if c.Type != 0 && c.Type != qp.XRCRecv {
		return nil, fail("create qp", syscall.EINVAL, "a %v queue pair is not in an XRC domain: use PD.CreateQP", c.Type)
	}
	core := &QP{dev: x.dev, xrcd: x, userData: c.UserData}
	core.target = &target{core: core}
	return x.dev.createQP(core, x.shard, QPConfig{Type: qp.XRCRecv})
}

// target is an XRC target queue pair and the handles of it that are open. It changes with
// every shard locked.
type target struct {
	core    *QP // the queue pair itself, which no program has
	handles []*QP
}

// handle makes one more handle of an XRC target.
func (q *QP) handle() *QP {
	h := &QP{dev: q.dev, xrcd: q.xrcd, userData: q.userData, target: q.target}
	h.nic.Alias(&q.nic, h)
	q.target.handles = append(q.target.handles, h)
	return h
}

// leave takes a handle away and reports whether it was the last.
func (t *target) leave(h *QP) (last bool) {
	t.handles = slices.DeleteFunc(t.handles, func(o *QP) bool { return o == h })
	return len(t.handles) == 0
}

// OpenQP finds a target queue pair of the domain by its number (ibv_open_qp), so
// that a part of the program that did not create it can use it. It returns a handle of its
// own, to be closed like the first: the queue pair is destroyed with its last handle. An event
// of the queue pair is raised once for each handle. It
// fails with EINVAL when the domain has no such queue pair.
func (x *XRCD) OpenQP(n QPN) (*QP, error) {
	d := x.dev
	d.nic.Lock()
	defer d.nic.Unlock()
	if d.nic.Closed() || x.closed {
		return nil, ErrClosed
	}
	found := d.nic.FindQP(n)
	if found == nil {
		return nil, fail("open qp", syscall.EINVAL, "the XRC domain has no queue pair %v", n)
	}
	q := found.Owner().(*QP)
	if q.xrcd != x {
		return nil, fail("open qp", syscall.EINVAL, "the XRC domain has no queue pair %v", n)
	}
	return q.handle(), nil
}

// Close frees the domain (ibv_close_xrcd). It fails with EBUSY while queue pairs
// or shared receive queues are in it.
func (x *XRCD) Close() error {
	x.dev.nic.Lock()
	defer x.dev.nic.Unlock()
	if x.closed {
		return ErrClosed
	}
	if err := x.engine.Close(); err != nil {
		return err
	}
	x.closed = true
	return nil
}

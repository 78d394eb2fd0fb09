package roce

import (
	"slices"
	"syscall"

	"github.com/goroce/roce/internal/nic"
	"github.com/goroce/roce/qp"
)

// XRCDConfig configures [Device.OpenXRCD].
type XRCDConfig struct {
	// Shard is the shard of its target queue pairs and shared receive queues,
	// see [CQConfig].
	Shard int
}

// XRCD is an XRC domain (struct ibv_xrcd). It has target queue pairs (type
// qp.XRCRecv) and shared receive queues. The sender, a queue pair of type
// qp.XRCSend, names a shared receive queue in every work request
// ([SendWR].RemoteSRQN). So one connection from a node serves all receivers
// with a queue in the domain. Its methods may be called from any goroutine.
type XRCD struct {
	dev    *Device
	shard  *nic.Shard
	engine *qp.XRCD
	closed bool // changes with every shard locked
}

// OpenXRCD creates an XRC domain (ibv_open_xrcd without a file: parts of a
// program share the object). It fails with EINVAL if the shard does not exist.
func (d *Device) OpenXRCD(c XRCDConfig) (*XRCD, error) {
	if c.Shard < 0 || c.Shard >= d.nic.Shards() {
		return nil, fail("open xrcd", syscall.EINVAL, "shard %d, the device has %d", c.Shard, d.nic.Shards())
	}
	if d.nic.Closing() {
		return nil, ErrClosed
	}
	return &XRCD{dev: d, shard: d.nic.Shard(c.Shard), engine: qp.NewXRCD()}, nil
}

// CreateQP creates a target queue pair in state RESET (ibv_create_qp_ex with type
// IBV_QPT_XRC_RECV). The target has no protection domain, no completion queues
// and no queues for posts; CreateQP uses only UserData of the configuration. The
// peer has the rights of [QP.Init] on memory in the protection domain of the
// shared receive queue that it names. Receives complete into the CQ of that
// queue, with the number of the target as WC.QPN.
func (x *XRCD) CreateQP(c QPConfig) (*QP, error) {
	if c.Type != 0 && c.Type != qp.XRCRecv {
		return nil, fail("create qp", syscall.EINVAL, "a %v queue pair is not in an XRC domain: use PD.CreateQP", c.Type)
	}
	core := &QP{dev: x.dev, xrcd: x, userData: c.UserData}
	core.target = &target{core: core}
	return x.dev.createQP(core, x.shard, QPConfig{Type: qp.XRCRecv})
}

// target is an XRC target queue pair and its open handles. It changes with every shard
// locked.
type target struct {
	core    *QP // the queue pair itself; programs have handles only
	handles []*QP
}

// handle makes one more handle of an XRC target.
func (q *QP) handle() *QP {
	h := &QP{dev: q.dev, xrcd: q.xrcd, userData: q.userData, target: q.target}
	h.nic.Alias(&q.nic, h)
	q.target.handles = append(q.target.handles, h)
	return h
}

// leave removes a handle and reports whether it was the last.
func (t *target) leave(h *QP) (last bool) {
	t.handles = slices.DeleteFunc(t.handles, func(o *QP) bool { return o == h })
	return len(t.handles) == 0
}

// OpenQP finds a target queue pair of the domain by its number (ibv_open_qp), so that a part
// of the program that did not create it can use it. It returns a separate handle, which must
// be closed like the first: closing the last handle destroys the queue pair. An event of the
// queue pair is raised once for each handle. OpenQP fails with EINVAL if the domain has no
// such queue pair.
func (x *XRCD) OpenQP(n QPN) (*QP, error) {
	d := x.dev
	d.nic.Lock()
	defer d.nic.Unlock()
	if d.nic.Closed() || x.closed {
		return nil, ErrClosed
	}
	if found := d.nic.FindQP(n); found != nil {
		if q := found.Owner().(*QP); q.xrcd == x {
			return q.handle(), nil
		}
	}
	return nil, fail("open qp", syscall.EINVAL, "the XRC domain has no queue pair %v", n)
}

// Close frees the domain (ibv_close_xrcd). It fails with EBUSY while it has
// queue pairs or shared receive queues.
func (x *XRCD) Close() error { return x.dev.closeOnce(&x.closed, x.engine.Close) }

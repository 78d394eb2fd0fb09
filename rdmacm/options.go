package rdmacm

import (
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce/qp"
)

// SetTOS sets the IP TOS of the connection (RDMA_OPTION_ID_TOS). It takes effect
// with the next call that resolves the route.
func (id *ID) SetTOS(tos uint8) error {
	return id.set("set tos", nil, func(o *options) { o.tos = tos })
}

// SetReuseAddr allows the port to be shared with other IDs that allow it and do
// not listen (RDMA_OPTION_ID_REUSEADDR). It fails with EINVAL if on is false
// and the ID is bound, and if the ID listens.
func (id *ID) SetReuseAddr(on bool) error {
	allowed := []state{idle}
	if on {
		allowed = []state{idle, addrQuery, addrResolved, routeQuery, routeResolved, connect, disconnect, addrBound}
	}
	return id.set("set reuseaddr", allowed, func(o *options) { o.reuse = on })
}

// SetAFOnly makes "::" mean IPv6 only, so that addresses of different families
// do not conflict (RDMA_OPTION_ID_AFONLY). It fails with EINVAL once the ID
// listens or resolves.
func (id *ID) SetAFOnly(on bool) error {
	return id.set("set afonly", []state{idle, addrBound}, func(o *options) { o.afOnly = on })
}

// SetAckTimeout sets the local ACK timeout of the connection, a code of 4.096
// µs·2^t up to 31 (RDMA_OPTION_ID_ACK_TIMEOUT); 0: that of the path. It fails with
// EINVAL for other than RC.
func (id *ID) SetAckTimeout(t uint8) error {
	if id.QPType() != qp.RC || t > 31 {
		return id.fail("set ack timeout", syscall.EINVAL, "timeout %d for %v: only RC has it, at most 31", t, id.QPType())
	}
	return id.set("set ack timeout", nil, func(o *options) { o.ackTimeout = t })
}

// SetRedial makes Connect repeat a refused request for a time d, if the peer has no listener at the
// port (RejectInvalidServiceID) and the queue pair is the program's (ConnParam.QPN). The kernel does
// not repeat requests. But a client of the kernel takes so long to set up a connection that a server
// which stops listening for a moment, like perftest's, listens again by then.
func (id *ID) SetRedial(d time.Duration) error {
	return id.set("set redial", nil, func(o *options) { o.redial = d })
}

// SetQPType sets the type of a queue pair that the program makes itself: RC or, for an ID of port space
// [IB], also UC, XRCSend to connect, and XRCRecv to listen for requests of XRCSend only. CreateQP makes
// RC and UC without this call, and no others. It fails with EINVAL for other types, and once the ID
// connects or listens.
func (id *ID) SetQPType(t qp.Type) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if t != id.qpType && (id.ps != IB || !slices.Contains([]qp.Type{qp.RC, qp.UC, qp.XRCSend, qp.XRCRecv}, t)) {
		return id.fail("set qp type", syscall.EINVAL, "%v in %v", t, id.ps)
	}
	if id.state == connect || id.state == listening || id.state > addrBound {
		return id.stateError("set qp type")
	}
	id.qpType = t
	return nil
}

// set changes an option if the state is in allowed; nil allows all states.
func (id *ID) set(op string, allowed []state, f func(*options)) error {
	id.mu.Lock()
	defer id.mu.Unlock()
	if id.state == destroying || allowed != nil && !slices.Contains(allowed, id.state) {
		return id.stateError(op)
	}
	f(&id.opts)
	if b := id.binding; b != nil {
		id.host.update(func() { b.reuse, b.afOnly = id.opts.reuse, id.opts.afOnly })
	}
	return nil
}

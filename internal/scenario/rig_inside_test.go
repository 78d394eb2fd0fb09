package scenario_test

import (
	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/inside"
)

// remembered returns how many connections, and how many paths to peers that connections
// use, a device still knows.
func remembered(d *roce.Device) (manager, ends, paths int) {
	c := inside.Agent(d).Census()
	return c.Manager, c.Conns, c.PathsInUse
}

// queuePairs returns how many queue pairs a device has.
func queuePairs(d *roce.Device) int {
	qps, _ := inside.NIC(d).Count()
	return qps
}

// objects counts what exists on a device.
type objects struct {
	qps, srqs, keys, groups                         int
	conns, queries, inquiries, listeners, pathUsers int
	watchers                                        int
}

// countObjects counts what exists on a device.
func countObjects(d *roce.Device) objects {
	a := inside.Agent(d).Census()
	o := objects{conns: a.Conns, queries: a.Queries, inquiries: a.Inquiries, listeners: a.Listeners, pathUsers: a.PathUsers, watchers: a.Watchers}
	n := inside.NIC(d)
	o.qps, o.groups = n.Count()
	n.Lock()
	defer n.Unlock()
	o.srqs, o.keys = inside.SRQs(d).Len(), inside.Keys(d).Len()
	return o
}

// setLimits lowers how many objects of a kind a device can have.
func setLimits(d *roce.Device, qps, srqs, regions, windows int) {
	n := inside.NIC(d)
	n.LimitQPs(qps)
	n.Lock()
	defer n.Unlock()
	inside.SRQs(d).SetMax(srqs)
	inside.Keys(d).SetLimits(regions, windows)
}

// unconfirm makes q a queue pair that waits for the first data of its connection.
func unconfirm(q *roce.QP) { inside.QP(q).OnData(q, func() {}) }

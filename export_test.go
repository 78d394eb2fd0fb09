package roce

import (
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
)

// Remembered returns how many connections, and how many ways to peers that
// connections rely on, the device still knows.
func (d *Device) Remembered() (manager, ends, ways int) {
	s := d.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range d.gsi.byKey {
		if w.users != 0 {
			ways++
		}
	}
	return d.gsi.manager.Len(), len(d.gsi.conns), ways
}

// Recognised returns how many frames the last batches of a device that gets whole ones
// had whose flow was known.
func (d *Device) Recognised() (n int) {
	d.lockAll()
	defer d.unlockAll()
	for _, s := range d.shards {
		for i := range s.frames {
			if s.frames[i].Env != nil {
				n++
			}
		}
	}
	return n
}

// QPs returns how many queue pairs exist.
func (d *Device) QPs() int {
	d.lockAll()
	defer d.unlockAll()
	return d.demux.qps.Len()
}

// WakePorts ends the sleep of whoever waits at a port.
func (d *Device) WakePorts() {
	for _, s := range d.shards {
		s.port.Wake()
	}
}

// ForgetFlows makes a device parse the next frames anew, whatever it has seen before.
func (d *Device) ForgetFlows() {
	d.lockAll()
	defer d.unlockAll()
	for _, s := range d.shards {
		s.flows = frame.Flows{}
	}
}

// Unconfirm makes q a queue pair that waits for the confirmation of its connection.
func (q *QP) Unconfirm() { q.unconfirmed = new(cm.Conn) }

// Unconfirmed reports whether q still waits for the confirmation of its connection.
func (q *QP) Unconfirmed() bool { return q.unconfirmed != nil }

// Census counts what exists on a device.
type Census struct {
	QPs, SRQs, Regions, Groups                      int
	Conns, Queries, Inquiries, Listeners, WaysInUse int
	Watchers                                        int
}

// Census counts what exists on the device.
func (d *Device) Census() Census {
	d.lockAll()
	defer d.unlockAll()
	c := Census{QPs: d.demux.qps.Len(), SRQs: d.srqs.Len(), Regions: d.mem.Len(), Groups: len(d.groups.byGID), Conns: len(d.gsi.conns),
		Queries: len(d.gsi.queries), Inquiries: len(d.gsi.asked), Listeners: len(d.gsi.listeners)}
	for _, w := range d.gsi.byKey {
		c.WaysInUse += w.users
	}
	d.watchers.mu.Lock()
	defer d.watchers.mu.Unlock()
	c.Watchers = len(d.watchers.list)
	return c
}

// SetLimits lowers how many objects of a kind the device can have.
func (d *Device) SetLimits(qps, srqs, regions, windows int) {
	d.lockAll()
	defer d.unlockAll()
	d.demux.qps.SetMax(qps)
	d.srqs.SetMax(srqs)
	d.mem.SetLimits(regions, windows)
}

// SetGone says that the network interface of the device was removed, or that it was not.
func (d *Device) SetGone(gone bool) { d.gone.Store(gone) }

// Notices returns how much the connection manager has to say that nobody has delivered.
func (d *Device) Notices() int {
	s := d.shards[0]
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.notices)
}

package scenario_test

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// The tests of reregistration are those of rdma-core's test_mr.py, by name.

// traffic sends a message from a to b, which has posted a receive, and checks the status at
// both ends.
func traffic(t testing.TB, a, b *peer, send, recv cq.Status) {
	t.Helper()
	a.post(roce.Send, 0, 8, nil, 0)
	a.waitFor(send)
	b.waitFor(recv)
}

func TestReregAddr(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		b.recv(0, 64) // has the old address, which is invalid after the reregistration
		key := b.mr.RKey()
		moved := make([]byte, 64)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregTranslation, Mem: moved}))
		if b.mr.RKey() != key || &b.mr.Bytes()[0] != &moved[0] || b.mr.Len() != 64 {
			t.Errorf("key %v, %d bytes", b.mr.RKey(), b.mr.Len())
		}
		traffic(t, a, b, cq.RemOpErr, cq.LocProtErr)
		restate(t, a, b)
		b.recv(0, 64)
		fill(a.buf, 1)
		traffic(t, a, b, cq.Success, cq.Success)
		if !bytes.Equal(moved[:8], a.buf[:8]) || !bytes.Equal(b.buf, make([]byte, 64)) {
			t.Error("the data is not in the new memory, or in the old")
		}
	})
}

func TestReregAccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregAccess, Access: roce.LocalWrite | roce.RemoteWrite}))
		a.post(roce.Write, 0, 8, b, 0)
		a.wait()
		a.post(roce.FetchAdd, 0, 8, b, 0) // the right to atomics is gone
		a.waitFor(cq.RemAccessErr)
		restate(t, a, b)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregAccess, Access: roce.LocalWrite}))
		a.post(roce.Write, 0, 8, b, 0)
		a.waitFor(cq.RemAccessErr)
		restate(t, a, b)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregAccess, Access: allRights}))
		a.post(roce.FetchAdd, 0, 8, b, 0)
		a.wait()
	})
}

func TestReregPD(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 64)
		other := b.dev.AllocPD()
		b.recv(0, 64)
		traffic(t, a, b, cq.Success, cq.Success)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregPD, PD: other}))
		wantErr(t, "domain with the region", other.Close(), syscall.EBUSY)
		b.recv(0, 64)
		traffic(t, a, b, cq.RemOpErr, cq.LocProtErr)
		restate(t, a, b)
		check(t, b.mr.Reregister(roce.MRChange{Change: roce.ReregPD, PD: b.pd}))
		check(t, other.Close())
		b.recv(0, 64)
		traffic(t, a, b, cq.Success, cq.Success)
	})
}

func TestReregErrno(t *testing.T) {
	n := newNetwork(t)
	d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
	pd := d.AllocPD()
	m := ok(pd.RegMR(make([]byte, 64), roce.LocalWrite))(t)
	closed := ok(pd.RegMR(make([]byte, 64), 0))(t)
	check(t, closed.Close())
	rereg := func(m *roce.MR, flags roce.Rereg, c roce.MRChange) func() error {
		return func() error { c.Change = flags; return m.Reregister(c) }
	}
	runErrnoRows(t, "rereg_mr", []errnoRow{
		{"access", rereg(m, roce.ReregAccess, roce.MRChange{Access: roce.LocalWrite}), none},
		{"no flags", rereg(m, 0, roce.MRChange{}), syscall.EINVAL},
		{"unknown flag", rereg(m, 8, roce.MRChange{}), syscall.EINVAL},
		{"access without its flag", rereg(m, roce.ReregTranslation, roce.MRChange{Mem: make([]byte, 8), Access: roce.LocalWrite}), syscall.EINVAL},
		{"no memory", rereg(m, roce.ReregTranslation, roce.MRChange{}), syscall.EINVAL},
		{"no domain", rereg(m, roce.ReregPD, roce.MRChange{}), syscall.EINVAL},
		{"domain of another device", rereg(m, roce.ReregPD, roce.MRChange{PD: other.AllocPD()}), syscall.EINVAL},
		{"REMOTE_WRITE without LOCAL_WRITE", rereg(m, roce.ReregAccess, roce.MRChange{Access: roce.RemoteWrite}), syscall.EINVAL},
		{"ON_DEMAND", rereg(m, roce.ReregAccess, roce.MRChange{Access: mr.OnDemand}), syscall.EOPNOTSUPP},
	})
	wantErr(t, "closed", closed.Reregister(roce.MRChange{Change: roce.ReregAccess}), roce.ErrClosed)
	// A refusal leaves everything as it was.
	if m.Len() != 64 || len(m.Bytes()) != 64 {
		t.Errorf("%d bytes after refusals", m.Len())
	}
}

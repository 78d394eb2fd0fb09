package scenario_test

import (
	"bytes"
	"encoding/binary"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
)

// at is a write or read of the first n bytes behind a key.
func at(p *peer, op roce.Opcode, key roce.RKey, addr uint64, n int) *roce.SendWR {
	p.next++
	return &roce.SendWR{ID: p.next, Opcode: op, Flags: roce.Signaled, SG: []roce.SGE{p.mr.SGE(0, n)}, RemoteAddr: addr, RKey: key}
}

// TestIndirectList: regions joined into one, for peers and for this side
// (mlx5's test_mkey list).
func TestIndirectList(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		x, y := []byte("....one.."), []byte("two......")
		mx, my := ok(b.pd.RegMR(x, allRights))(t), ok(b.pd.RegMR(y, allRights))(t)
		m := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: mx, Offset: 4, Length: 3}, {MR: my, Length: 3}}, IOVA: 0x5000}, allRights))(t)
		if m.Addr() != 0x5000 || m.Len() != 6 || !m.Valid() {
			t.Errorf("%d bytes at %#x", m.Len(), m.Addr())
		}
		check(t, a.qp.PostSend(at(a, roce.Read, m.RKey(), 0x5000, 6)))
		a.wait()
		if string(a.buf[:6]) != "onetwo" {
			t.Errorf("read %q", a.buf[:6])
		}
		copy(a.buf, "1234")
		check(t, a.qp.PostSend(at(a, roce.Write, m.RKey(), 0x5001, 4)))
		a.wait()
		if string(x) != "....o12.." || string(y) != "34o......" {
			t.Errorf("wrote %q and %q", x, y)
		}
		a.recv(100, 6) // gathered from it, on this side
		check(t, b.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{m.SGE(0, 6)}}))
		b.wait()
		a.wait()
		if string(a.buf[100:106]) != "o1234o" {
			t.Errorf("received %q", a.buf[100:106])
		}
		// A part in use cannot be closed; the rights are the common ones.
		wantErr(t, "close a part", mx.Close(), syscall.EBUSY)
		wantErr(t, "reregister a part", my.Reregister(roce.MRChange{Change: roce.ReregAccess}), syscall.EBUSY)
		check(t, a.qp.PostSend(at(a, roce.Read, m.RKey(), 0x5003, 4)))
		a.waitFor(cq.RemAccessErr)
		check(t, m.Invalidate())
		wantErr(t, "invalidate twice", m.Invalidate(), syscall.EINVAL)
		check(t, mx.Close())
		check(t, m.Close())
		check(t, my.Close())
	})
}

// named is a region in a type of the program.
type named struct {
	*roce.MR
	name string
}

// TestIndirectEmbedded: a part may be a type that embeds a region. Without a region in it, it is refused like nil.
func TestIndirectEmbedded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		part := named{ok(b.pd.RegMR([]byte("text"), allRights))(t), "name"}
		m := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: part, Length: 4}}}, allRights))(t)
		check(t, a.qp.PostSend(at(a, roce.Read, m.RKey(), m.Addr(), 4)))
		a.wait()
		if string(a.buf[:4]) != "text" {
			t.Errorf("read %q", a.buf[:4])
		}
		for _, none := range []roce.Region{named{}, &named{}, (*roce.NullMR)(nil)} {
			_, err := b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: none, Length: 4}}}, allRights)
			wantErr(t, "no region", err, syscall.EINVAL)
		}
	})
}

// TestIndirectInterleaved: a column of a matrix, and two interleaved regions
// (mlx5's test_mkey interleaved).
func TestIndirectInterleaved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		matrix := make([]byte, 100) // 10 rows of 10
		for i := range matrix {
			matrix[i] = byte(i)
		}
		m := ok(b.pd.RegMR(matrix, allRights))(t)
		column := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: m, Offset: 7, Length: 1, Stride: 10}}, Repeat: 10}, roce.RemoteRead))(t)
		check(t, a.qp.PostSend(at(a, roce.Read, column.RKey(), 0, 10)))
		a.wait()
		if want := []byte{7, 17, 27, 37, 47, 57, 67, 77, 87, 97}; !bytes.Equal(a.buf[:10], want) {
			t.Errorf("column %v", a.buf[:10])
		}
		other := ok(b.pd.RegMR(bytes.Repeat([]byte{0xFF}, 20), roce.RemoteRead))(t)
		both := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: m, Length: 2, Stride: 10}, {MR: other, Length: 1, Stride: 1}}, Repeat: 3}, allRights))(t)
		check(t, a.qp.PostSend(at(a, roce.Read, both.RKey(), 0, 9)))
		a.wait()
		if want := []byte{0, 1, 0xFF, 10, 11, 0xFF, 20, 21, 0xFF}; !bytes.Equal(a.buf[:9], want) {
			t.Errorf("interleaved %v", a.buf[:9])
		}
		// The other region grants no writing, so neither does this one.
		check(t, a.qp.PostSend(at(a, roce.Write, both.RKey(), 0, 1)))
		a.waitFor(cq.RemAccessErr)
	})
}

// TestIndirectRemoteInvalidate: work requests register a region, send its key to the peer, use the region and
// invalidate it, several times (mlx5's test_mkey remote_invalidate).
func TestIndirectRemoteInvalidate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		m := ok(b.pd.AllocIndirect(4))(t)
		for round := range 6 {
			check(t, m.Map(roce.Layout{Parts: []roce.Part{{MR: b.mr, Offset: 1000, Length: 50}, {MR: b.mr, Offset: uint64(round * 100), Length: 50}}}))
			reg := m.RegWR(allRights)
			a.recv(0, 0)
			ok(b.qp.PostSends([]roce.SendWR{reg, {Opcode: roce.SendImm, Imm: uint32(reg.RKey)}}))(t)
			key := roce.RKey(a.wait().Imm)
			fill(a.buf[:100], round)
			check(t, a.qp.PostSend(at(a, roce.Write, key, 0, 100)))
			a.wait()
			if !bytes.Equal(b.buf[1000:1050], a.buf[:50]) || !bytes.Equal(b.buf[round*100:][:50], a.buf[50:100]) {
				t.Fatalf("round %d: wrong data", round)
			}
			if round%2 == 0 {
				b.recv(0, 0)
				check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.SendInv, Flags: roce.Signaled, InvKey: key}))
				a.wait()
			} else {
				inv := m.InvWR()
				inv.Flags = roce.Signaled
				check(t, b.qp.PostSend(&inv))
			}
			b.wait()
			if m.Valid() {
				t.Fatal("valid after all")
			}
		}
		check(t, a.qp.PostSend(at(a, roce.Write, m.RKey(), 0, 8)))
		a.waitFor(cq.RemAccessErr)
	})
}

// TestIndirectFill: work requests that are posted together fill a region, use it, invalidate it, and fill it with
// another layout.
func TestIndirectFill(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		copy(b.buf, "ABCDEFGHIJ")
		m := ok(b.pd.AllocIndirect(2))(t)
		check(t, m.Map(roce.Layout{Parts: []roce.Part{{MR: b.mr, Offset: 9, Length: 1}}})) // for later
		list := ok(m.FillWR(roce.Layout{Parts: []roce.Part{{MR: b.mr, Offset: 5, Length: 2}, {MR: b.mr, Length: 1}}}, allRights))(t)
		every := ok(m.FillWR(roce.Layout{Parts: []roce.Part{{MR: b.mr, Length: 1, Stride: 3}}, Repeat: 3, IOVA: 0x7000}, allRights))(t)
		every.RKey = roce.IncRKey(list.RKey)
		every.Flags = roce.Signaled
		send := func(key roce.RKey, addr uint64, n int) roce.SendWR {
			return roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{{Addr: addr, Length: uint32(n), LKey: roce.LKey(key)}}}
		}
		a.recv(0, 10)
		a.recv(10, 10)
		n := ok(b.qp.PostSends([]roce.SendWR{list, send(list.RKey, 0, 3), {Opcode: roce.LocalInv, InvKey: list.RKey}, every, send(every.RKey, 0x7000, 3)}))(t)
		if n != 5 {
			t.Errorf("%d posted", n)
		}
		a.wait()
		a.wait()
		b.wait()
		if string(a.buf[:3]) != "FGA" || string(a.buf[10:13]) != "ADG" {
			t.Errorf("received %q and %q", a.buf[:3], a.buf[10:13])
		}
		if m.Addr() != 0x7000 || m.Len() != 3 || m.RKey() != every.RKey {
			t.Errorf("%d bytes at %#x behind %v", m.Len(), m.Addr(), m.RKey())
		}
		check(t, m.Invalidate())
		reg := m.RegWR(allRights) // what was mapped
		a.recv(20, 10)
		ok(b.qp.PostSends([]roce.SendWR{reg, send(reg.RKey, 0, 1)}))(t)
		a.wait()
		if string(a.buf[20:21]) != "J" {
			t.Errorf("received %q", a.buf[20:21])
		}
		// A work request for one region cannot use the parts list of another one.
		other := ok(b.pd.AllocIndirect(2))(t)
		wr := other.RegWR(allRights)
		wr.Parts = every.Parts
		wantErr(t, "list of another region", b.qp.PostSend(&wr), syscall.EINVAL)
		_, err := m.FillWR(roce.Layout{}, allRights)
		wantErr(t, "fill with nothing", err, syscall.EINVAL)
		_, err = m.FillWR(roce.Layout{Parts: []roce.Part{{MR: b.mr, Length: 1}, {MR: b.mr, Length: 1}, {MR: b.mr, Length: 1}}}, allRights)
		wantErr(t, "fill with too many", err, syscall.EINVAL)
		_, err = m.FillWR(roce.Layout{Parts: []roce.Part{{MR: a.mr, Length: 1}}}, allRights)
		wantErr(t, "fill with a region of another device", err, syscall.EINVAL)
		check(t, other.Close())
		_, err = other.FillWR(roce.Layout{Parts: []roce.Part{{MR: b.mr, Length: 1}}}, allRights)
		wantErr(t, "fill a closed one", err, roce.ErrClosed)
	})
}

// TestIndirectDeadPart: a READ fails if a part is invalidated during it; an atomic that is not inside one part fails,
// too.
func TestIndirectDeadPart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		fast := ok(b.pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(t)
		check(t, fast.Map(make([]byte, 64)))
		reg := fast.RegWR(allRights)
		reg.Flags = roce.Signaled
		check(t, b.qp.PostSend(&reg))
		b.wait()
		m := ok(b.pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: b.mr, Length: 20}, {MR: fast, Length: 44}}}, allRights))(t)
		check(t, a.qp.PostSend(at(a, roce.FetchAdd, m.RKey(), 8, 8)))
		a.wait()
		check(t, a.qp.PostSend(at(a, roce.FetchAdd, m.RKey(), 16, 8)))
		a.waitFor(cq.RemAccessErr)
		restate(t, a, b)
		check(t, fast.Invalidate())
		wantErr(t, "close a part", fast.Close(), syscall.EBUSY)
		check(t, a.qp.PostSend(at(a, roce.Read, m.RKey(), 0, 20)))
		a.wait()
		check(t, a.qp.PostSend(at(a, roce.Read, m.RKey(), 0, 21)))
		a.waitFor(cq.RemAccessErr)
		restate(t, a, b)
		check(t, b.qp.PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{m.SGE(10, 20)}}))
		b.waitFor(cq.LocProtErr)
		check(t, m.Close())
		check(t, fast.Close())
		if binary.NativeEndian.Uint64(b.buf[8:]) != 0 {
			t.Error("the refused atomic changed memory")
		}
	})
}

func TestIndirectErrno(t *testing.T) {
	n := newNetwork(t)
	d, other := n.device("10.0.0.1"), n.device("10.0.0.2")
	pd := d.AllocPD()
	m := ok(pd.RegMR(make([]byte, 64), allRights))(t)
	theirs := ok(other.AllocPD().RegMR(make([]byte, 64), 0))(t)
	foreign := ok(d.AllocPD().RegMR(make([]byte, 64), 0))(t)
	fast := ok(pd.AllocFastReg(roce.FastRegConfig{Pieces: 1}))(t)
	reg := func(access roce.Access, l roce.Layout) func() error {
		return func() error { return second(pd.RegIndirect(l, access)) }
	}
	one := []roce.Part{{MR: m, Length: 8}}
	runErrnoRows(t, "reg_indirect", []errnoRow{
		{"one part", reg(allRights, roce.Layout{Parts: one}), none},
		{"no parts", reg(0, roce.Layout{}), syscall.EINVAL},
		{"part without a region", reg(0, roce.Layout{Parts: []roce.Part{{Length: 8}}}), syscall.EINVAL},
		{"part of another device", reg(0, roce.Layout{Parts: []roce.Part{{MR: theirs, Length: 8}}}), syscall.EINVAL},
		{"part of another domain", reg(0, roce.Layout{Parts: []roce.Part{{MR: foreign, Length: 8}}}), syscall.EINVAL},
		{"part that is not registered", reg(0, roce.Layout{Parts: []roce.Part{{MR: fast, Length: 8}}}), syscall.EINVAL},
		{"part beyond its region", reg(0, roce.Layout{Parts: []roce.Part{{MR: m, Offset: 60, Length: 8}}}), syscall.EINVAL},
		{"last round beyond its region", reg(0, roce.Layout{Parts: []roce.Part{{MR: m, Length: 8, Stride: 20}}, Repeat: 4}), syscall.EINVAL},
		{"REMOTE_WRITE without LOCAL_WRITE", reg(roce.RemoteWrite, roce.Layout{Parts: one}), syscall.EINVAL},
		{"FLUSH_PERSISTENT", reg(roce.FlushPersistent, roce.Layout{Parts: one}), syscall.EINVAL},
		{"alloc of none", func() error { return second(pd.AllocIndirect(0)) }, syscall.EINVAL},
		{"alloc of too many", func() error { return second(pd.AllocIndirect(d.Query().MaxParts + 1)) }, syscall.EINVAL},
	})
	var below roce.Region = m
	for range mr.MaxDepth {
		below = ok(pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: below, Length: 8}}}, 0))(t)
	}
	_, err := pd.RegIndirect(roce.Layout{Parts: []roce.Part{{MR: below, Length: 8}}}, 0)
	wantErr(t, "too deep", err, syscall.EINVAL)
	mw, mid := ok(pd.AllocMW(roce.MWType1))(t), ok(pd.RegIndirect(roce.Layout{Parts: one}, 0))(t)
	wantErr(t, "map a closed one", func() error { check(t, mid.Close()); return mid.Map(roce.Layout{Parts: one}) }(), roce.ErrClosed)
	check(t, mw.Close())
}

package qp_test

import (
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// apiLocal has the objects that a node of a script binds, registers and invalidates.
type apiLocal struct {
	bindable *mr.MR // the memory of the region
	fast     *mr.MR
	windows  [3]*mr.MW // one of type 1, two of type 2
}

func newAPILocal(n *node, buf []byte) (x apiLocal) {
	x.bindable = must(n.mem.Register(n.pd, buf, mr.LocalWrite|mr.MWBind, mr.Options{}))
	x.fast = must(n.mem.AllocFast(n.pd, mr.FastOptions{MaxPieces: 2}))
	must(0, x.fast.Map([][]byte{buf[:3000], buf[3000:]}, mr.Options{IOVA: x.bindable.Addr(), HasIOVA: true}))
	for i, typ := range []mr.MWType{mr.MWType1, mr.MWType2, mr.MWType2} {
		x.windows[i] = must(n.mem.AllocMW(n.pd, typ))
	}
	return x
}

// key is one of the keys.
func (x *apiLocal) key(i byte) bth.RKey {
	if i%4 == 3 {
		return x.fast.RKey()
	}
	return x.windows[i%4].RKey()
}

// postLocal posts a bind, a registration, an invalidation, or a request that uses or invalidates a key that the peer
// may have bound or registered.
func (s *apiScript) postLocal(n *apiNode) {
	peer := s.peerOf(n)
	x, y := s.next(), s.next()
	n.id++
	wr := qp.SendWR{ID: n.id, Flags: qp.SendFlags(x>>5) & 3, Access: mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic}
	switch x % 8 {
	case 0, 1, 2:
		w := n.local.windows[x%8]
		wr.Opcode, wr.MW, wr.MR, wr.RKey = qp.BindMW, w, n.local.bindable, mr.IncRKey(w.RKey())
		wr.BindAddr, wr.BindLength = n.local.bindable.Addr()+uint64(y)*4, uint64(y)*29
	case 3:
		wr.Opcode, wr.MR, wr.RKey = qp.RegMR, n.local.fast, mr.IncRKey(n.local.fast.RKey())
	case 4:
		wr.Opcode, wr.InvKey = qp.LocalInv, n.local.key(y)
	case 5:
		wr.Opcode, wr.InvKey = qp.SendInv, peer.local.key(y)
	default:
		wr.Opcode, wr.RKey, wr.RemoteAddr = []qp.Opcode{qp.Write, qp.Read}[x&1], peer.local.key(y), peer.local.bindable.Addr()+uint64(y)*8
		wr.SG = []mr.SGE{n.region.SGE(int(y), int(s.next())*8)}
	}
	if n.PostSend(&wr) == nil {
		s.stats["posted "+wr.Opcode.String()]++
		n.sends = append(n.sends, accepted{id: n.id, signaled: wr.Flags&qp.Signaled != 0})
	}
}

// release releases the objects of a node. When the queue pair is reset and the type 1 window is deallocated, no
// binding may prevent that.
func (s *apiScript) release(n *apiNode) {
	must(0, n.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
	must(0, n.local.windows[0].Dealloc())
	for _, m := range []*mr.MR{n.local.bindable, n.local.fast} {
		if err := m.Deregister(); err != nil {
			s.t.Fatal(err)
		}
	}
}

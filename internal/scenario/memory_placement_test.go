package scenario_test

import (
	"bytes"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// TestPlacement writes, flushes and stores eight bytes at once, in every mode.
func TestPlacement(t *testing.T) {
	modes(t, 4096, func(t *testing.T, a, b *peer, next func(*peer) roce.WC) {
		var persisted []byte
		mem := make([]byte, 4096)
		target := ok(b.pd.RegMRPersistent(mem, allRights|roce.FlushGlobal|roce.FlushPersistent, func(p []byte) error {
			persisted = append(persisted, p...)
			return nil
		}))(t)
		fill(a.buf, 3)
		remote := func(wr roce.SendWR, off int) *roce.SendWR {
			wr.Flags, wr.RemoteAddr, wr.RKey = roce.Signaled, target.Addr()+uint64(off), target.RKey()
			return &wr
		}
		done := func(want cq.Opcode) {
			t.Helper()
			if wc := next(a); wc.Opcode != want {
				t.Errorf("completion %+v, want %v", wc, want)
			}
		}
		check(t, a.qp.PostSend(remote(roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{a.mr.SGE(0, 3000)}}, 8)))
		check(t, a.qp.PostSend(remote(roce.SendWR{Opcode: roce.Flush, FlushType: roce.PlacePersistent, Length: 3000}, 8)))
		done(cq.OpRDMAWrite)
		done(cq.OpFlush)
		if !bytes.Equal(persisted, a.buf[:3000]) || target.Flushes() != 1 {
			t.Errorf("%d bytes made persistent, %d FLUSHes", len(persisted), target.Flushes())
		}
		check(t, a.qp.PostSend(remote(roce.SendWR{Opcode: roce.AtomicWrite, Inline: []byte("8 bytes!")}, 16)))
		check(t, a.qp.PostSend(remote(roce.SendWR{Opcode: roce.Flush, FlushType: roce.PlaceGlobal, Selectivity: roce.FlushMR}, 0)))
		done(cq.OpAtomicWrite)
		done(cq.OpFlush)
		if string(mem[16:24]) != "8 bytes!" || target.Flushes() != 2 {
			t.Errorf("memory %q, %d FLUSHes", mem[16:24], target.Flushes())
		}
	})
}

// TestPlacementErrors: missing rights, and persistent memory that fails.
func TestPlacementErrors(t *testing.T) {
	for _, tt := range []struct {
		name    string
		access  roce.Access
		persist func([]byte) error
		to      roce.FlushType
		want    cq.Status
	}{
		{"region without the right", roce.LocalWrite, nil, roce.PlaceGlobal, cq.RemAccessErr},
		{"region that is not persistent", roce.FlushGlobal, nil, roce.PlacePersistent, cq.RemAccessErr},
		{"memory fails", roce.FlushPersistent, func([]byte) error { return syscall.EIO }, roce.PlacePersistent, cq.RemOpErr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				a, b := newPair(t, 64)
				target := ok(b.pd.RegMRPersistent(b.buf, tt.access, tt.persist))(t)
				check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Flush, Flags: roce.Signaled, FlushType: tt.to, Length: 8,
					RemoteAddr: target.Addr(), RKey: target.RKey()}))
				a.waitFor(tt.want)
				if target.Flushes() != 0 {
					t.Error("counted as executed")
				}
			})
		})
	}
	bubble(t, func(t *testing.T) {
		p := newPeer(t, newNetwork(t).device("10.0.0.1"), 64)
		_, err := p.pd.RegMR(p.buf, roce.LocalWrite|roce.FlushPersistent)
		wantErr(t, "ordinary memory as persistent", err, syscall.EINVAL)
	})
}

// TestFlushICRCQuirk: both ends must compute the ICRC of FLUSH in the same way. If a packet arrives at another shard, the
// shard of the queue pair checks it.
func TestFlushICRCQuirk(t *testing.T) {
	for _, tt := range []struct {
		name string
		a, b bool
		want cq.Status
	}{
		{"neither", false, false, cq.Success},
		{"both", true, true, cq.Success},
		{"the requester", true, false, cq.RetryExcErr},
		{"the responder", false, true, cq.RetryExcErr},
	} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				one, two := n.device("10.0.0.1"), n.open(n.multi("10.0.0.2", 2, func(data []byte) int { return destQPN(data) + 1 }))
				for shard := range 2 {
					a, b := newPeer(t, one, 64), newPeerOn(t, two, shard, 64)
					connectQuirky(t, a, b, tt.a)
					connectQuirky(t, b, a, tt.b)
					target := ok(b.pd.RegMR(b.buf, allRights|roce.FlushGlobal))(t)
					a.post(roce.Write, 0, 8, b, 0)
					a.wait()
					check(t, a.qp.PostSend(&roce.SendWR{Opcode: roce.Flush, Flags: roce.Signaled, FlushType: roce.PlaceGlobal,
						Length: 8, RemoteAddr: target.Addr(), RKey: target.RKey()}))
					a.waitFor(tt.want)
					if bad := two.Counters().ICRCErr; (bad > 0) != (tt.want != cq.Success) {
						t.Errorf("shard %d: %d packets with a wrong ICRC", shard, bad)
					}
				}
			})
		})
	}
}

func connectQuirky(t *testing.T, a, b *peer, quirk bool) {
	t.Helper()
	check(t, a.qp.Connect(t.Context(), roce.Peer{
		AHAttr: roce.AHAttr{DGID: b.dev.GIDs()[0]}, QPN: b.qp.Num(), PSN: b.psn, MTU: a.dev.Query().PathMTU,
		Timeout: 14, RetryCnt: 2, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 16, FlushICRCQuirk: quirk,
	}, a.psn))
}

// TestConnParamFlushICRCQuirk: connections take the quirk as a parameter, each
// end for itself.
func TestConnParamFlushICRCQuirk(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
		l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		for _, quirk := range []bool{false, true} {
			accepted := make(chan *roce.Conn, 1)
			go func() {
				r, err := l.Accept(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				conn, err := r.Accept(t.Context(), roce.AcceptConfig{Param: roce.ConnParam{FlushICRCQuirk: quirk}})
				if err != nil {
					t.Error(err)
				}
				accepted <- conn
			}()
			conn := ok(client.Dial(t.Context(), serverAddr, roce.DialConfig{Param: roce.ConnParam{FlushICRCQuirk: true}}))(t)
			mine, _ := conn.QP().Query()
			theirs, _ := (<-accepted).QP().Query()
			if !mine.FlushICRCQuirk || theirs.FlushICRCQuirk != quirk {
				t.Errorf("dialled with it, accepted with %v: %v and %v", quirk, mine.FlushICRCQuirk, theirs.FlushICRCQuirk)
			}
		}
	})
}

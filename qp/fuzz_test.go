package qp_test

import (
	"bytes"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// fuzzOps are the packets the fuzzer may send.
var fuzzOps = func() (ops []bth.Opcode) {
	for op := range 256 {
		if o := bth.Opcode(op); o.Known() {
			ops = append(ops, o)
		}
	}
	return ops
}()

// scripted is a queue pair that a script drives.
type scripted struct {
	*bench
	region   *mr.MR
	posted   int // receives, before the script begins
	postRecv func(*qp.RecvWR) error
	queued   func() int // receives that no message has taken
	paths    []twoEnds  // between which it may migrate; none: it does not
}

// twoEnds is a path as its two ends see it.
type twoEnds struct{ own, peer *frame.Path }

// FuzzPeer reads bytes as a script of everything that can happen to a queue pair: packets of a hostile peer, posts,
// timeouts, changes of state, keys that end. For every script, nothing panics, no work request completes twice,
// memory that was not offered stays as it was, and the packets that the engine sends are well-formed (bench.Commit
// checks it).
func FuzzPeer(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 4, 0x0A, 0, 0, 0, 12, 1, 2, 3})
	f.Add([]byte("\x02\x00\x03\x00\x04\x00\x01\x07\x00\x0c\x00\x40\x01\x07\x00\x0f\x00\x40"))
	f.Add(bytes.Repeat([]byte{1, 3, 0, 4, 2, 9, 5, 0, 7}, 30))
	f.Fuzz(func(t *testing.T, script []byte) {
		b, _, region := server(t, pairConfig{psnA: s0, rd: 3, masked: true})
		runScript(t, script, scripted{b, region, 2, b.PostRecv, func() int { return 0 }, nil})
	})
}

// FuzzMigration is FuzzPeer for a queue pair with several paths, which the
// script loads, re-arms and migrates over, while packets come over any of them.
func FuzzMigration(f *testing.F) {
	f.Add([]byte{7, 1, 1, 7, 2, 0, 4, 9, 0, 0, 0, 0, 1, 1, 0, 0, 7, 3})
	f.Add(bytes.Repeat([]byte{7, 1, 2, 7, 2, 0, 0, 0, 0, 1, 0, 0, 0, 1, 1, 0}, 20))
	f.Fuzz(func(t *testing.T, script []byte) {
		v := newMover(t, qp.Armed, pairConfig{rd: 3})
		paths := []twoEnds{{v.primary, v.peerPrimary}, {v.alt, v.peerAlt}, {over(v.node, v.peer, 79), v.peerElsewhere}}
		runScript(t, script, scripted{v.bench, v.m, 14, v.PostRecv, func() int { return 0 }, paths})
		count := uint64(0)
		for _, e := range v.events {
			if e == qp.EventPathMig {
				count++
			}
		}
		if count != v.cnt.PathMigrations {
			t.Fatalf("%d migrations, %d events", v.cnt.PathMigrations, count)
		}
	})
}

// migrate is a step of a script.
func (b scripted) migrate(next func() byte) {
	mask, a := qp.AttrPathMigState, qp.Attr{PathMigState: qp.MigState(next() % 4), AltPort: 1}
	if at := int(next()) % (len(b.paths) + 1); at < len(b.paths) {
		mask, a.AltAV = mask|qp.AttrAltPath, qp.NewAH(b.paths[at].own)
	}
	before := b.MigState()
	if err := b.Modify(&a, mask); err != nil && b.MigState() != before {
		b.t.Fatalf("%v, but the state went from %v to %v", err, before, b.MigState())
	}
}

// FuzzSRQ is FuzzPeer for a queue pair with a shared receive queue.
func FuzzSRQ(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 4, 0x0A, 0, 0, 0, 12, 1, 2, 3})
	f.Add(bytes.Repeat([]byte{1, 0, 0, 4, 2, 9, 5, 0, 7}, 30))
	f.Fuzz(func(t *testing.T, script []byte) {
		b, _, region := shared(t, pairConfig{psnA: s0, rd: 3}, 3)
		runScript(t, script, scripted{b, region, 3, b.host.srq.PostRecv, b.host.srq.Len, nil})
	})
}

// FuzzXRC is FuzzPeer for either end of XRC.
func FuzzXRC(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 4, 0x0A, 0, 0, 0, 12, 1, 2, 3})
	f.Add(bytes.Repeat([]byte{1, 0, 0, 4, 2, 9, 5, 0, 7}, 30))
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 0 && script[0]&1 != 0 {
			b, _, region := initiator(t, pairConfig{rd: 3})
			runScript(t, script[1:], scripted{b, region, 0, b.PostRecv, func() int { return 0 }, nil})
			return
		}
		b, _, region := target(t, pairConfig{rd: 3})
		completed := 0
		runScript(t, script, scripted{b, region, 2, b.host.xrc[0].PostRecv, func() int {
			for _, srq := range b.host.xrc {
				completed += len(drain(srq.cq))
			}
			return completed + b.host.xrc[0].Len() + b.host.xrc[1].Len()
		}, nil})
	})
}

func runScript(t *testing.T, script []byte, b scripted) {
	region := b.region
	guard, _ := b.node.region(t, 64) // registered, but no packet has its key
	posted, completed := b.posted, 0
	next := func() byte {
		if len(script) == 0 {
			return 0
		}
		x := script[0]
		script = script[1:]
		return x
	}
	for len(script) > 0 {
		switch next() % 8 {
		case 0, 1, 2: // a packet
			op := fuzzOps[int(next())%len(fuzzOps)]
			attr, _ := b.Query()
			base := attr.RQPSN
			if op.Info().Flags&bth.Request == 0 {
				base = attr.SQPSN.Add(-1)
			}
			n := int(next()) * 5
			d := packet{op: op, psn: base.Add(int(int8(next())) / 16), ack: next()&1 != 0, va: region.Addr() + uint64(next())*65,
				key: region.RKey(), length: uint32(n), syndrome: bth.Syndrome(next()), imm: uint32(next()), msn: 5, srqn: srqA,
				payload: make([]byte, n%1030)}
			if next()%16 == 0 {
				d.key++
			}
			if x := next(); x%16 == 0 {
				d.srqn = bth.SRQN(x) + srqA - 16
			}
			if next()%16 == 0 {
				d.length = 1<<31 - uint32(next())
			}
			if op.Info().Flags&bth.Flush != 0 {
				place := next()
				d.place, d.sel, d.payload = bth.FlushType(place), bth.FlushSelectivity(place>>4), nil
			}
			if op.Info().Flags&bth.Masked != 0 {
				d.size, d.cmpMask, d.swapMask = next(), uint64(next()), uint64(next())
			}
			path := b.peer.path
			if b.paths != nil {
				x := next()
				d.moved, path = x&0x80 != 0, b.paths[int(x&0x7F)%len(b.paths)].peer
			}
			if op.Info().Headers&(bth.HasRDETH|bth.HasCNPReserved) == 0 {
				b.injectOver(path, d)
			}
		case 3: // a send
			wr := qp.SendWR{Opcode: qp.Opcode(next() % 16), Flags: qp.SendFlags(next()&7) | qp.Signaled, RemoteAddr: uint64(next()) * 4, AH: qp.NewAH(b.path),
				SG: []mr.SGE{region.SGE(int(next()), int(next())*9%3000)}}
			if wr.Opcode == qp.CompareSwap || wr.Opcode == qp.FetchAdd {
				wr.SG[0].Length, wr.RemoteAddr = 8, wr.RemoteAddr&^7
			}
			switch wr.Opcode {
			case qp.MaskedCompareSwap, qp.MaskedFetchAdd:
				wr.SG[0].Length = 1 << (next() & 3)
			case qp.AtomicWrite:
				wr.SG[0].Length, wr.RemoteAddr = 8, wr.RemoteAddr&^7
			case qp.Flush:
				wr.SG, wr.FlushType, wr.Length = nil, bth.FlushType(next()&3), uint32(next())
			}
			if next()%8 == 0 && len(wr.SG) > 0 {
				wr.SG[0].LKey++
			}
			if b.PostSend(&wr) == nil {
				posted++
			}
		case 4: // a receive
			if b.postRecv(&qp.RecvWR{SG: []mr.SGE{region.SGE(0, int(next())*8)}}) == nil {
				posted++
			}
		case 5: // time
			b.net.now = b.net.now.Add(1 << (next() % 40))
			b.HandleTimeout(b.net.now)
		case 6: // a change of state
			to := qp.State(next() % 7)
			a := allAttrs(b.node)
			a.State, a.SQPSN, a.RQPSN = to, s0, e0
			if to == qp.Reset {
				continue // takes work requests away without completions
			}
			_ = b.Modify(&a, qp.AttrState)
		case 7:
			switch x := next(); {
			case x%32 == 0:
				_ = region.Deregister()
			case b.paths != nil:
				b.migrate(next)
			}
		}
		b.collect()
		b.sent()
		completed += len(drain(b.send)) + len(drain(b.recv))
		sends, recvs := b.Outstanding()
		if n := b.queued(); completed+sends+recvs+n != posted {
			t.Fatalf("%d posted, %d completed, %d outstanding, %d queued", posted, completed, sends+recvs, n)
		}
		if b.State() == qp.Err && sends+recvs != 0 {
			t.Fatalf("in ERR with %d outstanding", sends+recvs)
		}
	}
	if !bytes.Equal(guard, make([]byte, 64)) {
		t.Fatal("memory whose key no peer has was changed")
	}
}

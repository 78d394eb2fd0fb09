package qp_test

import (
	"bytes"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// bodyOf encodes a packet as a socket delivers it: BTH to ICRC, with the ICRC for an Identification.
func bodyOf(path *frame.Path, dest bth.QPN, d packet, id uint16) []byte {
	body := buildFrame(path, dest, d)[path.HeaderLen(frame.LayoutEthernet):]
	n := len(body) - bth.ICRCLen
	_, crc := path.Put(body, frame.LayoutUDP, len(body), id)
	bth.PutICRC(body[n:], crc.UpdateBody(body[:n]))
	return body
}

// TestMigrationForgetsIdentifications: the alternate path has Identifications of its own. The packet that makes the
// queue pair migrate leaves none of the old path, even if it advances the connection.
func TestMigrationForgetsIdentifications(t *testing.T) {
	v := newMover(t, qp.Armed, pairConfig{retry: none})
	var p frame.Packet
	arrive := func(path *frame.Path, d packet, id uint16) {
		t.Helper()
		v.net.now = v.net.now.Add(time.Microsecond)
		e := path.Envelope()
		must(0, p.ParseBody(bodyOf(path, v.Num(), d, id), &e, 0))
		if !p.CheckICRC() {
			t.Fatal("wrong ICRC")
		}
		v.HandlePacket(v.net.now, &p)
		v.collect()
	}
	for i := range 40 {
		must(0, v.PostRecv(&qp.RecvWR{SG: []mr.SGE{v.m.SGE(0, 64)}}))
		arrive(v.peerPrimary, v.next(false), uint16(i))
		v.expect = v.expect.Add(1)
	}
	v.post(send(v.m, 1))
	v.post(send(v.m, 1))
	arrive(v.peerPrimary, nak(bth.NAKSequence, s0.Add(1)), 40)
	v.wantMig(qp.Migrated, qp.EventPathMig)
	rcvd := v.cnt.RcvdPkts
	arrive(v.peerAlt, v.next(true), 40_000)
	if v.cnt.StrangeID != 0 || v.cnt.RcvdPkts != rcvd+1 {
		t.Errorf("%d refused, %d taken after the migration", v.cnt.StrangeID, v.cnt.RcvdPkts-rcvd)
	}
}

// TestRunsAreSingles: packets that arrive as a run have the same effects as packets that arrive one by one.
func TestRunsAreSingles(t *testing.T) {
	for seed := range uint64(60) {
		compareRuns(t, seed)
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func compareRuns(t *testing.T, seed uint64) {
	var ends [2]*mover
	for i := range ends {
		c := pairConfig{rd: 16, retry: []uint8{7, none}[seed>>2&1], repair: seed&1 != 0, caps: qp.Caps{MaxSendWR: 64, MaxRecvWR: 512, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInlineData: 128}}
		ends[i] = newMover(t, qp.Migrated, c)
	}
	rng := rand.New(rand.NewPCG(seed, 77))
	v := ends[0]
	var p frame.Packet
	id, answered := uint16(rng.Uint32()), s0
	outcome := func(e *mover) string {
		a, _ := e.Query()
		a.AV, a.AltAV = nil, nil
		sends, recvs := e.Outstanding()
		return fmt.Sprint(a, sends, recvs, e.NextTimeout(), e.RetryTimeout(), e.InFlight(), e.cnt, e.events, e.Idents(), e.MigState(), drain(e.send), drain(e.recv), summary(e.sent()))
	}
	expect := v.expect
	for step := range 300 {
		for _, e := range ends {
			for range 8 {
				e.PostRecv(&qp.RecvWR{SG: []mr.SGE{e.m.SGE(0, 64)}})
			}
		}
		what := rng.IntN(24)
		switch what {
		case 0:
			d := time.Duration(rng.IntN(1 << (6 + rng.IntN(20))))
			for _, e := range ends {
				e.net.now = e.net.now.Add(d)
				e.HandleTimeout(e.net.now)
			}
		case 1:
			for _, e := range ends {
				a := qp.Attr{AltAV: qp.NewAH(e.alt), AltPort: 1, AltTimeout: altTimeout, PathMigState: qp.Rearm}
				e.Modify(&a, qp.AttrAltPath|qp.AttrPathMigState)
			}
		case 2:
			if rng.IntN(4) == 0 {
				for _, e := range ends {
					e.Modify(&qp.Attr{PathMigState: qp.Migrated}, qp.AttrPathMigState)
				}
			}
		case 3:
			x := rng.IntN(3)
			for _, e := range ends {
				e.Modify(&qp.Attr{State: []qp.State{qp.SQD, qp.RTS, qp.RTS}[x]}, qp.AttrState)
			}
		case 4, 5, 6, 7:
			n, op, sig := []int{0, 8, 64, 3000}[rng.IntN(4)], []qp.Opcode{qp.Send, qp.Write, qp.Read}[rng.IntN(3)], rng.IntN(2) == 0
			for _, e := range ends {
				wr := qp.SendWR{Opcode: op, SG: []mr.SGE{e.m.SGE(0, n)}, RemoteAddr: e.m.Addr(), RKey: e.m.RKey()}
				if sig {
					wr.Flags = qp.Signaled
				}
				e.PostSend(&wr)
			}
		case 8:
			if rng.IntN(10) == 0 || ends[0].State() == qp.Err && rng.IntN(2) == 0 {
				for _, e := range ends {
					must(0, e.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState))
					walk(t, e.node, qp.RTS)
				}
				a, _ := ends[0].Query()
				expect, answered = a.RQPSN, a.SQPSN
			}
		default:
			k := 1 + rng.IntN(6)
			if rng.IntN(3) == 0 {
				k = 20
			}
			which := rng.IntN(10)
			seen, ce := rng.IntN(5) == 0, rng.IntN(10) == 0
			moved := rng.IntN(2) == 0
			kind := rng.IntN(5)
			jump := rng.IntN(12) == 0
			var paths [2]*frame.Path
			for i, e := range ends {
				paths[i] = e.peerPrimary
				switch which {
				case 0:
					paths[i] = e.peerAlt
				case 1:
					paths[i] = e.peerElsewhere
				}
				if ce {
					paths[i] = paths[i].WithTrafficClass(3)
				}
			}
			e0, e1 := paths[0].Envelope(), paths[1].Envelope()
			e0.IDSeen, e1.IDSeen = seen, seen
			same := false
			for i := range k {
				if jump {
					id = uint16(rng.Uint32())
				} else {
					id += uint16(rng.IntN(3))
					if rng.IntN(20) == 0 {
						id -= uint16(rng.IntN(100))
					}
				}
				ack, off, size := rng.IntN(2) == 0, 0, 8
				if rng.IntN(10) == 0 {
					off = rng.IntN(9) - 4
				}
				syn := bth.AckNoCredits
				if rng.IntN(15) == 0 {
					syn = []bth.Syndrome{bth.NAKSequence, bth.RNR(1), bth.NAKSequence, bth.NAKRemoteAccess}[rng.IntN(4)]
				}
				badKey := rng.IntN(200) == 0
				var bodies [2][]byte
				for j, e := range ends {
					d := packet{moved: moved}
					switch kind {
					case 0:
						d.op, d.psn, d.ack = bth.RCSendOnly, expect.Add(off), ack
						d.payload = make([]byte, size)
					case 1:
						d.op, d.psn, d.ack, d.va, d.key, d.length = bth.RCWriteOnly, expect.Add(off), ack, e.m.Addr(), e.m.RKey(), uint32(size)
						d.payload = bytes.Repeat([]byte{byte(id)}, size)
					case 2:
						d.op, d.psn, d.ack, d.va, d.key, d.length = bth.RCReadRequest, expect.Add(off), ack, e.m.Addr(), e.m.RKey(), uint32(size)
					case 3:
						d.op, d.psn, d.syndrome = bth.RCAck, answered.Add(off), syn
					case 4:
						d.op, d.psn, d.syndrome, d.payload = bth.RCReadResponseOnly, answered.Add(off), syn, make([]byte, 64)
					}
					if badKey {
						d.key ^= 1 << 20
					}
					wire := uint16(id)
					if seen {
						wire = uint16(i)
					}
					bodies[j] = bodyOf(paths[j], e.Num(), d, wire)
				}
				// The first end gets a run, the second each packet alone.
				if !same || !p.Next(bodies[0], &e0, uint16(i)) {
					must(0, p.ParseBody(bodies[0], &e0, uint16(i)))
				}
				var alone frame.Packet
				must(0, alone.ParseBody(bodies[1], &e1, uint16(i)))
				if !p.CheckICRC() || !alone.CheckICRC() {
					t.Fatal("wrong ICRC")
				}
				same = true
				ends[0].HandlePacket(ends[0].net.now, &p)
				ends[1].HandleAlone(ends[1].net.now, &alone)
				a, _ := ends[0].Query()
				expect = a.RQPSN
				if kind >= 3 && off == 0 && answered.Less(a.SQPSN) {
					answered = answered.Add(1)
				}
			}
		}
		for _, e := range ends {
			e.collect()
		}
		if a, b := outcome(ends[0]), outcome(ends[1]); a != b {
			t.Fatalf("step %d, %d:\n%s\nwant\n%s", step, what, a, b)
		}
		ends[0].events, ends[1].events = nil, nil
	}
}

// TestRepairsAreFound: a queue pair examines repairs only while one is in progress. It sends the same packets as one
// that always examines them.
func TestRepairsAreFound(t *testing.T) {
	for seed := range uint64(48) {
		var sums [2]string
		for i := range sums {
			x := newTraffic(t, seed, pairConfig{repair: true, repairB: true, timeout: []uint8{8, 14}[seed&1], retry: 7, rd: 16})
			x.imp.loss, x.imp.reorder, x.imp.dup, x.imp.jitter = 0.02*float64(seed%4), 0.02*float64(seed/4%3), 0.01*float64(seed/12%2), 100*time.Microsecond
			h := fnv.New64a()
			x.tap = func(b []byte) { fmt.Fprint(h, x.now, len(b)); h.Write(b[42:54]) } // addresses of memory differ
			if i == 1 {
				x.advance = func() { x.ends[0].LookForRepairs(); x.ends[1].LookForRepairs() }
				x.rewrite = func(to *node, b []byte) []byte { to.LookForRepairs(); return b }
			}
			for range 300 {
				for x.post() && x.rng.IntN(8) > 0 {
				}
				if !x.step() {
					break
				}
				drain(x.ends[0].send)
			}
			sums[i] = fmt.Sprint(x.now, x.sent, h.Sum64(), x.ends[0].cnt, x.ends[1].cnt)
		}
		if sums[0] != sums[1] {
			t.Fatalf("seed %d:\n%s\nwant\n%s", seed, sums[0], sums[1])
		}
	}
}

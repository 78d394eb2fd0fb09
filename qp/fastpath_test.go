package qp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// FuzzFastPaths: a requester with the fast paths for the most common answers has the same state as a requester
// without them.
func FuzzFastPaths(f *testing.F) {
	rng := rand.New(rand.NewPCG(7, 8))
	for n := range 8 {
		script := make([]byte, 64*(n+1))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		f.Add(script)
	}
	f.Fuzz(compareFastPaths)
}

// TestFastPaths runs FuzzFastPaths with scripts of its own.
func TestFastPaths(t *testing.T) {
	rng := rand.New(rand.NewPCG(9, 10))
	scripts := 1500
	if raceEnabled {
		scripts = 150
	}
	for range scripts {
		script := make([]byte, 20+rng.IntN(300))
		for i := range script {
			script[i] = byte(rng.Uint32())
		}
		if compareFastPaths(t, script); t.Failed() {
			t.Fatalf("script %q", script)
		}
	}
}

// asker is a requester whose answers a script gives.
type asker struct {
	*bench
	mem    []byte
	m      *mr.MR
	handle func(p *frame.Packet)
	dead   bool
}

func compareFastPaths(t *testing.T, script []byte) {
	var ends [2]*asker
	for i := range ends {
		b := newBench(t, pairConfig{psnA: s0, rd: 4})
		mem, m := b.region(t, 4096)
		b.collect()
		ends[i] = &asker{bench: b, mem: mem, m: m}
	}
	ends[0].handle = func(p *frame.Packet) { ends[0].HandlePacket(ends[0].net.now, p) }
	ends[1].handle = func(p *frame.Packet) { ends[1].HandleSlowly(ends[1].net.now, p) }
	next := func() int {
		if len(script) == 0 {
			return 0
		}
		x := script[0]
		script = script[1:]
		return int(x)
	}
	sizes := []int{64, 64, 64, 64, 64, 64, 0, 8, 1000, 3000}
	answered := s0
	for len(script) > 0 {
		what, n, x := next()%16, sizes[next()%len(sizes)], next()
		for _, e := range ends {
			e.step(what, n, x, answered)
		}
		if what >= 8 && what <= 12 {
			answered = answered.Add(1)
		}
		a, b := ends[0].outcome(), ends[1].outcome()
		if a != b {
			t.Fatalf("step %d of %d bytes, %d:\n%s\nwant\n%s", what, n, x, a, b)
		}
	}
	if !bytes.Equal(ends[0].mem, ends[1].mem) {
		t.Fatal("the memory differs")
	}
}

// step executes one step of a script; psn is the next to be answered.
func (e *asker) step(what, n, x int, psn bth.PSN) {
	wr := qp.SendWR{ID: uint64(x), Opcode: qp.Read, SG: []mr.SGE{e.m.SGE(x, n)}}
	if x&1 != 0 {
		wr.Flags = qp.Signaled
	}
	if x&2 != 0 && n >= 8 {
		wr.SG = []mr.SGE{e.m.SGE(x, 4), e.m.SGE(x+8, n-4)}
	}
	switch what {
	case 0, 1, 2, 3, 4:
		e.PostSend(&wr)
	case 5:
		wr.Opcode = qp.Send
		e.PostSend(&wr)
	case 6:
		wr.Opcode, wr.SG = qp.FetchAdd, []mr.SGE{e.m.SGE(0, 8)}
		e.PostSend(&wr)
	case 7:
		e.PostSend(&qp.SendWR{Opcode: qp.LocalInv, InvKey: 0x100, Flags: wr.Flags})
	case 8, 9, 10, 11, 12: // the answer that is due
		e.answer(packet{op: bth.RCReadResponseOnly, psn: psn, payload: make([]byte, n), syndrome: bth.AckNoCredits}, x)
	case 13:
		syndrome := []bth.Syndrome{bth.AckNoCredits, bth.NAKSequence, bth.RNR(1), bth.NAKRemoteAccess}[x%4]
		op := []bth.Opcode{bth.RCAck, bth.RCReadResponseOnly, bth.RCReadResponseLast, bth.RCAtomicAck}[x/4%4]
		e.answer(packet{op: op, psn: psn.Add(x/16%5 - 2), payload: make([]byte, n), syndrome: syndrome}, x)
	case 14:
		e.net.now = e.net.now.Add(time.Duration(x) * time.Millisecond)
		e.HandleTimeout(e.net.now)
	case 15:
		switch {
		case x == 0 && !e.dead:
			e.dead = true
			e.m.Deregister()
		case x%3 == 0:
			e.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState)
		case x%3 == 1:
			e.Modify(&qp.Attr{State: qp.RTS}, qp.AttrState)
		}
	}
	e.collect()
}

func (e *asker) answer(d packet, x int) {
	if d.op == bth.RCAck || d.op == bth.RCAtomicAck {
		d.payload = nil
	}
	for i := range d.payload {
		d.payload[i] = byte(x + i)
	}
	e.handle(build(e.t, e.peer.path, e.Num(), d))
}

// outcome returns the visible state of the requester.
func (e *asker) outcome() string {
	a, _ := e.Query()
	sends, _ := e.Outstanding()
	return fmt.Sprint(a.State, a.SQPSN, a.SQDraining, sends, e.NextTimeout(), e.RetryTimeout(), e.InFlight(), e.cnt, e.events, drain(e.send), summary(e.sent()))
}

package qp_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// migCauses are the ways to make a pair migrate. Some stop packets, so that
// retries are used up; the others are what a program does.
var migCauses = []struct {
	name    string
	cut     [2]bool // what a node sends over its primary path is lost
	migrate [2]bool // a node is told to migrate
}{
	{name: "path dies", cut: [2]bool{true, true}},
	{name: "path from a to b dies", cut: [2]bool{true, false}},
	{name: "path from b to a dies", cut: [2]bool{false, true}},
	{name: "a migrates", migrate: [2]bool{true, false}},
	{name: "b migrates", migrate: [2]bool{false, true}},
	{name: "both migrate at once", migrate: [2]bool{true, true}},
	{name: "a migrates, then the path dies", migrate: [2]bool{true, false}, cut: [2]bool{true, true}},
}

// operator prepares and causes migrations of a pair with two paths while the pair exchanges messages.
type operator struct {
	t      testing.TB
	w      *network
	rng    *rand.Rand
	nodes  [2]*node
	paths  [2][2]*frame.Path // of each node
	dead   [2]*frame.Path    // of each node: the path that loses all it sends
	rearms bool              // a node re-arms as soon as it has migrated, whatever the state of the peer
	seen   uint64            // migrations so far, of both nodes
	calm   mono.Time         // when all that was sent before the last one has arrived
	cuts   bool              // paths fail, too: RC only
	left   int               // migrations still to be caused
	at     int               // packets sent when the next one is
	broken error
}

func newOperator(t testing.TB, w *network, seed uint64, left int, a, b *node) *operator {
	o := &operator{t: t, w: w, rng: rand.New(rand.NewPCG(seed, 4)), nodes: [2]*node{a, b}, left: left, cuts: a.Type() == qp.RC}
	o.paths = [2][2]*frame.Path{{a.path, over(a, b, 78)}, {b.path, over(b, a, 78)}}
	// A node may re-arm at once only if no old packet can arrive over a path that is the alternate one again.
	o.rearms = o.rng.IntN(3) == 0 && w.imp.reorder+w.imp.dup == 0
	o.at = o.rng.IntN(30)
	w.advance, w.drop = o.act, o.drop
	return o
}

// path returns a node's path in use, or the other one.
func (o *operator) path(i int, other uint64) *frame.Path {
	return o.paths[i][(o.nodes[i].cnt.PathMigrations+other)%2]
}

func (o *operator) act() {
	a, b := o.nodes[0], o.nodes[1]
	even := a.cnt.PathMigrations == b.cnt.PathMigrations
	if even && a.MigState() != qp.Armed {
		o.dead = [2]*frame.Path{} // repaired
	}
	if o.left == 0 {
		return
	}
	if n := a.cnt.PathMigrations + b.cnt.PathMigrations; n != o.seen {
		o.seen, o.calm = n, o.w.now.Add(o.w.imp.delay+2*o.w.imp.jitter+1)
	}
	for i, n := range o.nodes {
		ready := o.rng.IntN(4) == 0 && even && o.w.now >= o.calm || o.rearms && n.cnt.PathMigrations > 0
		if n.MigState() == qp.Migrated && n.State() == qp.RTS && ready {
			attr := qp.Attr{AltAV: qp.NewAH(o.path(i, 1)), AltPort: 1, AltTimeout: 8, PathMigState: qp.Rearm}
			must(0, n.Modify(&attr, qp.AttrAltPath|qp.AttrPathMigState))
		}
	}
	if !even || a.MigState() != qp.Armed || b.MigState() != qp.Armed || o.w.sent < o.at {
		return
	}
	c := migCauses[o.rng.IntN(len(migCauses))]
	if !o.cuts && c.cut != [2]bool{} {
		return
	}
	if *simSeed != 0 {
		o.t.Logf("%v, packet %d: %s", o.w.now, o.w.sent, c.name)
	}
	for i, n := range o.nodes {
		if c.cut[i] {
			o.dead[i] = o.path(i, 0)
		}
		if c.migrate[i] {
			must(0, n.Modify(&qp.Attr{PathMigState: qp.Migrated}, qp.AttrPathMigState))
		}
	}
	o.left--
	o.at = o.w.sent + o.rng.IntN(30)
}

// drop loses packets over a dead path, and checks the M bit of all packets.
func (o *operator) drop(p *frame.Packet) bool {
	i := 0
	if p.DestQPN() == o.nodes[0].Num() {
		i = 1
	}
	n := o.nodes[i]
	if s := n.MigState(); s == qp.Migrated && !p.MigReq() || s == qp.Armed && p.MigReq() {
		o.broken = fmt.Errorf("%v is %v and sends %v with M=%v", n.addr, s, p.Op, p.MigReq())
	}
	if c := o.path(i, 0).Config(); p.Src != c.Src || p.Dst != c.Dst {
		o.broken = fmt.Errorf("%v sends over %v→%v after %d migrations", n.addr, p.Src.Addr(), p.Dst.Addr(), n.cnt.PathMigrations)
	}
	d := o.dead[i]
	return d != nil && p.Dst == d.Config().Dst && p.Src == d.Config().Src
}

// verdict lets both ends send once more. So an end that has nothing left to send notices the migration of the other.
// Then both must be on the same path, with one event for every migration.
func (o *operator) verdict() error {
	if o.broken != nil {
		return o.broken
	}
	o.left = 0
	for _, n := range o.nodes {
		must(0, n.PostSend(&qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled}))
	}
	for _, n := range o.nodes {
		for n.send.Len() == 0 && o.w.step(o.nodes[0], o.nodes[1]) {
		}
		if wcs := drain(n.send); len(wcs) != 1 || wcs[0].Status != cq.Success {
			return fmt.Errorf("%v: unexpected completions: %v", n.addr, wcs)
		}
	}
	return o.agree()
}

// agree checks that both ends are on the same path.
func (o *operator) agree() error {
	for i, n := range o.nodes {
		if a, _ := n.Query(); a.AV != qp.NewAH(o.path(i, 0)) || a.State != qp.RTS {
			return fmt.Errorf("%v: state %v, path to %v after %d migrations", n.addr, a.State, n.Path().Config().Dst.Addr(), n.cnt.PathMigrations)
		}
		count := uint64(0)
		for _, e := range n.events {
			if e == qp.EventPathMig {
				count++
			}
		}
		if count != n.cnt.PathMigrations {
			return fmt.Errorf("%v: %d events PATH_MIG, %d migrations", n.addr, count, n.cnt.PathMigrations)
		}
		if o.w.imp.reorder+o.w.imp.dup == 0 && slices.Contains(n.events, qp.EventPathMigErr) {
			return fmt.Errorf("%v: PATH_MIG_ERR", n.addr)
		}
	}
	if a, b := o.nodes[0].cnt.PathMigrations, o.nodes[1].cnt.PathMigrations; a != b {
		return fmt.Errorf("%d and %d migrations", a, b)
	}
	return nil
}

// TestSimMigration runs the model of TestSimRC while the paths of the pair fail and recover and the programs migrate.
// Still all operations are executed in order and exactly once, and each end follows the migrations of the other.
func TestSimMigration(t *testing.T) {
	seeds, migrations := 0, 0
	runSeeds(t, func(t testing.TB, seed uint64, rng *rand.Rand, imp impairment, c pairConfig) (*network, [][2]*actor) {
		w, pairs := castRC(t, seed, rng, imp, c)
		o := newOperator(t, w, seed, 1+int(seed%4), pairs[0][0].node, pairs[0][1].node)
		w.verdict = func() error {
			seeds, migrations = seeds+1, migrations+int(o.nodes[0].cnt.PathMigrations)
			return o.verdict()
		}
		return w, pairs
	}, *simSeeds/3)
	if t.Logf("%d migrations", migrations); *simSeed == 0 && migrations < seeds {
		t.Errorf("%d migrations in %d seeds: the test covers too little", migrations, seeds)
	}
}

// TestSimMigrationUC is TestSimUC in both directions while programs migrate.
// There is no retry, so nothing migrates by itself; but on a network that loses
// nothing a migration loses nothing either.
func TestSimMigrationUC(t *testing.T) {
	const messages, size = 40, 3000
	migrations := uint64(0)
	for seed := uint64(1); seed <= 200; seed++ {
		perfect := seed%2 == 0
		imp := impairment{delay: 20 * time.Microsecond, jitter: 20 * time.Microsecond}
		if !perfect {
			imp.loss, imp.corrupt = 0.05, 0.05
		}
		a, b, w := newPair(t, seed, imp, pairConfig{typ: qp.UC, mtu: bth.MTU(1 + seed%5)})
		o := newOperator(t, w, seed, 1+int(seed%4), a, b)
		ends := [2]*talker{newTalker(t, a, messages, size), newTalker(t, b, messages, size)}
		for busy := true; busy; {
			busy = w.step(a, b)
			for _, e := range ends {
				busy = e.say(o.rng) || busy
			}
		}
		for i, e := range ends {
			if n, err := e.check(ends[1-i]); err != nil || perfect && n != messages {
				t.Fatalf("seed %d: %v: %d of %d messages, %v", seed, e.addr, n, messages, err)
			}
		}
		if o.broken != nil {
			t.Fatalf("seed %d: %v", seed, o.broken)
		}
		if perfect {
			o.left = 0
			for _, e := range ends { // the other end may not know of the last migration yet
				must(0, e.PostSend(&qp.SendWR{Opcode: qp.Write}))
			}
			for w.step(a, b) {
			}
			if err := o.agree(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		migrations += a.cnt.PathMigrations
	}
	if t.Logf("%d migrations", migrations); migrations < 200 {
		t.Errorf("%d migrations: the test covers too little", migrations)
	}
}

// talker sends numbered messages of random lengths and keeps what it gets.
type talker struct {
	*node
	lengths  []int
	src, dst []byte
	sm       *mr.MR
	size     int
	said     int
}

func newTalker(t *testing.T, n *node, messages, size int) *talker {
	k := &talker{node: n, lengths: make([]int, messages), size: size}
	var dm *mr.MR
	k.src, k.sm = n.region(t, messages*size)
	k.dst, dm = n.region(t, messages*size)
	for i := range messages {
		must(0, n.PostRecv(&qp.RecvWR{ID: uint64(i), SG: []mr.SGE{dm.SGE(i*size, size)}}))
	}
	return k
}

// say posts the next message and reports whether there was one.
func (k *talker) say(rng *rand.Rand) bool {
	i := k.said
	if i == len(k.lengths) {
		return false
	}
	k.said++
	k.lengths[i] = 8 + rng.IntN(k.size-8)
	m := k.src[i*k.size:][:k.lengths[i]]
	for j := range m {
		m[j] = byte(i + j)
	}
	binary.BigEndian.PutUint64(m, uint64(i))
	must(0, k.PostSend(&qp.SendWR{Opcode: qp.Send, SG: []mr.SGE{k.sm.SGE(i*k.size, k.lengths[i])}}))
	return true
}

// check checks that the messages from another talker arrived whole, in order and once.
func (k *talker) check(from *talker) (arrived int, err error) {
	last := -1
	for slot, wc := range drain(k.recv) {
		got := k.dst[slot*k.size:][:wc.ByteLen]
		i := int(binary.BigEndian.Uint64(got))
		if wc.Status != cq.Success || i <= last || i >= len(from.lengths) || !bytes.Equal(got, from.src[i*k.size:][:from.lengths[i]]) {
			return arrived, fmt.Errorf("receive %d: %v, message %d after %d, %d bytes", slot, wc.Status, i, last, wc.ByteLen)
		}
		last = i
		arrived++
	}
	return arrived, nil
}

package roce

import (
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
)

func shardsOf(n int) (s []*shard) {
	for i := range n {
		s = append(s, &shard{index: i})
	}
	return s
}

// TestDemux adds and removes queue pairs at random and compares with a map.
func TestDemux(t *testing.T) {
	for _, shards := range []int{1, 2, 3, 8} {
		rng := rand.New(rand.NewPCG(1, uint64(shards)))
		var d demux
		d.init(rng.Uint64, shards)
		owners := shardsOf(shards)
		known := map[bth.QPN]*QP{}
		var list []*QP
		for range 20_000 {
			if rng.IntN(5) < 3 {
				q := &QP{shard: owners[rng.IntN(shards)]}
				if err := d.add(0, q); err != nil {
					t.Fatal(err)
				}
				switch {
				case known[q.num] != nil:
					t.Fatalf("%v is in use twice", q.num)
				case q.num <= 0x10 || q.num >= bth.QPNMulticast:
					t.Fatalf("%v is reserved", q.num)
				case int(q.num)%shards != q.shard.index:
					t.Fatalf("%v is not of shard %d of %d", q.num, q.shard.index, shards)
				}
				known[q.num] = q
				list = append(list, q)
			} else if len(list) > 0 {
				i := rng.IntN(len(list))
				q := list[i]
				list = slices.Delete(list, i, i+1)
				delete(known, q.num)
				d.remove(0, q)
				if d.find(q.num) != nil {
					t.Fatalf("%v is found after it was removed", q.num)
				}
			}
			if used := d.qps.Len(); used != len(known) {
				t.Fatalf("%d used, want %d", used, len(known))
			}
			if n := bth.QPN(rng.Uint32()) & bth.PSNMask; d.find(n) != known[n] {
				t.Fatalf("find(%v) = %v", n, d.find(n))
			}
		}
		for n, q := range known {
			if d.find(n) != q {
				t.Fatalf("%v is lost", n)
			}
		}
		if got := len(d.all()); got != len(known) {
			t.Errorf("all() has %d, want %d", got, len(known))
		}
	}
}

// TestDemuxFull fills a device, all on one shard of several.
func TestDemuxFull(t *testing.T) {
	if testing.Short() {
		t.Skip("makes a million queue pairs")
	}
	for _, shards := range []int{1, 2} {
		var d demux
		d.init(rand.Uint64, shards)
		q := make([]QP, maxQP+1)
		s := shardsOf(shards)[shards-1]
		for i := range q {
			q[i].shard = s
			err := d.add(0, &q[i])
			if i < maxQP && err != nil || i == maxQP && !errors.Is(err, syscall.ENOMEM) {
				t.Fatalf("queue pair %d of %d: %v", i, maxQP, err)
			}
		}
		for i := range q[:maxQP] {
			if d.find(q[i].num) != &q[i] {
				t.Fatalf("%v is lost", q[i].num)
			}
		}
	}
}

// TestTimerHeap sets deadlines at random and compares with a sorted list.
func TestTimerHeap(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var h timerHeap
	qps := make([]*QP, 50)
	for i := range qps {
		qps[i] = &QP{deadline: mono.Never}
	}
	for range 50_000 {
		q := qps[rng.IntN(len(qps))]
		at := mono.Time(rng.IntN(100)) // many are equal
		if rng.IntN(3) == 0 {
			at = mono.Never
		}
		h.set(q, at)

		earliest, n := mono.Never, 0
		for _, q := range qps {
			earliest = min(earliest, q.deadline)
			if q.deadline != mono.Never {
				n++
			}
			if (q.timer != 0) != (q.deadline != mono.Never) || q.timer != 0 && h[q.timer-1] != (timer{q.deadline, q}) {
				t.Fatalf("a queue pair with deadline %v thinks that its place is %d", q.deadline, q.timer)
			}
		}
		if h.next() != earliest || len(h) != n {
			t.Fatalf("next() = %v of %d, want %v of %d", h.next(), len(h), earliest, n)
		}
		now := mono.Time(rng.IntN(100))
		if due := h.due(now); (due != nil) != (earliest <= now) || due != nil && due.deadline != earliest {
			t.Fatalf("due(%v) = %v, the earliest is at %v", now, due, earliest)
		}
	}
}

// TestGIDTable changes the addresses at random: an address keeps its index while
// it is there, and gets it back if it can.
func TestGIDTable(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var all []bth.GID
	for i := range 2 * maxGIDs {
		all = append(all, bth.GID{0: 0xFD, 14: byte(i >> 8), 15: byte(i)})
	}
	table := new(gidTable)
	for round := range 300 {
		pool := all[:10] // first few, later more than fit
		if round > 150 {
			pool = all
		}
		var want []bth.GID
		for _, i := range rng.Perm(len(pool))[:rng.IntN(min(len(pool), maxGIDs)+1)] {
			want = append(want, pool[i])
		}
		next, changed := table.update(want)
		differ := 0
		for i, g := range next.slots {
			old, _ := table.at(i)
			if g != old && !old.IsZero() {
				differ++ // one went
			}
			if g != old && !g.IsZero() {
				differ++ // one came
			}
			if !old.IsZero() && slices.Contains(want, old) && g != old {
				t.Fatalf("round %d: %v lost its index %d", round, old, i)
			}
			if !g.IsZero() && (!slices.Contains(want, g) || slices.Index(next.slots, g) != i) {
				t.Fatalf("round %d: %v is at index %d", round, g, i)
			}
			if round <= 150 && old.IsZero() && i < len(table.was) && !g.IsZero() && g != table.was[i] {
				t.Fatalf("round %d: index %d was %v's, and is given to %v", round, i, table.was[i], g)
			}
		}
		if changed != differ {
			t.Fatalf("round %d: %d changes reported, %d made", round, changed, differ)
		}
		for _, g := range want {
			if i, ok := next.index(g); !ok || next.slots[i] != g || !next.has(&g) {
				t.Fatalf("round %d: %v is not found", round, g)
			}
		}
		if len(next.slots) > maxGIDs || len(next.used) != len(want) {
			t.Fatalf("round %d: %d slots, %d of them used, want %d", round, len(next.slots), len(next.used), len(want))
		}
		if _, ok := next.index(bth.GID{}); ok || next.has(new(bth.GID)) {
			t.Fatalf("round %d: an empty slot is an address", round)
		}
		table = next
	}
}

// TestAttrStrings: every flag and value of the verbs has its name.
func TestAttrStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{DeviceCaps(0x01223C76).String(), "BAD_PKEY_CNTR|BAD_QKEY_CNTR|AUTO_PATH_MIG|CHANGE_PHY_PORT|UD_AV_PORT_ENFORCE|PORT_ACTIVE_EVENT|" +
			"SYS_IMAGE_GUID|RC_RNR_NAK_GEN|SRQ_RESIZE|MEM_WINDOW|MEM_MGT_EXTENSIONS|MEM_WINDOW_TYPE_2B"}, // rxe's
		{DeviceCaps(0).String(), "0x0"},
		{(CapXRC | 1<<60).String(), "XRC|0x1000000000000000"},
		{PortCMSupport.String(), "CM_SUP"},
		{AtomicGlob.String(), "ATOMIC_GLOB"}, {AtomicCap(7).String(), "AtomicCap(7)"},
		{PortActive.String(), "PORT_ACTIVE"}, {PortDown.String(), "PORT_DOWN"},
		{PhysLinkUp.String(), "LINK_UP"}, {LinkLayerEthernet.String(), "Ethernet"}, {GIDTypeRoCEv2.String(), "RoCE v2"},
		{Width4X.String(), "4X"}, {SpeedEDR.String(), "25.0 Gbps"}, {LinkSpeed(512).String(), "LinkSpeed(512)"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestWidthAndSpeed: no link is said to be slower than it is.
func TestWidthAndSpeed(t *testing.T) {
	lanes := map[LinkWidth]int{Width1X: 1, Width2X: 2, Width4X: 4, Width8X: 8, Width12X: 12}
	mbps := map[LinkSpeed]int{SpeedSDR: 2500, SpeedDDR: 5000, SpeedQDR: 10000, SpeedFDR10: 10000, SpeedFDR: 14000, SpeedEDR: 25000,
		SpeedHDR: 50000, SpeedNDR: 100000, SpeedXDR: 200000}
	for _, c := range []struct {
		mbps  int
		width LinkWidth
		speed LinkSpeed
	}{
		{0, Width1X, SpeedSDR}, {1000, Width1X, SpeedSDR}, {10_000, Width1X, SpeedFDR10}, {25_000, Width1X, SpeedEDR},
		{40_000, Width4X, SpeedFDR10}, {50_000, Width1X, SpeedHDR}, {100_000, Width4X, SpeedEDR}, {200_000, Width4X, SpeedHDR},
		{400_000, Width4X, SpeedNDR}, {800_000, Width4X, SpeedXDR},
	} {
		w, s := widthAndSpeed(c.mbps)
		if w != c.width || s != c.speed || lanes[w]*mbps[s] < c.mbps {
			t.Errorf("%d Mb/s is %v %v, want %v %v", c.mbps, w, s, c.width, c.speed)
		}
	}
}

// TestPaths: a path is shared as long as somebody has it, and forgotten afterwards.
func TestPaths(t *testing.T) {
	ps := newPaths()
	c := frame.PathConfig{Src: bth.GID{15: 1, 10: 0xFF, 11: 0xFF}, Dst: bth.GID{15: 2, 10: 0xFF, 11: 0xFF}, SrcPort: 49152, HopLimit: 64}
	get := func() *frame.Path {
		p, err := ps.get(c)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := get()
	runtime.GC()
	if q := get(); q != p {
		t.Error("made a second path while the first is in use")
	}
	other := c
	other.TrafficClass = 2
	if q, err := ps.get(other); err != nil || q.Equal(p) {
		t.Errorf("another configuration: %v, %v", q, err)
	}
	if _, err := ps.get(frame.PathConfig{}); err == nil {
		t.Error("a path from nowhere to nowhere")
	}
	runtime.KeepAlive(p)
	size := func() int {
		ps.mu.Lock()
		defer ps.mu.Unlock()
		return len(ps.inUse)
	}
	for end := time.Now().Add(10 * time.Second); size() > 0; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("%d paths are kept that nobody has", size())
		}
		runtime.GC()
	}
	if q := get(); !q.Equal(mustPath(t, c)) {
		t.Error("a path made again differs")
	}
}

func mustPath(t *testing.T, c frame.PathConfig) *frame.Path {
	t.Helper()
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

package nic

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"

	"github.com/goroce/roce/bth"
)

func shardsOf(n int) (s []*Shard) {
	for i := range n {
		s = append(s, &Shard{index: i})
	}
	return s
}

// TestDemux adds and removes queue pairs at random and compares with a map.
func TestDemux(t *testing.T) {
	for _, shards := range []int{1, 2, 3, 8} {
		rng := rand.New(rand.NewPCG(1, uint64(shards)))
		var d demux
		d.init(rng.Uint64, classesOf(shards, nil))
		owners := shardsOf(shards)
		known := map[bth.QPN]*QP{}
		var list []bth.QPN
		for range 20_000 {
			if rng.IntN(5) < 3 {
				q := &QP{shard: owners[rng.IntN(shards)]}
				n, err := d.add(0, q)
				if err != nil {
					t.Fatal(err)
				}
				switch {
				case known[n] != nil:
					t.Fatalf("%v is in use twice", n)
				case n <= 0x10 || n >= bth.QPNMulticast:
					t.Fatalf("%v is reserved", n)
				case int(n)%shards != q.shard.index:
					t.Fatalf("%v is not of shard %d of %d", n, q.shard.index, shards)
				}
				known[n] = q
				list = append(list, n)
			} else if len(list) > 0 {
				i := rng.IntN(len(list))
				n := list[i]
				list = slices.Delete(list, i, i+1)
				delete(known, n)
				d.remove(0, n)
				if d.find(n) != nil {
					t.Fatalf("%v is found after it was removed", n)
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
		d.init(rand.Uint64, classesOf(shards, nil))
		q := make([]QP, MaxQP+1)
		var numbers []bth.QPN
		s := shardsOf(shards)[shards-1]
		for i := range q {
			q[i].shard = s
			n, err := d.add(0, &q[i])
			numbers = append(numbers, n)
			if i < MaxQP && err != nil || i == MaxQP && !errors.Is(err, syscall.ENOMEM) {
				t.Fatalf("queue pair %d of %d: %v", i, MaxQP, err)
			}
		}
		for i := range q[:MaxQP] {
			if d.find(numbers[i]) != &q[i] {
				t.Fatalf("%v is lost", numbers[i])
			}
		}
	}
}

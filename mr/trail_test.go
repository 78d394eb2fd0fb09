package mr_test

import (
	"math/rand/v2"
	"testing"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mr"
)

// TestTrail: a trail that was used for other keys, or for the same key before it ended, finds the same as a lookup in
// the table.
func TestTrail(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	table := mr.NewTable(rng.Uint64)
	pds := []*mr.PD{mr.NewPD(), mr.NewPD()}
	var (
		trail mr.Trail
		live  []*mr.MR
		keys  []bth.RKey // ended keys, too
		found int
	)
	for range 50_000 {
		switch rng.IntN(20) {
		case 0:
			if len(live) < 50 {
				m, err := table.Register(pds[rng.IntN(2)], make([]byte, 64), mr.LocalWrite|mr.RemoteWrite|mr.RemoteRead, mr.Options{HasIOVA: true})
				if err != nil {
					t.Fatal(err)
				}
				live, keys = append(live, m), append(keys, m.RKey())
			}
		case 1:
			if n := len(live); n > 1 {
				i := rng.IntN(n)
				live[i].Deregister()
				live[i] = live[n-1]
				live = live[:n-1]
			}
		default:
			if len(keys) == 0 {
				continue
			}
			key := keys[max(0, len(keys)-1-rng.IntN(60))]
			if rng.IntN(10) == 0 {
				key ^= 1 << rng.IntN(32)
			}
			pd, n, need := pds[rng.IntN(2)], uint64(rng.IntN(70)), mr.RemoteWrite
			m1, off1, f1 := trail.Remote(table, pd, 1, key, 0, n, need)
			m2, off2, f2 := table.Remote(pd, 1, key, 0, n, need)
			if m1 != m2 || off1 != off2 || f1 != f2 {
				t.Fatalf("key %#x: %v at %d, want %v at %d", key, f1, off1, f2, off2)
			}
			if f1 == mr.OK {
				found++
			}
		}
	}
	if found < 100 {
		t.Errorf("%d keys found, the test covers too little", found)
	}
}

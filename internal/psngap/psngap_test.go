package psngap

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/goroce/roce/bth"
)

func list(l *List) (all []Range) {
	l.All(func(r Range) { all = append(all, r) })
	return all
}

func TestFill(t *testing.T) {
	for _, tt := range []struct {
		name string
		fill []bth.PSN
		want []Range
	}{
		{"nothing", nil, []Range{{0xFFFFFE, 2}, {10, 10}}},
		{"from the front", []bth.PSN{0xFFFFFE, 0xFFFFFF}, []Range{{0, 2}, {10, 10}}},
		{"from the end", []bth.PSN{2, 1}, []Range{{0xFFFFFE, 0}, {10, 10}}},
		{"in the middle", []bth.PSN{0}, []Range{{0xFFFFFE, 0xFFFFFF}, {1, 2}, {10, 10}}},
		{"a whole range", []bth.PSN{10}, []Range{{0xFFFFFE, 2}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := List{Limit: 10}
			l.Skip(0xFFFFFE, 2)
			l.Skip(10, 10)
			for _, psn := range tt.fill {
				if !l.Covers(psn) || !l.Fill(psn) || l.Covers(psn) || l.Fill(psn) {
					t.Errorf("psn %v is not filled once", psn)
				}
			}
			if got := list(&l); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if got := l.Missing(); got != 6-len(tt.fill) {
				t.Errorf("missing = %d, want %d", got, 6-len(tt.fill))
			}
			for _, psn := range []bth.PSN{0xFFFFFD, 3, 9, 11} {
				if l.Fill(psn) || l.Covers(psn) {
					t.Errorf("psn %v was not missing", psn)
				}
			}
		})
	}
}

// TestSet: a list has the same PSNs as a set after the same random steps.
func TestSet(t *testing.T) {
	const base = bth.PSN(0xFFFFC0) // so that numbers wrap
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		l := List{Limit: 200}
		var set [128]bool
		for range 100 {
			from := r.IntN(len(set))
			switch to := min(from+r.IntN(6), len(set)-1); r.IntN(2) {
			case 0:
				if !l.Add(base.Add(from), base.Add(to)) {
					t.Fatalf("seed %d: no room", seed)
				}
				for i := from; i <= to; i++ {
					set[i] = true
				}
			case 1:
				if got := l.Fill(base.Add(from)); got != set[from] {
					t.Fatalf("seed %d: Fill(%d) = %v", seed, from, got)
				}
				set[from] = false
			}
			missing := 0
			for i, in := range set {
				if l.Covers(base.Add(i)) != in {
					t.Fatalf("seed %d: psn %d is in the list: %v", seed, i, !in)
				}
				if in {
					missing++
				}
			}
			if l.Missing() != missing {
				t.Fatalf("seed %d: %d are missing, want %d", seed, l.Missing(), missing)
			}
			for i, all := 1, list(&l); i < len(all); i++ {
				if !all[i-1].To.Add(1).Less(all[i].From) {
					t.Fatalf("seed %d: ranges %v and %v touch or overlap", seed, all[i-1], all[i])
				}
			}
		}
	}
}

// TestLimit: the list keeps as many ranges as it may, and forgets the first of them.
func TestLimit(t *testing.T) {
	l := List{Limit: 4}
	for i := range 10 {
		l.Skip(bth.PSN(10*i), bth.PSN(10*i+4))
	}
	if want := []Range{{60, 64}, {70, 74}, {80, 84}, {90, 94}}; !slices.Equal(list(&l), want) {
		t.Errorf("got %v, want %v", list(&l), want)
	}
	if l.Add(0, 1) || l.Len() != 4 {
		t.Error("a range was added beyond the limit")
	}
	if !l.Fill(92) || l.Len() != 4 || l.First().From != 70 {
		t.Errorf("after a division: %v", list(&l))
	}
	if l.Drop(); l.Len() != 3 {
		t.Error("no range was dropped")
	}
	if l.Clear(); l.Len() != 0 || l.Missing() != 0 {
		t.Error("the list is not empty")
	}
}

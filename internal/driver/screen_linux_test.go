package driver

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// TestScreened compares the peers and the open queue pairs of a Screened with a model, over random steps.
func TestScreened(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	s := Screened{admitted: map[bth.QPN]peer{}, byAddress: map[bth.GID]peer{}}
	want := map[bth.QPN]bth.GID{}
	var left []bth.QPN
	for range 20000 {
		n, from := bth.QPN(rnd.IntN(200)), bth.GID{15: byte(rnd.IntN(12))} // 0: every address
		if rnd.IntN(3) == 0 {
			if _, ok := want[n]; ok {
				left = append(left, n)
			}
			delete(want, n)
			s.forget(n)
		} else {
			want[n] = from
			left = slices.DeleteFunc(left, func(o bth.QPN) bool { return o == n })
			s.admit(n, from)
		}
		left = left[max(0, len(left)-maxLeft):]
		peers := map[bth.GID]int{}
		var open []bth.QPN
		for n, from := range want {
			if from == (bth.GID{}) {
				open = append(open, n)
			} else {
				peers[from]++
			}
		}
		got := map[bth.GID]int{}
		for from, p := range s.byAddress {
			got[from] = s.peers[p-1].users
		}
		if !maps.Equal(got, peers) {
			t.Fatalf("peers %v, want %v", got, peers)
		}
		if len(open) > 0 {
			open = append(open, left...)
		}
		numbers := s.openNumbers()
		slices.Sort(numbers)
		slices.Sort(open)
		if !slices.Equal(numbers, open) {
			t.Fatalf("open %v, want %v", numbers, open)
		}
	}
	if len(s.peers) > 11 {
		t.Errorf("%d entries for 11 peers", len(s.peers))
	}
}

// A change is reported exactly if the verdict on some packet has changed.
func TestScreenedChange(t *testing.T) {
	a, b := bth.GID{15: 1}, bth.GID{15: 2}
	s := Screened{admitted: map[bth.QPN]peer{}, byAddress: map[bth.GID]peer{}}
	for i, step := range []struct {
		got, want bool
	}{
		{s.admit(1, a), true}, {s.admit(1, a), false}, {s.admit(2, a), false}, {s.admit(2, b), true}, {s.admit(1, b), true},
		{s.forget(1), false}, {s.admit(3, bth.GID{}), true}, {s.forget(3), true}, {s.forget(3), false}, {s.forget(2), true},
	} {
		if step.got != step.want {
			t.Errorf("step %d: changed is %v", i, step.got)
		}
	}
}

// TestScreenRoom: a socket may have room for little more than one program, while the kernel keeps the old one until it has the
// new one. The screen stays attached nevertheless, whatever changes. One without room is not attached.
func TestScreenRoom(t *testing.T) {
	const rest, more = 10, 15 // instructions of the two filters without a screen
	room, attached := 0, 0
	screened := false
	by := func(without int) func(*Screened) error {
		return func(s *Screened) error {
			n := without
			if s != nil {
				n = rest + s.size()
			}
			if attached+n > room {
				return unix.ENOMEM
			}
			attached, screened = n, s != nil
			return nil
		}
	}
	for _, want := range []bool{true, false} {
		room, attached, screened = 100, rest, false
		if want {
			room = 1000
		}
		s := NewScreen(new(link.Counters), by(rest))
		s.Flooded()
		for i := range 50 {
			s.Admit(bth.QPN(i+100), bth.GID{14: 1, 15: byte(i)})
		}
		if want {
			room = attached + peerLen + rest
		}
		for i, change := range []func(){
			func() { s.Admit(99, bth.GID{15: 1}) },
			func() {
				if err := s.Change(by(more)); err != nil {
					t.Errorf("Change: %v", err)
				}
			},
			func() { s.Forget(99) },
		} {
			if change(); screened != want {
				t.Errorf("after change %d the screen is attached: %v, want %v; room for %d, used %d", i, screened, want, room, attached)
			}
		}
		s.Close()
	}
}

package scenario_test

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/errs"
)

// TestPostLists: a list is queued up to the refused work request, which the error names.
func TestPostLists(t *testing.T) {
	bubble(t, func(t *testing.T) {
		a, b := newPair(t, 4096)
		tooMany := make([]roce.SGE, deepCaps.MaxSendSGE+1)
		wantPost := func(n int, err error, index int, errno syscall.Errno) {
			t.Helper()
			var qe *errs.Error
			if n != index || !errors.As(err, &qe) || !strings.HasPrefix(qe.Detail, fmt.Sprintf("work request %d of the list: ", index)) || !errors.Is(err, errno) {
				t.Errorf("%d posted, error %v; want work request %d refused with %v", n, err, index, errno)
			}
		}

		recvs := make([]roce.RecvWR, 4)
		for i := range recvs {
			recvs[i] = roce.RecvWR{ID: uint64(i), SG: []roce.SGE{b.mr.SGE(i*100, 100)}}
		}
		if n, err := b.qp.PostRecvs(recvs); n != 4 || err != nil {
			t.Fatalf("%d posted, %v", n, err)
		}
		n, err := b.qp.PostRecvs([]roce.RecvWR{recvs[0], recvs[1], {SG: tooMany}, recvs[2]})
		wantPost(n, err, 2, syscall.EINVAL)
		rest := make([]roce.RecvWR, deepCaps.MaxRecvWR)
		n, err = b.qp.PostRecvs(rest)
		wantPost(n, err, deepCaps.MaxRecvWR-6, syscall.ENOMEM)
		n, err = b.qp.PostRecvs(nil)
		if n != 0 || err != nil {
			t.Errorf("an empty list: %d, %v", n, err)
		}

		send := roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{a.mr.SGE(0, 100)}}
		n, err = a.qp.PostSends([]roce.SendWR{send, send, {Opcode: roce.Send, SG: tooMany}, send})
		wantPost(n, err, 2, syscall.EINVAL)
		n, err = a.qp.PostSends([]roce.SendWR{{Opcode: 99}})
		wantPost(n, err, 0, syscall.EINVAL)
		for i := range uint64(2) { // those before the bad one are done
			a.wait()
			if wc := b.wait(); wc.ID != i {
				t.Errorf("receive %d, want %d", wc.ID, i)
			}
		}

		check(t, a.qp.Close())
		for what, post := range map[string]func() (int, error){
			"PostSends": func() (int, error) { return a.qp.PostSends([]roce.SendWR{send}) },
			"PostRecvs": func() (int, error) { return a.qp.PostRecvs(recvs) },
		} {
			n, err := post()
			if n != 0 {
				t.Errorf("%s of a closed queue pair posted %d", what, n)
			}
			wantErr(t, what, err, roce.ErrClosed)
		}
	})
}

// TestPostListsDoNotAllocate: lists cost no more memory than single posts.
func TestPostListsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	d := newNetwork(t).device("10.0.0.1")
	p := newPeer(t, d, 4096)
	connect(t, p, p)
	sends, recvs, wcs := make([]roce.SendWR, 8), make([]roce.RecvWR, 8), make([]roce.WC, 16)
	for i := range sends {
		sends[i] = roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{p.mr.SGE(0, 100)}}
		recvs[i] = roce.RecvWR{SG: []roce.SGE{p.mr.SGE(1000, 100)}}
	}
	if n := testing.AllocsPerRun(100, func() {
		if n, err := p.qp.PostRecvs(recvs); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		if n, err := p.qp.PostSends(sends); n != 8 || err != nil {
			t.Fatal(n, err)
		}
		for left := 16; left > 0; {
			left -= p.cq.Poll(wcs)
		}
		if wcs[0].Status != cq.Success {
			t.Fatal(wcs[0])
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// TestSGEOutsideRefused: an element outside its region is never mapped to another range: its work request is refused, or
// fails.
func TestSGEOutsideRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, c := range []struct{ off, n int }{{0, -1}, {5, -5}, {0, math.MaxInt}, {-1, 1}, {-4, 8}, {100, 1}, {99, 2}, {0, 101}, {math.MinInt / 2, 1}} {
			n := newNetwork(t)
			a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 200)
			connect(t, a, b)
			wr := roce.SendWR{Opcode: roce.Write, Flags: roce.Signaled, SG: []roce.SGE{a.mr.SGE(c.off, c.n)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
			if err := a.qp.PostSend(&wr); err != nil {
				wantErr(t, "post", err, syscall.EINVAL)
			} else if wc := ok(a.cq.Next(within(t, time.Second)))(t); wc.Status != roce.StatusLocProtErr {
				t.Errorf("SGE(%d, %d): %v, want LOC_PROT_ERR", c.off, c.n, wc.Status)
			}
		}
	})
}

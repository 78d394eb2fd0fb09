//go:build linux

package sharing

import (
	"fmt"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/share"
)

// Processes open an address at the same time, while earlier processes end or are killed.
// All get slots, and one of them is the keeper. When they have ended, nothing is left.
func TestStartTogether(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		n, rounds := pick(10, 32), pick(9, 100)
		if testing.Short() {
			n, rounds = 4, 3
		}
		if *long && a.do != nil {
			rounds /= 4 // this test is nearly the same on all beds
		}
		idle := func() (list []*process) {
			for range n {
				list = append(list, a.start(t))
			}
			return list
		}
		list, next := idle(), idle()
		var slowest time.Duration
		for round := range rounds {
			slowest = max(slowest, openTogether(t, a, list))
			if t.Failed() {
				t.Fatalf("round %d", round)
			}
			old := list
			switch list, next = next, old; round % 3 {
			case 0:
				together(old, func(p *process) { p.call("Close", nil, nil) })
			case 1: // the next round starts meanwhile
				for _, p := range old {
					p.closing = p.Go("Close", nil, nil)
				}
			case 2:
				for _, p := range old {
					p.cmd.Process.Kill()
				}
				next = idle()
			}
		}
		t.Logf("the slowest had its place after %v", slowest)
		for _, p := range append(list, next...) {
			p.kill()
		}
		a.nothing(t)
	})
}

// openTogether makes processes open their devices at the same time, and checks that their slots
// differ. It returns the time of the slowest.
func openTogether(t *testing.T, a side, list []*process) (slowest time.Duration) {
	t.Helper()
	taken := map[share.Slot]int{}
	places := make(chan Opened, len(list))
	together(list, func(p *process) {
		p.settle()
		r := p.try()
		if r.Text != "" {
			t.Errorf("process %d after %v: %s", p.pid, r.Took, r.Text)
		}
		places <- r
	})
	for range list {
		r := <-places
		slowest = max(slowest, r.Took)
		if len(r.Slots) == 0 {
			t.Errorf("a process has no place, but a device: notes %q", r.Notes)
		}
		for _, s := range r.Slots {
			if taken[s]++; taken[s] > 1 {
				t.Errorf("slot %d is taken twice", s)
			}
		}
	}
	if len(taken) != len(list) {
		t.Errorf("%d processes have %d places", len(list), len(taken))
	}
	eventually(t, func() string { // the keeper of the last round may not have ended yet
		if k := a.keeper(); !slices.ContainsFunc(list, func(p *process) bool { return p.pid == k }) {
			return fmt.Sprintf("the keeper is process %d, none of those that have places", k)
		}
		return ""
	})
	if keepers := slices.DeleteFunc(a.names(t), isSlot); len(keepers) != 1 {
		t.Errorf("keepers: %q", keepers)
	}
	return slowest
}

// isSlot reports whether a socket is not the keeper's own, but that of a slot or of a connection
// with the keeper. Only the keeper's own socket listens.
func isSlot(line string) bool {
	var num, refs, protocol, flags, kind, state, inode string
	fmt.Sscan(line, &num, &refs, &protocol, &flags, &kind, &state, &inode)
	return flags != "00010000" // __SO_ACCEPTCON
}

// The number of slots is limited. A process that finds no free slot gets an error. It gets the slot
// of a process that was killed.
func TestPlacesRunOut(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		queues := func(n int) func(*Open) { return func(o *Open) { o.Queues = n } }
		first, second := a.member(t, queues(share.Slots/2)), a.member(t, queues(share.Slots/2-1))
		last, late := a.member(t), a.start(t)
		wants(t, "a process too many", late.try().Failure, syscall.ENOSPC, a.key, "0 of 64 are free")
		last.kill()
		began := time.Now()
		eventually(t, func() string { return late.try().Text })
		t.Logf("the place of a process that was killed could be had after %v", time.Since(began))
		second.kill()
		again := a.start(t)
		eventually(t, func() string { return again.try(queues(share.Slots/2 - 1)).Text })
		first.kill() // the keeper
		again.echo(firstPort)
		eventually(t, func() string { return a.start(t).try(queues(share.Slots / 2)).Text })
		late.exchange(Exchange{To: []string{again.at()}, Conns: 1, Messages: 1, Size: 10})
	})
}

// A port has one listener among all processes, until its process closes it or dies. Ports that are
// chosen for port 0 differ.
func TestListeners(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		list := a.members(t, 4)
		ephemeral := map[uint16]int{}
		for _, p := range list {
			for range 20 {
				var h Held
				if p.call("Hold", Port{}, &h); h.Text != "" {
					t.Fatalf("process %d: %s", p.pid, h.Text)
				}
				if other := ephemeral[h.Port]; other != 0 {
					t.Errorf("processes %d and %d both picked port %d", other, p.pid, h.Port)
				}
				ephemeral[h.Port] = p.pid
			}
		}
		held := func(p *process) (h Held) {
			p.call("Hold", Port{firstPort}, &h)
			return h
		}
		if h := held(list[2]); h.Text != "" {
			t.Fatal(h.Text)
		}
		holder := fmt.Sprintf("process %d ", list[2].pid)
		for _, p := range []*process{list[0], list[1], list[3]} {
			wants(t, "a second listener", held(p).Failure, syscall.EADDRINUSE, holder)
		}
		list[2].call("Release", nil, nil)
		eventually(t, func() string { return held(list[1]).Text })
		list[1].kill()
		took := eventually(t, func() string { return held(list[3]).Text })
		t.Logf("the port of a process that was killed could be had after %v", took)
		for _, p := range list {
			if p.pid == a.keeper() && p != list[3] {
				p.kill()
			}
		}
		wants(t, "a second listener after the keeper was killed", held(a.member(t)).Failure, syscall.EADDRINUSE, fmt.Sprintf("process %d ", list[3].pid))
	})
}

// A process can open an address exclusively if no process has it, and then no other process can
// open it.
func TestExclusive(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		alone := func(o *Open) { o.Exclusive = true }
		p, q := a.member(t, alone), a.start(t)
		wants(t, "beside one that has the address for itself", q.try().Failure, syscall.EADDRINUSE)
		wants(t, "two that want it for themselves", q.try(alone).Failure, syscall.EADDRINUSE)
		p.kill()
		eventually(t, func() string { return q.try().Text })
		wants(t, "one that wants the address for itself beside one that shares it", a.start(t).try(alone).Failure, syscall.EADDRINUSE)
	})
}

// Only processes of one user share an address. A process of another user gets an error that names
// the user.
func TestUsers(t *testing.T) {
	if unix.Geteuid() != 0 {
		t.Skip("needs root, to start processes of other users")
	}
	t.Parallel()
	a := loopback()
	p := a.member(t)
	as := func(uid uint32) func(*exec.Cmd) {
		return func(c *exec.Cmd) { c.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: uid} }
	}
	q := a.start(t, as(65534))
	var before, after Vitals
	p.call("Vitals", nil, &before)
	q.call("Pester", Pester{a.key, 1000}, nil)
	a.member(t).kill()
	eventually(t, func() string {
		if p.call("Vitals", nil, &after); after.Descriptors > before.Descriptors+20 {
			return fmt.Sprintf("1000 connections of another user cost the keeper %d descriptors", after.Descriptors-before.Descriptors)
		}
		return ""
	})
	wants(t, "another user", q.try().Failure, syscall.EADDRINUSE, "user 0", fmt.Sprintf("process %d", p.pid), "65534")
	p.kill()
	eventually(t, func() string { return q.try().Text })
	wants(t, "root beside another user", a.start(t).try().Failure, syscall.EADDRINUSE, "user 65534", fmt.Sprintf("process %d", q.pid))
	r := a.start(t, as(65534))
	if o := r.try(); o.Text != "" {
		t.Errorf("the second process of the user: %s", o.Text)
	}
	q.echo(firstPort)
	r.exchange(Exchange{To: []string{q.at()}, Conns: 2, Messages: 5, Size: 3000})
}

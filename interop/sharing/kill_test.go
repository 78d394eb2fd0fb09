//go:build linux

package sharing

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/share"
)

// Processes are killed, the keeper more often than others, and replaced, while all transfer data.
// Only connections of killed processes end, and their peers learn it soon.
func TestKill(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		n, lasts := pick(3, 6), pick(3*time.Second, *killing)
		if *long && a.do != nil {
			lasts /= 4 // this test is nearly the same on all beds
		}
		end := time.Now().Add(lasts)
		rng := rand.New(rand.NewPCG(1, uint64(serial.Add(1))))
		r := &room{t: t, sides: [2]side{a, b}, rng: rng}
		for i := range 2 * n {
			r.enter(i % 2)
		}
		for _, p := range r.all {
			r.connect(p)
		}
		elder := r.all[0] // never killed
		var before, after Vitals
		elder.call("Vitals", nil, &before)
		var worst, told time.Duration
		kills := 0
		for ; time.Now().Before(end); kills++ {
			victim := r.victim(elder)
			killed := time.Now()
			victim.kill()
			r.all = slices.DeleteFunc(r.all, func(p *process) bool { return p == victim })
			if took := r.reach(victim.side); took > worst {
				worst = took
			}
			told = max(told, r.check(victim, killed))
			r.connect(r.enter(slices.IndexFunc(r.sides[:], func(s side) bool { return s.open == victim.side.open })))
			time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
		}
		elder.call("Vitals", nil, &after)
		t.Logf("%d processes killed; at worst a new connection took %v, and a peer was told after %v; the eldest process: %d descriptors, %d goroutines, %d KB, then %d, %d, %d KB",
			kills, worst, told, before.Descriptors, before.Goroutines, before.Heap>>10, after.Descriptors, after.Goroutines, after.Heap>>10)
		if *long && worst > time.Second { // a long run needs a machine without other load
			t.Errorf("a new connection took %v", worst)
		}
		r.vitals(elder, after)
		together(r.all, func(p *process) { p.call("Close", nil, nil) })
		a.nothing(t)
		b.nothing(t)
	})
}

// quiet is the time without a message after which a connection counts as hanging. It is longer than a process may
// have to wait for a processor.
const quiet = 20 * time.Second

// room has the processes of TestKill.
type room struct {
	t     *testing.T
	sides [2]side
	rng   *rand.Rand
	all   []*process
	ports uint16
}

// enter starts a process with an echo service.
func (r *room) enter(at int) *process {
	p := r.sides[at].member(r.t)
	r.ports++
	p.echo(firstPort + r.ports)
	r.all = append(r.all, p)
	return p
}

// connect makes permanent connections between a process and others: one process on its own address and one on the
// other address, in both directions.
func (r *room) connect(p *process) {
	for _, there := range []bool{true, false} {
		q := r.other(p, there)
		if q == nil {
			continue
		}
		keep(p, q)
		keep(q, p)
	}
}

func keep(p, q *process) {
	var f Failure
	if p.call("Keep", Keep{To: q.at(), Peer: q.pid, Size: 3000}, &f); f.Text != "" {
		p.t.Errorf("process %d: connection to process %d: %s", p.pid, q.pid, f.Text)
	}
}

// other picks another process, on the same address or on the other one.
func (r *room) other(p *process, same bool) *process {
	var list []*process
	for _, q := range r.all {
		if q != p && (q.side.open == p.side.open) == same {
			list = append(list, q)
		}
	}
	if len(list) == 0 {
		return nil
	}
	return list[r.rng.IntN(len(list))]
}

// victim picks the process to kill: every other time a keeper.
func (r *room) victim(elder *process) *process {
	for {
		p := r.all[r.rng.IntN(len(r.all))]
		if r.rng.IntN(2) == 0 {
			k := r.sides[r.rng.IntN(2)].keeper()
			if i := slices.IndexFunc(r.all, func(p *process) bool { return p.pid == k }); i >= 0 {
				p = r.all[i]
			}
		}
		if p != elder {
			return p
		}
	}
}

// reach returns the time for connecting to a process on an address.
func (r *room) reach(s side) time.Duration {
	began := time.Now()
	for _, q := range r.all {
		if q.side.open == s.open {
			r.other(q, false).exchange(Exchange{To: []string{q.at()}, Conns: 1, Messages: 1, Size: 100})
			break
		}
	}
	return time.Since(began)
}

// check waits until the connections of the peers of a killed process have ended, and checks that all other
// connections work. It returns the time from the kill to that end.
func (r *room) check(victim *process, killed time.Time) time.Duration {
	r.t.Helper()
	eventually(r.t, func() string {
		var waiting []string
		for _, p := range r.all {
			for _, s := range p.states() {
				switch {
				case s.Peer == victim.pid && !s.Over:
					waiting = append(waiting, fmt.Sprintf("process %d does not know that process %d is dead: %+v", p.pid, victim.pid, s))
				case r.alive(s.Peer) && (s.Over || s.Quiet > quiet):
					r.t.Errorf("process %d: connection with process %d, which lives: %+v", p.pid, s.Peer, s)
				}
			}
		}
		if r.t.Failed() {
			r.t.FailNow()
		}
		return strings.Join(waiting, "\n")
	})
	return time.Since(killed)
}

func (r *room) alive(pid int) bool {
	return slices.ContainsFunc(r.all, func(p *process) bool { return p.pid == pid })
}

// states returns the states of the connections of a process.
func (p *process) states() []State {
	p.t.Helper()
	var s States
	p.call("States", nil, &s)
	return append(s.Dialed, s.Served...)
}

// vitals checks that the oldest process keeps nothing of processes that have ended: it must not have
// many more descriptors, goroutines and memory than a new one.
func (r *room) vitals(elder *process, v Vitals) {
	r.t.Helper()
	young := r.all[len(r.all)-1]
	var y Vitals
	young.call("Vitals", nil, &y)
	// A process keeps a socket for each slot to which it has ever passed packets. In a long run these are all
	// slots.
	if v.Descriptors > y.Descriptors+pick(10, share.Slots) {
		r.t.Errorf("the eldest process has %d descriptors, the youngest %d", v.Descriptors, y.Descriptors)
	}
	if live := len(elder.states()); v.Goroutines > y.Goroutines+20+live {
		r.t.Errorf("the eldest process has %d goroutines, the youngest %d", v.Goroutines, y.Goroutines)
	}
	if v.Heap > 2*y.Heap+32<<20 {
		r.t.Errorf("the eldest process has %d bytes on the heap, the youngest %d", v.Heap, y.Heap)
	}
}

// While the keeper is stopped, other processes can transfer data and connect. A process that needs a slot
// or a port gets an error that names the keeper, and gets the slot or port after the keeper continues.
func TestStop(t *testing.T) {
	t.Parallel()
	a := loopback()
	list := a.members(t, 3)
	at := slices.IndexFunc(list, func(p *process) bool { return p.pid == a.keeper() })
	if at < 0 {
		t.Fatal("no keeper")
	}
	keeper := list[at]
	list = slices.Delete(list, at, at+1)
	p, q := list[0], list[1]
	q.echo(firstPort)
	keep(p, q)
	late := a.start(t)
	keeper.signal(syscall.SIGSTOP)
	stopped := fmt.Sprintf("process %d", keeper.pid)
	var r Opened
	opening := late.Go("Open", a.open, &r)
	p.exchange(Exchange{To: []string{q.at()}, Conns: 3, Messages: 10, Size: 5000})
	var h Held
	p.call("Hold", Port{firstPort + 1}, &h)
	wants(t, "a port while the keeper is stopped", h.Failure, syscall.ETIMEDOUT, stopped)
	<-opening.Done
	wants(t, "a place while the keeper is stopped", r.Failure, syscall.ETIMEDOUT, stopped)
	t.Logf("told after %v and %v", h.Took, r.Took)
	for _, s := range append(p.states(), q.states()...) {
		if s.Over || s.Quiet > quiet {
			t.Errorf("a connection while the keeper is stopped: %+v", s)
		}
	}
	keeper.signal(syscall.SIGCONT)
	eventually(t, func() string { return late.try().Text })
	h = Held{}
	if p.call("Hold", Port{firstPort + 1}, &h); h.Text != "" {
		t.Errorf("a port when the keeper goes on: %s", h.Text)
	}
	keeper.signal(syscall.SIGSTOP)
	r = Opened{}
	opening = a.start(t).Go("Open", a.open, &r)
	h = Held{}
	holding := p.Go("Hold", Port{firstPort + 2}, &h)
	time.Sleep(100 * time.Millisecond)
	keeper.kill() // the waiting process then gets its slot or port
	<-opening.Done
	<-holding.Done
	if h.Text != "" {
		t.Errorf("a port when the keeper that was stopped is dead: after %v %s", h.Took, h.Text)
	}
	if r.Text != "" {
		t.Errorf("a place when the keeper that was stopped is dead: after %v %s", r.Took, r.Text)
	}
}

// A stopped process does not become the keeper; a running one does. If all processes are stopped, a new process
// waits for them, and at last gets an error that says so.
func TestHeirStopped(t *testing.T) {
	t.Parallel()
	a := loopback()
	keeper := a.member(t)
	heir, other := a.member(t), a.member(t)
	heir.echo(firstPort)
	heir.signal(syscall.SIGSTOP)
	keeper.kill()
	other.echo(firstPort + 1)
	late := a.member(t)
	late.exchange(Exchange{To: []string{other.at()}, Conns: 1, Messages: 1, Size: 10})
	other.kill()
	late.kill()
	late = a.start(t)
	var r Opened
	opening := late.Go("Open", a.open, &r)
	if *long {
		<-opening.Done
		wants(t, "a place when all are stopped", r.Failure, syscall.ETIMEDOUT, a.open.Addr.String(), "stopped")
		r = Opened{}
		opening = late.Go("Open", a.open, &r)
	}
	select {
	case <-opening.Done:
		t.Errorf("a place when all are stopped: %q", r.Text)
	case <-time.After(500 * time.Millisecond):
	}
	heir.signal(syscall.SIGCONT)
	<-opening.Done
	if r.Text != "" {
		t.Fatalf("a place when the heir goes on: %s", r.Text)
	}
	late.exchange(Exchange{To: []string{heir.at()}, Conns: 1, Messages: 1, Size: 10})
	if k := a.keeper(); k != heir.pid {
		t.Errorf("the keeper is process %d, not process %d", k, heir.pid)
	}
}

//go:build linux

package sharing

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/interop/quota"
)

// A process that gets no processor for some time does not lose its connections: they continue when the process
// continues, on its own address and with other addresses, and every message comes back unchanged.
func TestStandstill(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		all := crowd(t, a, b)
		for round := range 9 {
			before := states(all)
			p := all[round%len(all)]
			p.signal(syscall.SIGSTOP)
			time.Sleep(100 * time.Millisecond) // about as long as other processes may use the processor
			p.signal(syscall.SIGCONT)
			goOn(t, all, before, 2)
		}
	})
}

// A process with a quota of processor time, like a container, is stopped in most periods. Its connections are
// slow, but work.
func TestQuota(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		all := crowd(t, a, b)
		g, err := quota.New(0.1)
		if err != nil {
			netlab.Lacking(t, "quota of processor time", err)
		}
		p := all[0]
		if err := g.Add(p.pid); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() string {
			n, err := g.Throttled()
			if err != nil {
				t.Fatal(err)
			}
			if n < 10 {
				return fmt.Sprintf("process %d was stopped %d times", p.pid, n)
			}
			return ""
		})
		goOn(t, all, states(all), 10)
		if err := g.Close(); err != nil {
			t.Error(err)
		}
		goOn(t, all, states(all), 10)
	})
}

// crowd starts processes on two addresses, each of which keeps connections to all.
func crowd(t *testing.T, a, b side) []*process {
	t.Helper()
	all := append(a.members(t, 2), b.member(t))
	for i, p := range all {
		p.echo(firstPort + uint16(i))
	}
	for _, p := range all {
		for _, q := range all {
			if p != q {
				keep(p, q)
			}
		}
	}
	return all
}

// states returns the connections of processes.
func states(all []*process) (list [][]State) {
	for _, p := range all {
		list = append(list, p.states())
	}
	return list
}

// goOn waits until each connection has exchanged some more messages than before. No connection may have ended.
func goOn(t *testing.T, all []*process, before [][]State, more int) {
	t.Helper()
	eventually(t, func() string {
		for i, now := range states(all) {
			for k, s := range now {
				switch {
				case s.Over:
					t.Fatalf("process %d: %+v", all[i].pid, s)
				case k < len(before[i]) && s.Messages < before[i][k].Messages+more:
					return fmt.Sprintf("process %d: no progress: %+v", all[i].pid, s)
				}
			}
		}
		return ""
	})
}

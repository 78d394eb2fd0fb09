//go:build linux

package sharing

import (
	"fmt"
	"syscall"
	"testing"
	"time"
)

// A process that has no processor for a while is neither gone nor behind a network that loses packets: its connections go
// on when it does, on its own address and with others, and every message comes back as it was sent.
func TestStandstill(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
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
		for round := range pick(9, 300) {
			var before [][]State
			for _, p := range all {
				before = append(before, p.states())
			}
			p := all[round%len(all)]
			p.signal(syscall.SIGSTOP)
			time.Sleep(100 * time.Millisecond) // about as long as a turn of others may take
			p.signal(syscall.SIGCONT)
			eventually(t, func() string {
				for i, p := range all {
					for k, s := range p.states() {
						switch {
						case s.Over:
							t.Fatalf("round %d, process %d: %+v", round, p.pid, s)
						case k < len(before[i]) && s.Messages <= before[i][k].Messages+1:
							return fmt.Sprintf("process %d: nothing goes on: %+v", p.pid, s)
						}
					}
				}
				return ""
			})
		}
	})
}

//go:build !race

// The race detector touches the memory in code of its own, where a fault cannot be caught.

package scenario_test

import (
	"os"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
)

// TestForeignMemory: if the program unmaps memory, the work requests that touch it fail, at either end, and no others.
func TestForeignMemory(t *testing.T) {
	for name, c := range map[string]struct {
		gone   bool // the requester's memory; otherwise the responder's
		op     roce.Opcode
		status cq.Status
	}{
		"WRITE from":  {true, roce.Write, cq.LocProtErr},
		"WRITE to":    {false, roce.Write, cq.RemAccessErr},
		"READ from":   {false, roce.Read, cq.RemAccessErr},
		"READ to":     {true, roce.Read, cq.LocProtErr},
		"SEND from":   {true, roce.Send, cq.LocProtErr},
		"FETCH_ADD":   {false, roce.FetchAdd, cq.RemAccessErr},
		"FETCH_ADD 2": {true, roce.FetchAdd, cq.LocProtErr},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t, 4096)
			at := b
			if c.gone {
				at = a
			}
			buf, err := syscall.Mmap(-1, 0, os.Getpagesize(), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
			check(t, err)
			defer syscall.Munmap(buf)
			at.mr = ok(at.pd.RegMRForeign(buf, 0x1000, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead|roce.RemoteAtomic))(t)
			a.post(roce.Write, 0, 8, b, 0)
			a.wait()
			check(t, syscall.Mprotect(buf, syscall.PROT_NONE))
			if c.op == roce.Send {
				b.recv(0, 8)
			}
			a.post(c.op, 0, 8, b, 0)
			a.waitFor(c.status)
			check(t, syscall.Mprotect(buf, syscall.PROT_READ|syscall.PROT_WRITE))
		})
	}
}

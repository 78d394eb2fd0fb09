//go:build linux

package verbs

import (
	"context"
	"runtime"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
)

// NewMemory makes the roles that measure the memory of idle queue pairs. The active end makes
// as many connected queue pairs as s says, with the default queue sizes, and compares the heap
// before and after. The other end does nothing.
func NewMemory(s harness.Spec) (harness.Role, error) { return &memory{spec: s}, nil }

type memory struct {
	harness.Alone
	spec harness.Spec
	end  *endpoint
}

func (m *memory) Close() error { return m.end.Close() }

func (m *memory) Run(ctx context.Context) (none harness.Measure, err error) {
	if !m.spec.Active {
		<-ctx.Done()
		return none, nil
	}
	one := m.spec
	one.QPs = 1
	if m.end, err = newEndpoint(one, 64, 1, 1); err != nil {
		return none, err
	}
	n := max(m.spec.QPs, 1)
	before := heap()
	for range n {
		if err := m.end.add(roce.QPConfig{SendCQ: m.end.cq, Caps: roce.DefaultCaps}); err != nil {
			return none, err
		}
	}
	m.end.qps = m.end.qps[1:]
	var peer offer
	for i := range m.end.qps {
		peer.QPNs = append(peer.QPNs, uint32(i+16))
	}
	if err := m.end.connect(peer); err != nil {
		return none, err
	}
	return harness.Measure{Value: (float64(heap()) - float64(before)) / float64(n)}, nil
}

// heap returns the bytes in use after a garbage collection.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}

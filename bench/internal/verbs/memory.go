//go:build linux

package verbs

import (
	"context"
	"encoding/json"
	"runtime"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/trial"
)

// NewMemory makes the roles of what idle queue pairs cost: the active end makes
// as many as the Spec says, connected, with the default queue sizes, and looks at the heap
// before and behind. The other does nothing.
func NewMemory(s trial.Spec) (trial.Role, error) { return &memory{spec: s}, nil }

type memory struct {
	spec trial.Spec
	*rig
}

func (m *memory) Prepare() (any, error) { return "", nil }

func (m *memory) Connect(json.RawMessage) error { return nil }

func (m *memory) Close() error {
	if m.rig == nil {
		return nil
	}
	return m.close()
}

func (m *memory) Run(ctx context.Context) (trial.Measure, error) {
	if !m.spec.Active {
		<-ctx.Done()
		return trial.Measure{}, nil
	}
	one := m.spec
	one.QPs = 1
	var err error
	if m.rig, err = newRig(one, 64, 1, 1); err != nil {
		return trial.Measure{}, err
	}
	n := max(m.spec.QPs, 1)
	before := heap()
	for range n {
		q, err := m.pd.CreateQP(roce.QPConfig{SendCQ: m.cq, Caps: roce.DefaultCaps})
		if err != nil {
			return trial.Measure{}, err
		}
		if err := q.Init(access, 0); err != nil {
			return trial.Measure{}, err
		}
		m.qps = append(m.qps, q)
	}
	m.qps = m.qps[1:]
	peer := offer{}
	for i := range m.qps {
		peer.QPNs = append(peer.QPNs, uint32(i+16))
	}
	if err := m.connect(peer); err != nil {
		return trial.Measure{}, err
	}
	perQP := (float64(heap()) - float64(before)) / float64(n)
	return trial.Measure{Value: perQP}, nil
}

// heap is what is in use once the garbage is gone.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.HeapAlloc + s.StackInuse
}

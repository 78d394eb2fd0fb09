package ofi

import (
	"cmp"
	"sync"

	"github.com/goroce/roce"
)

// SharedRecv is a shared receive context (fi_srx_context): several endpoints take receives
// from it.
type SharedRecv struct {
	domain *Domain
	id     uint64 // in the domain, from 1
	srq    *roce.SRQ

	mu  sync.Mutex
	ops ops
}

// OpenSharedRecv makes a shared receive context for size receives. 0: the default.
func (d *Domain) OpenSharedRecv(size int) (*SharedRecv, error) {
	s, err := d.pd.CreateSRQ(roce.SRQConfig{MaxWR: cmp.Or(size, defaultSize), MaxSGE: defaultIOV})
	if err != nil {
		return nil, err
	}
	x := &SharedRecv{domain: d, srq: s}
	d.mu.Lock()
	defer d.mu.Unlock()
	for x.id == 0 || d.srxs[x.id] != nil {
		d.lastSRX = d.lastSRX%sharedMask + 1
		x.id = d.lastSRX
	}
	d.srxs[x.id] = x
	return x, nil
}

// shared finds the shared context of a work request ID, nil if it has none.
func (d *Domain) shared(wrID uint64) *SharedRecv {
	id := wrID >> sharedShift & sharedMask
	if id == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.srxs[id]
}

// Recv posts a receive. It completes in the queue of the endpoint whose message takes it.
func (s *SharedRecv) Recv(buf []byte, desc Desc, ctx any) error {
	sg, err := gather("recv", buf, desc)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.ops.add(operation{ctx, buf, OpRecv | OpMsg, true})
	if err := s.srq.PostRecv(&roce.RecvWR{ID: recvID | s.id<<sharedShift | id, SG: sg}); err != nil {
		s.ops.take(id)
		return again("recv", err)
	}
	return nil
}

func (s *SharedRecv) taken(id uint64) (operation, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops.take(id)
}

// Close ends the context. EBUSY while endpoints are bound to it.
func (s *SharedRecv) Close() error {
	if err := s.srq.Close(); err != nil {
		return err
	}
	s.domain.mu.Lock()
	defer s.domain.mu.Unlock()
	delete(s.domain.srxs, s.id)
	return nil
}

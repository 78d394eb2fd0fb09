package ofi

import (
	"sync"

	"github.com/goroce/roce"
)

// SharedRecv is a shared receive context (fi_srx_context): receives that several
// endpoints take from.
type SharedRecv struct {
	srq *roce.SRQ

	mu  sync.Mutex
	ops ops
}

// OpenSharedRecv makes a shared receive context for size receives. 0: the default.
func (d *Domain) OpenSharedRecv(size int) (*SharedRecv, error) {
	if size == 0 {
		size = defaultSize
	}
	s, err := d.pd.CreateSRQ(roce.SRQConfig{MaxWR: size, MaxSGE: defaultIOV})
	if err != nil {
		return nil, err
	}
	return &SharedRecv{srq: s}, nil
}

// Recv posts a receive, which completes into the queue of the endpoint whose
// message takes it.
func (s *SharedRecv) Recv(buf []byte, desc Desc, ctx any) error {
	sg, err := gather("recv", buf, desc)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.ops.add(operation{ctx, buf, OpRecv | OpMsg, true})
	if err := s.srq.PostRecv(&roce.RecvWR{ID: recvID | id, SG: sg}); err != nil {
		s.ops.take(id)
		return again("recv", err)
	}
	return nil
}

func (s *SharedRecv) taken(id uint64) operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ops.take(id)
}

// Close ends the context. EBUSY while endpoints are bound to it.
func (s *SharedRecv) Close() error { return s.srq.Close() }

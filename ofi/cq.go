package ofi

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"syscall"

	"github.com/goroce/roce"
)

// Format says which fields of an [Entry] a completion queue fills in, with the
// values of enum fi_cq_format.
type Format uint8

const (
	FormatUnspec  Format = 0 // as FormatContext
	FormatContext Format = 1 // Context
	FormatMsg     Format = 2 // and Flags, Len
	FormatData    Format = 3 // and Buf, Data
)

// OpFlags are the operation of an entry, with the values of libfabric.
type OpFlags uint64

const (
	OpMsg          OpFlags = 1 << 1  // FI_MSG
	OpRMA          OpFlags = 1 << 2  // FI_RMA
	OpAtomic       OpFlags = 1 << 4  // FI_ATOMIC
	OpRead         OpFlags = 1 << 8  // FI_READ
	OpWrite        OpFlags = 1 << 9  // FI_WRITE
	OpRecv         OpFlags = 1 << 10 // FI_RECV
	OpSend         OpFlags = 1 << 11 // FI_SEND
	OpRemoteWrite  OpFlags = 1 << 13 // FI_REMOTE_WRITE: the peer's WriteData
	OpRemoteCQData OpFlags = 1 << 17 // FI_REMOTE_CQ_DATA: Data is valid
	opInject       OpFlags = 1 << 63 // delivers no entry
)

// Entry is a completion (struct fi_cq_data_entry).
type Entry struct {
	Context any
	Flags   OpFlags
	Len     int
	Buf     []byte
	Data    uint32
}

// CQError is a failed transfer (struct fi_cq_err_entry). It unwraps to Err:
// ECANCELED for one that was canceled or flushed, EIO otherwise.
type CQError struct {
	Entry
	Endpoint  *Endpoint
	Err       syscall.Errno
	ProvErrno roce.Status // of the work request
}

func (e *CQError) Error() string {
	return fmt.Sprintf("ofi: transfer failed: %v (%v)", e.Err, e.ProvErrno)
}

// Unwrap returns Err.
func (e *CQError) Unwrap() error { return e.Err }

// CQ is a completion queue (struct fid_cq).
type CQ struct {
	domain *Domain
	cq     *roce.CQ
	format Format

	mu        sync.Mutex
	endpoints map[roce.QPN]*Endpoint
	batch     [32]roce.WC
	wcs       []roce.WC // polled and not delivered, oldest first
}

// OpenCQ opens a completion queue for size entries (fi_cq_open). 0: the default.
func (d *Domain) OpenCQ(size int, format Format) (*CQ, error) {
	if format > FormatData {
		return nil, fail("cq_open", syscall.ENOSYS, "format %d is not offered", format)
	}
	q, err := d.dev.CreateCQ(cmp.Or(size, 2*defaultSize))
	if err != nil {
		return nil, err
	}
	return &CQ{domain: d, cq: q, format: format, endpoints: map[roce.QPN]*Endpoint{}}, nil
}

func (q *CQ) attach(e *Endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.endpoints[e.qp.Num()] = e
}

func (q *CQ) detach(e *Endpoint) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.endpoints[e.qp.Num()] == e {
		delete(q.endpoints, e.qp.Num())
	}
}

// Read takes up to len(dst) completions without waiting (fi_cq_read): EAGAIN when there is none. For a failed
// transfer it returns a *[CQError] and no entries; it returns earlier completions first.
func (q *CQ) Read(dst []Entry) (n int, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for n < len(dst) {
		if len(q.wcs) == 0 {
			// Poll only as many as dst takes: another reader may wait for the rest.
			q.wcs = q.batch[:q.cq.Poll(q.batch[:min(len(q.batch), len(dst)-n)])]
			if len(q.wcs) == 0 {
				break
			}
		}
		wc := &q.wcs[0]
		if wc.Status != roce.StatusSuccess && n > 0 {
			break
		}
		q.wcs = q.wcs[1:]
		e, deliver, err := q.entry(wc)
		switch {
		case err != nil:
			return 0, err
		case deliver:
			dst[n] = e
			n++
		}
	}
	if n == 0 && len(dst) > 0 {
		return 0, syscall.EAGAIN
	}
	return n, nil
}

// entry makes an entry from a completion. It drops completions of a closed endpoint, except those that return a
// receive of a shared context.
func (q *CQ) entry(wc *roce.WC) (e Entry, deliver bool, err error) {
	ep := q.endpoints[wc.QPN]
	o, ok := q.operation(wc, ep)
	if !ok {
		return e, false, nil
	}
	e = Entry{Context: o.context}
	if q.format >= FormatMsg {
		e.Flags, e.Len = o.flags&^opInject, int(wc.ByteLen)
	}
	if wc.Status != roce.StatusSuccess {
		errno := syscall.EIO
		if wc.Status == roce.StatusWRFlushErr {
			errno = syscall.ECANCELED
		}
		e.Flags, e.Len, e.Buf = o.flags&^opInject, 0, o.buf
		return e, false, &CQError{e, ep, errno, wc.Status}
	}
	if wc.ID&recvID != 0 && wc.Flags&roce.WCWithImm != 0 {
		e.Flags |= OpRemoteCQData
		if wc.Opcode == roce.WCRecvWriteImm {
			e.Flags = e.Flags&^(OpRecv|OpMsg) | OpRemoteWrite | OpRMA
		}
		if q.format < FormatMsg {
			e.Flags = 0
		}
	}
	if q.format >= FormatData {
		e.Buf, e.Data = o.buf, wc.Imm
	}
	return e, o.flags&opInject == 0, nil
}

// operation finds the operation of a completion. ep is its endpoint, nil if that is closed.
func (q *CQ) operation(wc *roce.WC, ep *Endpoint) (operation, bool) {
	if s := q.domain.shared(wc.ID); s != nil {
		return s.taken(wc.ID)
	}
	if ep == nil {
		return operation{}, false
	}
	ep.mu.Lock()
	defer ep.mu.Unlock()
	if wc.ID&recvID != 0 {
		return ep.rx.take(wc.ID)
	}
	return ep.tx.take(wc.ID)
}

// SRead waits for completions (fi_cq_sread).
func (q *CQ) SRead(ctx context.Context, dst []Entry) (int, error) {
	for {
		n, err := q.Read(dst)
		if err != syscall.EAGAIN {
			return n, err
		}
		if err := q.cq.Wait(ctx); err != nil {
			return 0, err
		}
	}
}

// Close closes the queue. EBUSY while endpoints are bound to it.
func (q *CQ) Close() error { return q.cq.Close() }

package ofi

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/goroce/roce"
)

// operation is a posted transfer.
type operation struct {
	context any
	buf     []byte
	flags   OpFlags
	used    bool
}

// ops are the transfers of one direction by work request ID.
type ops struct {
	all  []operation
	free []int
}

func (o *ops) add(op operation) uint64 {
	op.used = true
	if k := len(o.free); k > 0 {
		id := o.free[k-1]
		o.free = o.free[:k-1]
		o.all[id] = op
		return uint64(id)
	}
	o.all = append(o.all, op)
	return uint64(len(o.all) - 1)
}

// take ends the operation of a work request ID. It returns false if there is none.
func (o *ops) take(wrID uint64) (operation, bool) {
	id := uint32(wrID)
	if uint64(id) >= uint64(len(o.all)) || !o.all[id].used {
		return operation{}, false
	}
	op := o.all[id]
	o.all[id] = operation{}
	o.free = append(o.free, int(id))
	return op, true
}

// Work request IDs: the lower 32 bits are the operation. recvID marks receives, whose
// completions may share a queue with sends; the bits between name the shared context.
const (
	recvID      = 1 << 63
	sharedShift = 32
	sharedMask  = 1<<31 - 1
)

// post posts a send. EAGAIN when the queue is full: read completions first.
func (e *Endpoint) post(op string, wr roce.SendWR, o operation) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.conn == nil {
		return fail(op, syscall.ENOTCONN, "the endpoint is not connected")
	}
	wr.ID = e.tx.add(o)
	err := e.qp.PostSend(&wr)
	if err != nil {
		e.tx.take(wr.ID)
		return again(op, err)
	}
	return nil
}

// again returns EAGAIN for a full queue, as libfabric does.
func again(op string, err error) error {
	if errors.Is(err, syscall.ENOMEM) {
		return fail(op, syscall.EAGAIN, "%v", err)
	}
	return err
}

// gather returns the scatter/gather list of a slice; it is empty if the slice is.
func gather(op string, buf []byte, desc Desc) ([]roce.SGE, error) {
	if len(buf) == 0 {
		return nil, nil
	}
	s, err := desc.piece(op, buf)
	return []roce.SGE{s}, err
}

// Send sends a message (fi_send). buf is in use until the completion with ctx.
func (e *Endpoint) Send(buf []byte, desc Desc, ctx any) error {
	return e.transfer("send", roce.Send, buf, desc, 0, 0, 0, operation{ctx, buf, OpSend | OpMsg, true})
}

// SendData is Send with 32 bits for the peer's completion (fi_senddata).
func (e *Endpoint) SendData(buf []byte, desc Desc, data uint32, ctx any) error {
	return e.transfer("senddata", roce.SendImm, buf, desc, data, 0, 0, operation{ctx, buf, OpSend | OpMsg, true})
}

// Inject sends up to Info.InjectSize bytes and delivers no completion (fi_inject). When it has
// returned, the caller may change buf.
func (e *Endpoint) Inject(buf []byte) error {
	if len(buf) > e.info.InjectSize {
		return fail("inject", syscall.EINVAL, "%d bytes, the endpoint injects %d", len(buf), e.info.InjectSize)
	}
	return e.post("inject", roce.SendWR{Opcode: roce.Send, Inline: buf}, operation{flags: opInject})
}

// Recv posts a receive (fi_recv). A program may call it before the endpoint is connected.
func (e *Endpoint) Recv(buf []byte, desc Desc, ctx any) error {
	sg, err := gather("recv", buf, desc)
	if err != nil {
		return err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.qp == nil {
		return fail("recv", syscall.EINVAL, "the endpoint is not enabled")
	}
	id := e.rx.add(operation{ctx, buf, OpRecv | OpMsg, true})
	if err := e.qp.PostRecv(&roce.RecvWR{ID: recvID | id, SG: sg}); err != nil {
		e.rx.take(id)
		return again("recv", err)
	}
	return nil
}

// Cancel cancels a posted receive (fi_cancel): its completion is an error, ECANCELED. ENOENT: there is none with
// this context, or a message has begun to fill it.
func (e *Endpoint) Cancel(ctx any) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id := range e.rx.all {
		if o := &e.rx.all[id]; o.used && o.context == ctx {
			return e.qp.CancelRecv(recvID | uint64(id))
		}
	}
	return fail("cancel", syscall.ENOENT, "no receive with this context is posted")
}

// Write writes into the peer's memory (fi_write).
func (e *Endpoint) Write(buf []byte, desc Desc, addr, key uint64, ctx any) error {
	return e.transfer("write", roce.Write, buf, desc, 0, addr, key, operation{ctx, buf, OpWrite | OpRMA, true})
}

// WriteData is Write with 32 bits for a completion of the peer, which takes one of its
// posted receives (fi_writedata).
func (e *Endpoint) WriteData(buf []byte, desc Desc, data uint32, addr, key uint64, ctx any) error {
	return e.transfer("writedata", roce.WriteImm, buf, desc, data, addr, key, operation{ctx, buf, OpWrite | OpRMA, true})
}

// Read reads the peer's memory (fi_read).
func (e *Endpoint) Read(buf []byte, desc Desc, addr, key uint64, ctx any) error {
	return e.transfer("read", roce.Read, buf, desc, 0, addr, key, operation{ctx, buf, OpRead | OpRMA, true})
}

// transfer posts the transfer of a slice. A SEND has no addr and no key.
func (e *Endpoint) transfer(op string, code roce.Opcode, buf []byte, desc Desc, data uint32, addr, key uint64, o operation) error {
	sg, err := gather(op, buf, desc)
	if err != nil {
		return err
	}
	return e.post(op, roce.SendWR{Opcode: code, SG: sg, Imm: data, RemoteAddr: addr, RKey: roce.RKey(key)}, o)
}

// AtomicOp is an operation on 8 bytes of the peer's memory, with the values of
// libfabric.
type AtomicOp uint8

const (
	Sum         AtomicOp = 2  // FI_SUM: FetchAtomic
	AtomicRead  AtomicOp = 10 // FI_ATOMIC_READ: FetchAtomic
	AtomicWrite AtomicOp = 11 // FI_ATOMIC_WRITE: Atomic
	CSwap       AtomicOp = 12 // FI_CSWAP: CompareAtomic
)

// Atomic stores the 8 bytes of buf (fi_atomic with FI_ATOMIC_WRITE). Other
// operations are ENOSYS, as with the verbs provider.
func (e *Endpoint) Atomic(op AtomicOp, buf []byte, desc Desc, addr, key uint64, ctx any) error {
	if op != AtomicWrite || len(buf) != 8 {
		return noAtomic("atomic", op, buf)
	}
	return e.atomic("atomic", roce.SendWR{Opcode: roce.Write}, buf, desc, addr, key, ctx)
}

// FetchAtomic adds operand to the word ([Sum]), or only reads it ([AtomicRead]),
// and stores the old value in result (fi_fetch_atomic).
func (e *Endpoint) FetchAtomic(op AtomicOp, operand uint64, result []byte, desc Desc, addr, key uint64, ctx any) error {
	wr := roce.SendWR{Opcode: roce.FetchAdd, CompareAdd: operand}
	switch {
	case len(result) != 8, op != Sum && op != AtomicRead:
		return noAtomic("fetch_atomic", op, result)
	case op == AtomicRead:
		wr = roce.SendWR{Opcode: roce.Read}
	}
	return e.atomic("fetch_atomic", wr, result, desc, addr, key, ctx)
}

// CompareAtomic stores operand in the word if the word equals compare ([CSwap]), and stores the
// old value in result (fi_compare_atomic).
func (e *Endpoint) CompareAtomic(op AtomicOp, operand, compare uint64, result []byte, desc Desc, addr, key uint64, ctx any) error {
	if op != CSwap || len(result) != 8 {
		return noAtomic("compare_atomic", op, result)
	}
	return e.atomic("compare_atomic", roce.SendWR{Opcode: roce.CompareSwap, CompareAdd: compare, Swap: operand}, result, desc, addr, key, ctx)
}

func noAtomic(op string, a AtomicOp, buf []byte) error {
	if len(buf) != 8 {
		return fail(op, syscall.EINVAL, "atomics are on 8 bytes, not %d", len(buf))
	}
	return fail(op, syscall.ENOSYS, "operation %d is not offered", a)
}

// atomic posts an atomic behind a fence, as the verbs provider does.
func (e *Endpoint) atomic(op string, wr roce.SendWR, buf []byte, desc Desc, addr, key uint64, ctx any) (err error) {
	if wr.SG, err = gather(op, buf, desc); err != nil {
		return err
	}
	wr.Flags, wr.RemoteAddr, wr.RKey = roce.Fence, addr, roce.RKey(key)
	return e.post(op, wr, operation{ctx, buf, OpAtomic, true})
}

// Word reads the result of an atomic.
func Word(result []byte) uint64 { return binary.NativeEndian.Uint64(result) }

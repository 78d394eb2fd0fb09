package verbs

import (
	"sync"
	"syscall"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/translate"
)

// postBatch is the limit of work requests in one post.
const postBatch = 32

// sendBatch is a buffer for translated send work requests.
type sendBatch struct {
	wrs    [postBatch]roce.SendWR
	inline []byte // inline data of the batch
}

// recvBatch is a buffer for translated receives.
type recvBatch [postBatch]roce.RecvWR

// Free batches. They are in pools, since there may be many queue pairs.
var (
	sendBatches = sync.Pool{New: func() any { return new(sendBatch) }}
	recvBatches = sync.Pool{New: func() any { return new(recvBatch) }}
)

// PostSend is ibv_post_send of a list, or of work requests that the library has collected from several calls. It
// returns how many work requests it has posted, how many the library may collect now, and the error of the next one.
func PostSend(qp abi.Handle, wrs []abi.SendWR, calls int) (posted, room int, err error) {
	q, err := find[*queuePair](qp)
	if err != nil {
		return 0, 0, err
	}
	b := sendBatches.Get().(*sendBatch)
	for posted < len(wrs) && err == nil {
		n := min(len(wrs)-posted, postBatch)
		var done int
		done, room, err = q.postSend(b, wrs[posted:posted+n], calls)
		posted += done
	}
	sendBatches.Put(b)
	return posted, room, err
}

// postSend posts up to postBatch work requests.
func (q *queuePair) postSend(b *sendBatch, wrs []abi.SendWR, calls int) (posted, room int, err error) {
	b.inline = b.inline[:0]
	n := 0
	for ; n < len(wrs); n++ {
		if err = q.sendWR(b, &b.wrs[n], &wrs[n]); err != nil {
			break
		}
	}
	if n > 0 {
		var refused error
		if posted, room, refused = q.qp.PostCollected(b.wrs[:n], calls); refused != nil {
			err = refused
		}
	}
	forgetSends(b.wrs[:min(n+1, len(wrs))])
	return posted, room, err
}

// forgetSends clears the pointers of work requests: Go must not keep a pointer to memory of C that may be freed
// or reused.
func forgetSends(wrs []roce.SendWR) {
	for i := range wrs {
		wr := &wrs[i]
		wr.SG, wr.Inline, wr.AH, wr.MW, wr.MR = nil, nil, nil, nil, nil
	}
}

// sendWR translates a work request.
func (q *queuePair) sendWR(b *sendBatch, dst *roce.SendWR, src *abi.SendWR) error {
	if roce.Opcode(src.Opcode) == roce.BindMW {
		w, bind, err := bindOf(src)
		if err != nil {
			return err
		}
		*dst = w.mw.WR(bind)
		return nil
	}
	inline, err := translate.SendWR(dst, src)
	if err != nil {
		return err
	}
	switch q.typ {
	case roce.UD:
		a, err := find[*addressHandle](src.AH)
		if err != nil {
			return err
		}
		dst.AH = a.ah
		translate.Datagram(dst, src)
	case roce.XRCSend:
		dst.RemoteSRQN = roce.SRQN(src.SRQN)
	}
	sg, err := elements(src.SG, src.NumSGE)
	switch {
	case err != nil:
		return err
	case dst.Opcode == roce.AtomicWrite && len(sg) == 0:
		dst.Inline = b.store(unsafe.Slice((*byte)(unsafe.Pointer(&src.AtomicWrite)), atomicWriteLen))
	case inline:
		dst.Inline, err = b.gather(sg)
	default:
		dst.SG = sg
	}
	return err
}

// elements converts a scatter/gather list to that of package roce: the layout is the same. It touches the
// memory of the list, so that an unmapped list faults before a lock is taken.
func elements(sg *abi.SGE, n int32) ([]roce.SGE, error) {
	switch {
	case n < 0 || n > roce.MaxSGE:
		return nil, syscall.EINVAL
	case n == 0:
		return nil, nil
	case sg == nil:
		return nil, syscall.EFAULT
	}
	list := unsafe.Slice((*roce.SGE)(unsafe.Pointer(sg)), n)
	touch(&list[0])
	touch(&list[n-1])
	return list, nil
}

// touch reads an element.
//
//go:noinline
func touch(e *roce.SGE) uint64 { return e.Addr }

// store copies inline data, since the program may change them after the call.
func (b *sendBatch) store(data []byte) []byte {
	start := len(b.inline)
	b.inline = append(b.inline, data...)
	return b.inline[start:len(b.inline):len(b.inline)]
}

// gather copies the data of a list.
func (b *sendBatch) gather(sg []roce.SGE) ([]byte, error) {
	start := len(b.inline)
	for i := range sg {
		e := &sg[i]
		switch {
		case e.Length == 0:
			continue
		case len(b.inline)-start+int(e.Length) > roce.MaxInline:
			return nil, syscall.EINVAL
		case e.Addr == 0:
			return nil, syscall.EFAULT
		}
		b.inline = append(b.inline, unsafe.Slice((*byte)(abi.Pointer(e.Addr)), e.Length)...)
	}
	return b.inline[start:len(b.inline):len(b.inline)], nil
}

// PostRecv is ibv_post_recv of a list; see [PostSend]. With an empty list it ends the receives that the library has added to the ring of
// the queue pair.
func PostRecv(qp abi.Handle, wrs []abi.RecvWR) (posted int, err error) {
	q, err := find[*queuePair](qp)
	if err != nil {
		return 0, err
	}
	if len(wrs) == 0 {
		return 0, q.qp.EndRecvs()
	}
	return postRecvs(q.qp, wrs)
}

// PostSRQRecv is ibv_post_srq_recv of a list; see [PostSend].
func PostSRQRecv(srq abi.Handle, wrs []abi.RecvWR) (posted int, err error) {
	q, err := find[*sharedQueue](srq)
	if err != nil {
		return 0, err
	}
	return postRecvs(q.srq, wrs)
}

// receiver is a queue that takes receives.
type receiver interface {
	PostRecvs([]roce.RecvWR) (int, error)
}

func postRecvs(to receiver, wrs []abi.RecvWR) (posted int, err error) {
	b := recvBatches.Get().(*recvBatch)
	for posted < len(wrs) && err == nil {
		var done int
		done, err = b.post(to, wrs[posted:min(len(wrs), posted+postBatch)])
		posted += done
	}
	recvBatches.Put(b)
	return posted, err
}

// post posts up to postBatch receives.
func (b *recvBatch) post(to receiver, wrs []abi.RecvWR) (posted int, err error) {
	n := 0
	for ; n < len(wrs); n++ {
		sg, wrong := elements(wrs[n].SG, wrs[n].NumSGE)
		if wrong != nil {
			err = wrong
			break
		}
		b[n] = roce.RecvWR{ID: wrs[n].ID, SG: sg}
	}
	posted, refused := to.PostRecvs(b[:n])
	clear(b[:n]) // see forgetSends
	if refused != nil {
		err = refused
	}
	return posted, err
}

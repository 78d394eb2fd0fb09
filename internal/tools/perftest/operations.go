package perftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"

	"github.com/goroce/roce"
)

// source is memory of random bytes, from which messages are sent.
type source struct {
	*end
	*roce.MR
}

// randomSource registers and fills the buffer through which messages cycle.
func (e *end) randomSource() (source, error) {
	m, err := e.register(e.extent(), 0)
	if err == nil {
		rand.Read(m.Bytes())
	}
	return source{e, m}, err
}

func (s source) fill(i int, wr *roce.SendWR) {
	at := s.place(i)
	if s.size <= s.cfg.InlineSize {
		wr.Inline = s.Bytes()[at:][:s.size]
		return
	}
	wr.SG = append(wr.SG[:0], s.SGE(at, s.size))
}

// SENDs and WRITEs return no data to check.
func (source) prepare(context.Context) error { return nil }
func (source) verify(context.Context) error  { return nil }
func (source) check(int) error               { return nil }

// writes is the client of a WRITE test.
type writes struct {
	source
	remote Dest
}

func newWrites(e *end, remote Dest) (work, error) {
	s, err := e.randomSource()
	return writes{s, remote}, err
}

func (w writes) fill(i int, wr *roce.SendWR) {
	w.source.fill(i, wr)
	wr.Opcode, wr.RemoteAddr, wr.RKey = roce.Write, w.remote.VAddr+uint64(w.place(i)), w.remote.RKey
}

// target is the server of a WRITE test.
type target struct {
	*end
	before []byte
}

func newTarget(e *end) (service, error) {
	rand.Read(e.export.Bytes())
	return target{e, bytes.Clone(e.export.Bytes())}, nil
}

// distinctive is the number of random bytes that distinguish a message from older data.
const distinctive = 8

// verify checks that the first and last bytes of every place were written, and nothing between
// places. Only the client knows the data.
func (t target) verify(r Report) error {
	b, size, behind := t.export.Bytes(), t.size, 0
	for i := range t.places() {
		at := t.place(i)
		if !bytes.Equal(b[behind:at], t.before[behind:at]) {
			return fmt.Errorf("%w: something was written between %#x and %#x, where no message goes", ErrMismatch, behind, at)
		}
		behind = at + size
		if i >= r.Iters || size < distinctive {
			continue
		}
		for _, end := range []int{at, at + size - distinctive} {
			if bytes.Equal(b[end:end+distinctive], t.before[end:end+distinctive]) {
				return fmt.Errorf("%w: after %d messages of %d bytes nothing was written at %#x", ErrMismatch, r.Iters, size, end)
			}
		}
	}
	if !bytes.Equal(b[behind:], t.before[behind:]) {
		return fmt.Errorf("%w: something was written after %#x, where no message goes", ErrMismatch, behind)
	}
	return nil
}

// reads is the client of a READ test. The server's memory does not change, so each READ must return
// the same data as the first one of its place.
type reads struct {
	*end
	remote  Dest
	results *roce.MR
	known   []byte // the contents of the server's memory; nil: the data is not checked
	first   bool   // the READs fill known
}

func newReads(e *end, remote Dest) (_ work, err error) {
	r := &reads{end: e, remote: remote}
	room := e.extent()
	if e.cfg.Check {
		r.known = make([]byte, e.extent())
		room = e.cfg.Size * e.cfg.TxDepth
	}
	r.results, err = e.register(room, roce.LocalWrite)
	return r, err
}

func (r *reads) prepare(ctx context.Context) error {
	if r.known == nil {
		return nil
	}
	r.first = true
	err := r.run(ctx, r.places(), r)
	r.first = false
	return err
}

func (*reads) verify(context.Context) error { return nil }

func (r *reads) fill(i int, wr *roce.SendWR) {
	at := r.place(i)
	if r.known != nil {
		clear(r.result(i)) // so that the data of an earlier READ does not count as that of this one
		at = i % r.cfg.TxDepth * r.size
	}
	wr.Opcode, wr.RemoteAddr, wr.RKey = roce.Read, r.remote.VAddr+uint64(r.place(i)), r.remote.RKey
	wr.SG = append(wr.SG[:0], r.results.SGE(at, r.size))
}

func (r *reads) check(i int) error {
	if r.known == nil {
		return nil
	}
	known := r.known[r.place(i):][:r.size]
	if r.first {
		copy(known, r.result(i))
		return nil
	}
	return compare(fmt.Sprintf("READ %d", i), r.result(i), known)
}

// result returns the target of READ i, if its data is compared.
func (r *reads) result(i int) []byte {
	return r.results.Bytes()[i%r.cfg.TxDepth*r.size:][:r.size]
}

// compare returns an error that names the first difference.
func compare(what string, got, want []byte) error {
	if bytes.Equal(got, want) {
		return nil
	}
	at := 0
	for got[at] == want[at] {
		at++
	}
	return fmt.Errorf("%w: %s of %d bytes has %#02x at %d, want %#02x", ErrMismatch, what, len(got), got[at], at, want[at])
}

// exporter is the server of a READ test. It has nothing to verify.
type exporter struct{ *end }

func newSource(e *end) (service, error) {
	rand.Read(e.export.Bytes())
	return exporter{e}, nil
}

func (exporter) verify(Report) error { return nil }

// sends is the client of a SEND test.
type sends struct{ source }

func newSends(e *end, _ Dest) (work, error) {
	s, err := e.randomSource()
	return sends{s}, err
}

func (s sends) fill(i int, wr *roce.SendWR) {
	s.source.fill(i, wr)
	wr.Opcode = roce.Send
	if s.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah, s.remote.QPN, qkey
	}
}

// receives is the server of a SEND test. The client's memory does not change, so each message must be
// equal to the first one of its place.
type receives struct {
	*end
	buffers *roce.MR
	known   [][]byte // the first message of each place; nil: the data is not checked
	posted  int      // receives posted for this size
	taken   int      // messages received, which is also the number of the next message
	empty   int      // messages received since the last refill
	wrs     []roce.RecvWR
}

// head returns the number of bytes before a received message.
func (e *end) head() int {
	if e.cfg.Service == roce.UD {
		return roce.GRHLen
	}
	return 0
}

func newReceives(e *end) (_ service, err error) {
	r := &receives{end: e}
	room := e.extent()
	if e.cfg.Check {
		room = e.cfg.Size * e.cfg.RxDepth
	}
	if e.cfg.Service == roce.UD {
		room += max(e.cfg.RxDepth, e.terms.cycle/e.terms.line) * roce.GRHLen
	}
	r.buffers, err = e.register(room, roce.LocalWrite)
	return r, err
}

// begin posts the receives for messages of a size.
func (r *receives) begin() error {
	r.posted, r.taken, r.known = 0, 0, nil
	if r.cfg.Check {
		r.known = make([][]byte, r.places())
	}
	return r.refill()
}

// refill posts receives up to the RX depth, but no more than messages to come.
func (r *receives) refill() error {
	r.empty = 0
	n := r.cfg.RxDepth - (r.posted - r.taken)
	if r.cfg.Duration == 0 {
		n = min(n, r.cfg.Iters-r.posted)
	}
	if n <= 0 {
		return nil
	}
	if len(r.wrs) < n {
		r.wrs = make([]roce.RecvWR, n)
	}
	for k := range n {
		wr := &r.wrs[k]
		wr.ID, wr.SG = r.recvID(r.posted), append(wr.SG[:0], r.sge(r.posted))
		r.posted++
	}
	_, err := r.qp.PostRecvs(r.wrs[:n])
	return err
}

// slot returns offset and length of the buffer for message i. While messages are compared, each posted receive has its own
// buffer; otherwise each place has one.
func (r *receives) slot(i int) (at, n int) {
	n = r.head() + r.size
	if r.known != nil {
		return i % r.cfg.RxDepth * n, n
	}
	return r.place(i) + i%r.places()*r.head(), n
}

func (r *receives) sge(i int) roce.SGE { return r.buffers.SGE(r.slot(i)) }

// take handles the next completion.
func (r *receives) take(wc roce.WC) error {
	i := r.taken
	r.taken++
	r.empty++
	return r.check(i, wc)
}

func (r *receives) check(i int, wc roce.WC) error {
	if got := indexOf(wc.ID); got != i || int(wc.ByteLen) != r.head()+r.size {
		return fmt.Errorf("%w: receive %d with %d bytes completes when %d with %d is due", ErrMismatch, got, wc.ByteLen, i, r.head()+r.size)
	}
	if r.known == nil {
		return nil
	}
	at, n := r.slot(i)
	got := r.buffers.Bytes()[at+r.head() : at+n]
	known := &r.known[i%len(r.known)]
	if r.cfg.Service != roce.RC { // a lost message shifts those after it
		return nil
	}
	if *known == nil {
		*known = bytes.Clone(got)
		return nil
	}
	return compare(fmt.Sprintf("message %d", i), got, *known)
}

func (*receives) verify(Report) error { return nil }

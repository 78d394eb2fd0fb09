package perftest

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// source is memory of random bytes, which messages are taken from.
type source struct {
	*end
	*roce.MR
}

// randomSource registers the buffer that messages go round in, filled.
func (e *end) randomSource() (source, error) {
	m, err := e.register(e.extent(), 0)
	if err == nil {
		rand.Read(m.Bytes())
	}
	return source{e, m}, err
}

func (s source) fill(i int, wr *roce.SendWR) {
	wr.SG = append(wr.SG[:0], s.SGE(s.place(i), s.cfg.Size))
}

// Nothing comes back, so there is nothing to check.
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

func (t target) serve(_ context.Context, s *session) (Report, error) {
	r, err := t.swapReports(s, Report{})
	if err != nil {
		return Report{}, err
	}
	return r, t.verify(r)
}

// telling is how many random bytes no two messages have in common.
const telling = 8

// verify checks that every place was written to both its ends, and nothing beside.
// What was written only the client knows.
func (t target) verify(r Report) error {
	b, size, behind := t.export.Bytes(), t.cfg.Size, 0
	for i := range t.places() {
		at := t.place(i)
		if !bytes.Equal(b[behind:at], t.before[behind:at]) {
			return fmt.Errorf("%w: something was written between %#x and %#x, where no message goes", ErrMismatch, behind, at)
		}
		behind = at + size
		if i >= r.Iters || size < telling {
			continue
		}
		for _, end := range []int{at, at + size - telling} {
			if bytes.Equal(b[end:end+telling], t.before[end:end+telling]) {
				return fmt.Errorf("%w: after %d messages of %d bytes nothing was written at %#x", ErrMismatch, r.Iters, size, end)
			}
		}
	}
	if !bytes.Equal(b[behind:], t.before[behind:]) {
		return fmt.Errorf("%w: something was written behind %#x, where no message goes", ErrMismatch, behind)
	}
	return nil
}

// reads is the client of a READ test. The server's memory does not change, so each
// READ must bring what the first of its place has brought.
type reads struct {
	*end
	remote  Dest
	results *roce.MR
	known   []byte // the server's memory
	first   bool   // learning it
}

func newReads(e *end, remote Dest) (work, error) {
	results, err := e.register(e.cfg.Size*e.cfg.TxDepth, roce.LocalWrite)
	return &reads{end: e, remote: remote, results: results, known: make([]byte, e.extent())}, err
}

func (r *reads) prepare(ctx context.Context) error {
	r.first = true
	_, _, err := r.run(ctx, r.places(), r)
	r.first = false
	return err
}

func (*reads) verify(context.Context) error { return nil }

func (r *reads) fill(i int, wr *roce.SendWR) {
	clear(r.result(i)) // it must come anew
	wr.Opcode, wr.RemoteAddr, wr.RKey = roce.Read, r.remote.VAddr+uint64(r.place(i)), r.remote.RKey
	wr.SG = append(wr.SG[:0], r.results.SGE(i%r.cfg.TxDepth*r.cfg.Size, r.cfg.Size))
}

func (r *reads) check(i int) error {
	known := r.known[r.place(i):][:r.cfg.Size]
	if r.first {
		copy(known, r.result(i))
		return nil
	}
	return compare(fmt.Sprintf("READ %d", i), r.result(i), known)
}

func (r *reads) result(i int) []byte {
	return r.results.Bytes()[i%r.cfg.TxDepth*r.cfg.Size:][:r.cfg.Size]
}

// compare says where a message is another one.
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

// exporter is the server of a READ test: there is nothing to be seen.
type exporter struct{ *end }

func newSource(e *end) (service, error) {
	rand.Read(e.export.Bytes())
	return exporter{e}, nil
}

func (x exporter) serve(_ context.Context, s *session) (Report, error) {
	return x.swapReports(s, Report{})
}

// sends is the client of a SEND test.
type sends struct{ source }

func newSends(e *end, _ Dest) (work, error) {
	s, err := e.randomSource()
	return sends{s}, err
}

func (s sends) fill(i int, wr *roce.SendWR) {
	s.source.fill(i, wr)
	wr.Opcode = roce.Send
}

// receives is the server of a SEND test. The client's memory does not change, so each
// message must be what the first out of its place was.
type receives struct {
	*end
	buffers *roce.MR
	known   [][]byte // by place
	posted  int
}

func newReceives(e *end) (service, error) {
	buffers, err := e.register(e.cfg.Size*e.cfg.RxDepth, roce.LocalWrite)
	if err != nil {
		return nil, err
	}
	r := &receives{end: e, buffers: buffers, known: make([][]byte, e.places())}
	for range e.cfg.RxDepth {
		if err := r.post(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// post posts the next receive; the buffers go round, too.
func (r *receives) post() error {
	i := r.posted
	r.posted++
	return r.qp.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{r.buffers.SGE(i%r.cfg.RxDepth*r.cfg.Size, r.cfg.Size)}})
}

func (r *receives) serve(ctx context.Context, _ *session) (Report, error) {
	came := make([]time.Duration, 0, r.cfg.Iters)
	var start time.Time
	for i := range r.cfg.Iters {
		wc, err := r.cq.Next(ctx)
		if err == nil {
			err = wc.Status.Err()
		}
		if err != nil {
			return Report{}, fmt.Errorf("perftest: after %d messages received: %w", i, err)
		}
		if i == 0 {
			start = time.Now() // like perftest, from the first on
		}
		came = append(came, time.Since(start))
		if err := r.check(i, wc); err != nil {
			return Report{}, err
		}
		if err := r.post(); err != nil {
			return Report{}, err
		}
	}
	return newReport(r.cfg.Size, came, came, false), nil
}

func (r *receives) check(i int, wc roce.WC) error {
	if wc.ID != uint64(i) || int(wc.ByteLen) != r.cfg.Size {
		return fmt.Errorf("%w: receive %d with %d bytes completes when %d with %d is due", ErrMismatch, wc.ID, wc.ByteLen, i, r.cfg.Size)
	}
	got := r.buffers.Bytes()[i%r.cfg.RxDepth*r.cfg.Size:][:r.cfg.Size]
	known := &r.known[i%len(r.known)]
	if *known == nil {
		*known = bytes.Clone(got)
		return nil
	}
	return compare(fmt.Sprintf("message %d", i), got, *known)
}

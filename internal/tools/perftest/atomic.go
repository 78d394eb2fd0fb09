package perftest

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce"
)

// AtomicType is the operation of an atomic test (-A).
type AtomicType uint8

// The operations.
const (
	CmpAndSwap AtomicType = iota
	FetchAndAdd
)

// String returns perftest's name of the operation.
func (t AtomicType) String() string {
	switch t {
	case CmpAndSwap:
		return "CMP_AND_SWAP"
	case FetchAndAdd:
		return "FETCH_AND_ADD"
	}
	return fmt.Sprintf("AtomicType(%d)", uint8(t))
}

// addend is perftest's ATOMIC_ADD_VALUE.
const addend = 1

// atomics is the client of an atomic test. Message i goes to word i modulo the number of words. Only
// this client writes there and the responder executes operations in order. So every operation must return the result of
// the previous one, and at the end the words must hold the sum, even after retransmissions.
type atomics struct {
	*end
	remote  Dest
	results *roce.MR
	words   []uint64 // expected memory of the server after all posted messages
	want    []uint64 // expected results of the messages in flight; nil: results are not checked
}

func newAtomics(e *end, remote Dest) (work, error) {
	results, err := e.register(8*e.cfg.TxDepth, roce.LocalWrite)
	a := &atomics{end: e, remote: remote, results: results, words: make([]uint64, e.places())}
	if e.cfg.Check {
		a.want = make([]uint64, e.cfg.TxDepth)
	}
	return a, err
}

// readWords reads all words with atomics that do not change them, and calls each with their values.
func (a *atomics) readWords(ctx context.Context, each func(i int, v uint64) error) error {
	return a.run(ctx, len(a.words), wordReads{a, each})
}

// prepare reads the words before the test.
func (a *atomics) prepare(ctx context.Context) error {
	if a.want == nil {
		return nil
	}
	return a.readWords(ctx, func(i int, v uint64) error {
		a.words[i] = v
		return nil
	})
}

// verify compares the words after the test with the expected ones.
func (a *atomics) verify(ctx context.Context) error {
	if a.want == nil {
		return nil
	}
	return a.readWords(ctx, func(i int, v uint64) error {
		if v != a.words[i] {
			return fmt.Errorf("%w: at the end word %d is %#x, want %#x", ErrMismatch, i, v, a.words[i])
		}
		return nil
	})
}

func (a *atomics) fill(i int, wr *roce.SendWR) {
	a.request(i, wr)
	if a.want == nil {
		if a.cfg.Atomic == FetchAndAdd {
			wr.CompareAdd = addend
		}
		return // perftest's own client compares with 0 and stores 0
	}
	word := &a.words[i%len(a.words)]
	a.want[i%len(a.want)] = *word
	if a.cfg.Atomic == FetchAndAdd {
		wr.CompareAdd = addend
		*word += addend
		return
	}
	// Every third comparison expects a wrong value and must store nothing.
	wr.CompareAdd, wr.Swap = *word, (*word+uint64(i))*0x5851f42d4c957f2d|1
	if i%3 == 2 {
		wr.CompareAdd = ^wr.CompareAdd
	} else {
		*word = wr.Swap
	}
}

func (a *atomics) check(i int) error {
	if a.want == nil {
		return nil
	}
	if got, want := a.result(i), a.want[i%len(a.want)]; got != want {
		return fmt.Errorf("%w: %v %d on word %d has returned %#x, want %#x", ErrMismatch, a.cfg.Atomic, i, i%len(a.words), got, want)
	}
	return nil
}

// request makes message i, an atomic that does not change the word: its operands are 0.
func (a *atomics) request(i int, wr *roce.SendWR) {
	wr.Opcode = roce.FetchAdd
	if a.cfg.Atomic == CmpAndSwap {
		wr.Opcode = roce.CompareSwap
	}
	wr.SG = append(wr.SG[:0], a.results.SGE(i%a.cfg.TxDepth*8, 8))
	wr.RemoteAddr, wr.RKey = a.remote.VAddr+uint64(a.place(i)), a.remote.RKey
	wr.CompareAdd, wr.Swap = 0, 0
}

func (a *atomics) result(i int) uint64 {
	return binary.NativeEndian.Uint64(a.results.Bytes()[i%a.cfg.TxDepth*8:])
}

// wordReads are the messages of readWords.
type wordReads struct {
	*atomics
	each func(i int, v uint64) error
}

func (l wordReads) fill(i int, wr *roce.SendWR) { l.request(i, wr) }
func (l wordReads) check(i int) error           { return l.each(i, l.result(i)) }

// cells is the server of an atomic test.
type cells struct{ *end }

// newCells sets the words for CMP_AND_SWAP to values that perftest's client does not expect.
func newCells(e *end) (service, error) {
	c := cells{e}
	for i := 0; i < c.places() && e.cfg.Atomic == CmpAndSwap; i++ {
		binary.NativeEndian.PutUint64(c.cell(i), uint64(i+1))
	}
	return c, nil
}

// cell returns word i and the gap after it.
func (c cells) cell(i int) []byte { return c.export.Bytes()[c.place(i):][:c.step()] }

// verify checks that every FETCH_AND_ADD was executed once: the client's messages cycle through the
// words, and each adds one. Only the client knows what CMP_AND_SWAP leaves, but perftest's client
// must not have stored its 0, because the words differ from the 0 that it compares with. The gaps between the words must
// be empty.
func (c cells) verify(r Report) error {
	words := c.places()
	gap := make([]byte, c.step()-8)
	for i := range words {
		cell := c.cell(i)
		got := binary.NativeEndian.Uint64(cell)
		want := uint64((r.Iters + words - 1 - i) / words * addend)
		switch {
		case !bytes.Equal(cell[8:], gap):
			return fmt.Errorf("%w: something was written after word %d: %x", ErrMismatch, i, cell[8:])
		case c.cfg.Atomic == FetchAndAdd && got != want:
			return fmt.Errorf("%w: word %d is %d after %d %vs, want %d", ErrMismatch, i, got, r.Iters, c.cfg.Atomic, want)
		case c.cfg.Atomic == CmpAndSwap && got == 0:
			return fmt.Errorf("%w: word %d was set to 0 by a comparison that must fail", ErrMismatch, i)
		}
	}
	return nil
}

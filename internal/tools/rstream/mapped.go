package rstream

import (
	"context"
	"io"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/goroce/roce/internal/tools/oob"
)

// mappedTest writes into memory that the peer has mapped. The last byte of a write is a marker, which both ends increment. The
// receiver polls it, because there is no other sign that the write has arrived.
func mappedTest(ctx context.Context, s stream, t Result, verify *pattern) (_ time.Duration, err error) {
	buf, last := watched(t.Size)
	last.store(0xFF)
	m, err := s.Map(buf, 0)
	if err != nil {
		return 0, err
	}
	defer m.Close()
	if err := s.sync(nil); err != nil {
		return 0, err
	}
	write := func(marker byte) error {
		for i := range t.Count {
			if i == t.Count-1 {
				last.store(marker)
				verify.fill(buf[:t.Size-1])
			}
			if _, err := s.WriteAt(buf, 0); err != nil {
				return err
			}
		}
		return nil
	}
	wait := func(marker byte) error {
		for last.load() != marker {
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-s.Done():
				if last.load() != marker {
					return io.ErrUnexpectedEOF
				}
			default:
				runtime.Gosched()
			}
		}
		return verify.check(buf[:t.Size-1])
	}
	var marker byte
	counted := func(step func(byte) error) func() error {
		return func() error {
			marker++
			return step(marker - 1)
		}
	}
	start := time.Now()
	for range t.Iterations {
		if err := oob.InOrder(s.client, counted(write), counted(wait)); err != nil {
			return 0, err
		}
	}
	return time.Since(start), nil
}

// lastByte gives atomic access to the last byte of memory, which the program polls while the device writes it.
type lastByte struct {
	word  *uint32
	shift int
}

// watched allocates memory, and returns it with access to its last byte.
func watched(size int) ([]byte, lastByte) {
	words := make([]uint32, (size+3)/4)
	i := (size - 1) / 4
	b := lastByte{word: &words[i], shift: (size - 1) % 4}
	return unsafe.Slice((*byte)(unsafe.Pointer(&words[0])), size), b
}

func (b lastByte) load() byte {
	w := atomic.LoadUint32(b.word)
	return (*[4]byte)(unsafe.Pointer(&w))[b.shift]
}

func (b lastByte) store(v byte) {
	w := atomic.LoadUint32(b.word)
	(*[4]byte)(unsafe.Pointer(&w))[b.shift] = v
	atomic.StoreUint32(b.word, w)
}

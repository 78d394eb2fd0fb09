package scenario_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"runtime"
	"syscall"
	"testing"
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link/mem"
)

// words returns memory for n words, aligned.
func words(n int) []byte {
	w := make([]uint64, n)
	return unsafe.Slice((*byte)(unsafe.Pointer(&w[0])), 8*n)
}

// watchers connects two peers; b has 4 KiB that its program polls. These tests are for the race detector: both ends run on
// their own goroutines, in real time.
func watchers(t *testing.T, access roce.Access) (a, b *peer, target *roce.MR) {
	t.Helper()
	n := newNetworkOf(t, mem.Config{MTU: 4200, Backpressure: true})
	a, b = newPeer(t, n.device("10.0.0.1"), 8192), newPeer(t, n.device("10.0.0.2"), 64)
	connect(t, a, b)
	return a, b, ok(b.pd.RegMR(words(512), allRights|access))(t)
}

// write posts a WRITE and waits for its completion. b's program may see the data at another time.
func (p *peer) write(off, n int, to *roce.MR, remote int) {
	p.t.Helper()
	wr := p.wr(roce.Write, off, n, nil, 0)
	wr.RemoteAddr, wr.RKey = to.Addr()+uint64(remote), to.RKey()
	check(p.t, p.qp.PostSend(wr))
	p.wait()
}

// await polls a word until it has a value.
func await(m *roce.MR, off int, want uint64) {
	for m.Load64(off) != want {
		runtime.Gosched()
	}
}

// TestWatchedRing is a ring of one slot without any completion at the server. Each message ends
// with its number. The server counts the messages that it has taken in a word, which the client
// READs.
func TestWatchedRing(t *testing.T) {
	a, _, ring := watchers(t, roce.Watched)
	const rounds, size, taken = 200, 4000, 4088
	done := make(chan error, 1)
	go func() {
		for i := uint64(1); i <= rounds; i++ {
			await(ring, size-8, i)
			if want := bytes.Repeat([]byte{byte(i)}, size-8); !bytes.Equal(ring.Bytes()[:size-8], want) { // plain loads
				done <- errors.New("the number came before the message")
				return
			}
			ring.Store64(taken, i)
		}
		done <- nil
	}()
	for i := uint64(1); i <= rounds; i++ {
		copy(a.buf, bytes.Repeat([]byte{byte(i)}, size-8))
		binary.NativeEndian.PutUint64(a.buf[size-8:], i)
		a.write(0, size, ring, 0)
		for binary.NativeEndian.Uint64(a.buf[size:]) != i {
			wr := a.wr(roce.Read, size, 8, nil, 0)
			wr.RemoteAddr, wr.RKey = ring.Addr()+taken, ring.RKey()
			check(t, a.qp.PostSend(wr))
			a.wait()
			if len(done) > 0 {
				break
			}
		}
	}
	check(t, <-done)
}

// TestWatchByAtomics: in memory that is not watched, a program may poll a word that only atomics
// and ATOMIC_WRITE change. When the word changes, the data of the WRITEs before it are visible.
func TestWatchByAtomics(t *testing.T) {
	for _, op := range []roce.Opcode{roce.AtomicWrite, roce.FetchAdd, roce.Flush} {
		t.Run(op.String(), func(t *testing.T) {
			a, _, target := watchers(t, roce.FlushGlobal)
			seen := target.Flushes
			if op != roce.Flush {
				seen = func() uint64 { return target.Load64(4088) }
			}
			const rounds = 100
			turn, done := make(chan struct{}), make(chan bool)
			go func() {
				for i := uint64(1); i <= rounds; i++ {
					for seen() != i {
						runtime.Gosched()
					}
					done <- bytes.Equal(target.Bytes()[:3000], bytes.Repeat([]byte{byte(i)}, 3000))
					<-turn
				}
			}()
			for i := uint64(1); i <= rounds; i++ {
				copy(a.buf, bytes.Repeat([]byte{byte(i)}, 3000))
				a.write(0, 3000, target, 0)
				wr := a.wr(op, 4000, 8, nil, 0)
				wr.RemoteAddr, wr.RKey = target.Addr()+4088, target.RKey()
				switch op {
				case roce.AtomicWrite:
					binary.NativeEndian.PutUint64(a.buf[4000:], i)
				case roce.FetchAdd:
					wr.CompareAdd = 1
				case roce.Flush:
					wr.SG, wr.FlushType, wr.RemoteAddr = nil, roce.PlaceGlobal, target.Addr()
				}
				check(t, a.qp.PostSend(wr))
				if !<-done {
					t.Fatalf("round %d: announced before it was there", i)
				}
				a.wait()
				turn <- struct{}{}
			}
		})
	}
}

// TestMemoryAt: MRs are io.ReaderAt and io.WriterAt.
func TestMemoryAt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPeer(t, newNetwork(t).device("10.0.0.1"), 64)
		for _, access := range []roce.Access{0, roce.Watched} {
			m := ok(p.pd.RegMR(words(4), roce.LocalWrite|access))(t)
			if n, err := m.WriteAt([]byte("hello, memory"), 3); n != 13 || err != nil {
				t.Errorf("WriteAt: %d, %v", n, err)
			}
			got, err := io.ReadAll(io.NewSectionReader(m, 3, 5))
			if string(got) != "hello" || err != nil {
				t.Errorf("read %q, %v", got, err)
			}
			if n, err := m.ReadAt(make([]byte, 10), 30); n != 2 || err != io.EOF {
				t.Errorf("ReadAt across the end: %d, %v", n, err)
			}
			if n, err := m.ReadAt(nil, 32); n != 0 || err != io.EOF {
				t.Errorf("ReadAt at the end: %d, %v", n, err)
			}
			_, err = m.ReadAt(nil, -1)
			wantErr(t, "ReadAt(-1)", err, syscall.EINVAL)
			for _, off := range []int64{-1, 31, 33} {
				_, err = m.WriteAt([]byte("ab"), off)
				wantErr(t, "WriteAt outside", err, syscall.EINVAL)
			}
			m.Store64(24, 42)
			if m.Load64(24) != 42 {
				t.Error("Load64, Store64")
			}
		}
		_, err := p.pd.RegMR(words(4)[4:], roce.LocalWrite|roce.Watched)
		wantErr(t, "watched memory that is not aligned", err, syscall.EINVAL)
	})
}

package rsocket_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/nettest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

const port = ":7471"

// streams opens a stream between two new devices.
func streams(t testing.TB, f fault.Config, cfg rsocket.Config) (server, client *rsocket.Conn) {
	t.Helper()
	a, b := tooltest.Pair(t, f)
	return connect(t, a, b, cfg)
}

func connect(t testing.TB, a, b *roce.Device, cfg rsocket.Config) (server, client *rsocket.Conn) {
	t.Helper()
	ctx := t.Context()
	l, err := rsocket.Listen(a, tooltest.Server4+":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *rsocket.Conn, 1)
	go func() {
		c, _ := l.AcceptContext(ctx)
		accepted <- c
	}()
	if client, err = rsocket.Dial(ctx, b, l.Addr().String(), cfg); err != nil {
		t.Fatal(err)
	}
	if server = <-accepted; server == nil {
		t.Fatal("no stream accepted")
	}
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

// Losses that a stream must survive.
var lossy = fault.Config{Seed: 1, Tx: fault.Rates{Loss: 0.01, Dup: 0.02, Reorder: 0.02}}

func TestConn(t *testing.T) {
	for _, c := range []struct {
		name string
		f    fault.Config
		cfg  rsocket.Config
	}{
		{"clean", fault.Config{}, rsocket.Config{}},
		{"small buffers", fault.Config{}, rsocket.Config{SendBuffer: 4096, RecvBuffer: 4096, SendDepth: 16, RecvDepth: 16}},
		{"lossy", lossy, rsocket.Config{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) {
				a, b := streams(t, c.f, c.cfg)
				return a, b, func() { a.Close(); b.Close() }, nil
			})
		})
	}
}

// Both directions transfer data at once, in writes of all sizes. Each side reads the data that the other wrote.
func TestTransfer(t *testing.T) {
	const total = 4 << 20
	for _, f := range []fault.Config{{}, lossy} {
		a, b := streams(t, f, rsocket.Config{RecvBuffer: 32 << 10})
		var all sync.WaitGroup
		for i, way := range [][2]*rsocket.Conn{{a, b}, {b, a}} {
			var sums [2][]byte
			var ends sync.WaitGroup
			all.Add(1)
			go func() {
				defer all.Done()
				ends.Go(func() {
					rng, sum := rand.New(rand.NewPCG(1, uint64(i))), sha256.New()
					buf := make([]byte, 200<<10)
					for left := total; left > 0; {
						n := min(left, 1+rng.IntN(1<<rng.IntN(18)))
						for k := range n {
							buf[k] = byte(rng.Uint32())
						}
						sum.Write(buf[:n])
						if k, err := way[0].Write(buf[:n]); err != nil || k != n {
							t.Errorf("write: %d, %v", k, err)
							return
						}
						left -= n
					}
					sums[0] = sum.Sum(nil)
					if err := way[0].CloseWrite(); err != nil {
						t.Error(err)
					}
				})
				ends.Go(func() {
					sum := sha256.New()
					n, err := io.CopyBuffer(sum, struct{ io.Reader }{way[1]}, make([]byte, 70_000))
					if n != total || err != nil {
						t.Errorf("read: %d, %v", n, err)
					}
					sums[1] = sum.Sum(nil)
				})
				ends.Wait()
				if !bytes.Equal(sums[0], sums[1]) {
					t.Error("what was read is not what was written")
				}
			}()
		}
		all.Wait()
	}
}

// After CloseWrite a stream still carries data in the other direction, and ends in order.
func TestCloseWrite(t *testing.T) {
	a, b := streams(t, fault.Config{}, rsocket.Config{})
	if _, err := a.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write after CloseWrite: %v, want EPIPE", err)
	}
	got, err := io.ReadAll(b)
	if string(got) != "question" || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
	if _, err := b.Write([]byte("answer")); err != nil {
		t.Fatal(err)
	}
	if err := b.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if got, err = io.ReadAll(a); string(got) != "answer" || err != nil {
		t.Fatalf("read %q, %v", got, err)
	}
}

// Close delivers all written data, and the peer then reads io.EOF.
func TestCloseDelivers(t *testing.T) {
	a, b := streams(t, lossy, rsocket.Config{})
	sent := bytes.Repeat([]byte("last words "), 5000)
	go func() {
		a.Write(sent)
		a.Close()
	}()
	got, err := io.ReadAll(b)
	if !bytes.Equal(got, sent) || err != nil {
		t.Fatalf("read %d bytes of %d, %v", len(got), len(sent), err)
	}
	if _, err := b.Write([]byte("x")); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("write to a closed stream: %v, want EPIPE", err)
	}
}

// If the peer's device is closed, a waiting Read fails with ECONNRESET.
func TestPeerDies(t *testing.T) {
	da, db := tooltest.Pair(t, fault.Config{})
	a, _ := connect(t, da, db, rsocket.Config{})
	done := make(chan error, 1)
	go func() {
		_, err := a.Read(make([]byte, 1))
		done <- err
	}()
	db.Close()
	if err := <-done; !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read: %v, want ECONNRESET", err)
	}
}

func TestMap(t *testing.T) {
	a, b := streams(t, lossy, rsocket.Config{Maps: 2})
	memory := make([]byte, 100_000)
	const offset = 1 << 32
	m, err := a.Map(memory, offset)
	if err != nil {
		t.Fatal(err)
	}
	a.Write([]byte{'.'}) // when the peer has read this, it knows the mapping
	if _, err := b.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	want := make([]byte, 90_000)
	for i := range want {
		want[i] = byte(i * 7)
	}
	if n, err := b.WriteAt(want, offset+5000); n != len(want) || err != nil {
		t.Fatalf("WriteAt: %d, %v", n, err)
	}
	b.Write([]byte{'.'}) // when this side has read this, the memory is written
	if _, err := a.Read(make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(memory[5000:95_000], want) {
		t.Error("mapped memory is not what was written")
	}
	if n, err := b.WriteAt(want, offset+20_000); n != 80_000 || !errors.Is(err, syscall.EFAULT) {
		t.Errorf("WriteAt beyond the mapping: %d, %v; want 80000, EFAULT", n, err)
	}
	if _, err := a.Map(make([]byte, 1), 0); err != nil {
		t.Error(err)
	}
	if _, err := a.Map(make([]byte, 1), 1); !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("third of two mappings: %v, want ENOMEM", err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// Both sides refuse a peer that is no rsocket.
func TestForeignPeer(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	l, err := rsocket.Listen(a, tooltest.Server4+port, rsocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var rejected *roce.RejectError
	if _, err = b.Dial(t.Context(), tooltest.Server4+port, roce.DialConfig{}); !errors.As(err, &rejected) {
		t.Errorf("a dialler that is no rsocket got %v, want a reject", err)
	}
	plain, err := a.Listen(t.Context(), tooltest.Server4+":7472", roce.ListenConfig{})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if r, err := plain.Accept(t.Context()); err == nil {
			r.Accept(t.Context(), roce.AcceptConfig{})
		}
	}()
	if _, err = rsocket.Dial(t.Context(), b, tooltest.Server4+":7472", rsocket.Config{}); !errors.Is(err, syscall.ENOTSUP) {
		t.Errorf("a listener that is no rsocket: %v, want ENOTSUP", err)
	}
}

func TestListenerClose(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	l, err := rsocket.Listen(a, tooltest.Server4+port, rsocket.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		done <- err
	}()
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("accept: %v", err)
	}
	if err := l.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := l.AcceptContext(ctx); err == nil {
		t.Error("accept on a closed listener")
	}
}

// The 16-bit counters of messages wrap.
func TestManySmallMessages(t *testing.T) {
	a, b := streams(t, fault.Config{}, rsocket.Config{})
	const n = 70_000
	go func() {
		for i := range n {
			if _, err := a.Write([]byte{byte(i)}); err != nil {
				t.Error(err)
				return
			}
		}
		a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	if len(got) != n || err != nil {
		t.Fatalf("read %d, %v", len(got), err)
	}
	for i := range got {
		if got[i] != byte(i) {
			t.Fatalf("byte %d is %d", i, got[i])
		}
	}
}

// If the peer answers short messages, they need no separate acknowledgements. Messages without an answer are
// acknowledged before CloseWrite returns.
func TestFewAcknowledgements(t *testing.T) {
	synctest.Test(t, testFewAcknowledgements)
}

func testFewAcknowledgements(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	server, client := connect(t, a, b, rsocket.Config{})
	go io.Copy(server, server)
	const trips = 1000
	before := b.Counters()
	for range trips {
		if _, err := client.Write([]byte("request")); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(client, make([]byte, 7)); err != nil {
			t.Fatal(err)
		}
	}
	after := b.Counters()
	// A round trip has two packets; with an acknowledgement for each it would have four.
	if n := after.SentPkts + after.RcvdPkts - before.SentPkts - before.RcvdPkts; n > 3*trips {
		t.Errorf("%d packets in %d round trips", n, trips)
	}
	for range 3 {
		if _, err := client.Write([]byte("the last")); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.CloseWrite(); err != nil {
		t.Error(err)
	}
}

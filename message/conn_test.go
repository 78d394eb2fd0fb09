package message_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

func connect(t testing.TB, f fault.Config, cfg message.Config) (server, client *message.Conn) {
	t.Helper()
	a, b := tooltest.Pair(t, f)
	return connectOn(t, a, b, cfg)
}

func connectOn(t testing.TB, a, b *roce.Device, cfg message.Config) (server, client *message.Conn) {
	t.Helper()
	l, err := message.Listen(a, tooltest.Server4+":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	accepted := make(chan *message.Conn, 1)
	go func() {
		c, _ := l.Accept(t.Context())
		accepted <- c
	}()
	if client, err = message.Dial(t.Context(), b, l.Addr().String(), cfg); err != nil {
		t.Fatal(err)
	}
	if server = <-accepted; server == nil {
		t.Fatal("nothing accepted")
	}
	t.Cleanup(func() { server.Close(); client.Close() })
	return server, client
}

var lossy = fault.Config{Seed: 5, Tx: fault.Rates{Loss: 0.005, Dup: 0.02, Reorder: 0.02}}

// Messages of every size, both ways at once, arrive whole and in order.
func TestMessages(t *testing.T) {
	for _, f := range []fault.Config{{}, lossy} {
		for _, cfg := range []message.Config{message.Config{}, {MaxMessage: 3000, Depth: 1}, {MaxMessage: 100, Depth: 200}} {
			a, b := connect(t, f, cfg)
			const n = 500
			var both sync.WaitGroup
			for i, way := range [][2]*message.Conn{{a, b}, {b, a}} {
				content := func(k int) []byte {
					rng := rand.New(rand.NewPCG(uint64(i), uint64(k)))
					m := make([]byte, rng.IntN(min(a.MaxRecv(), 9000)+1))
					for j := range m {
						m[j] = byte(rng.Uint32())
					}
					return m
				}
				both.Go(func() {
					for k := range n {
						if err := way[0].Send(t.Context(), content(k)); err != nil {
							t.Errorf("send %d: %v", k, err)
							return
						}
					}
				})
				both.Go(func() {
					buf := make([]byte, way[1].MaxRecv())
					for k := range n {
						got, err := way[1].Recv(t.Context(), buf)
						if err != nil {
							t.Errorf("receive %d: %v", k, err)
							return
						}
						if !bytes.Equal(buf[:got], content(k)) {
							t.Errorf("message %d differs", k)
							return
						}
					}
				})
			}
			both.Wait()
		}
	}
}

// Send waits while the receiver has no room, but not after its context has ended.
func TestBackpressure(t *testing.T) {
	a, b := connect(t, fault.Config{}, message.Config{Depth: 4})
	for i := range 4 {
		if err := a.Send(t.Context(), []byte{byte(i)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := a.Send(ctx, nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("fifth send with four held: %v", err)
	}
	sent := make(chan error, 1)
	go func() { sent <- a.Send(t.Context(), []byte{4}) }()
	buf := make([]byte, 8)
	for i := range 5 {
		if n, err := b.Recv(t.Context(), buf); n != 1 || err != nil || buf[0] != byte(i) {
			t.Fatalf("message %d: %v %v", i, buf[:n], err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestSizes(t *testing.T) {
	a, b := connect(t, fault.Config{}, message.Config{MaxMessage: 100})
	if err := a.Send(t.Context(), make([]byte, 101)); !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("send of 101 bytes: %v", err)
	}
	if err := a.Send(t.Context(), make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if n, err := b.Recv(t.Context(), make([]byte, 99)); n != 100 || !errors.Is(err, syscall.EMSGSIZE) {
		t.Errorf("receive into 99 bytes: %d, %v", n, err)
	}
	if n, err := b.Recv(t.Context(), make([]byte, 100)); n != 100 || err != nil {
		t.Errorf("receive again: %d, %v", n, err)
	}
}

func TestMemory(t *testing.T) {
	for _, f := range []fault.Config{{}, lossy} {
		a, b := connect(t, f, message.Config{Transfers: 3})
		memory := make([]byte, 1<<20)
		e, err := a.Export(memory, message.ReadWrite|message.Atomic)
		if err != nil {
			t.Fatal(err)
		}
		wire, _ := e.Token().MarshalBinary()
		if err := a.Send(t.Context(), wire); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, message.TokenLen)
		if _, err := b.Recv(t.Context(), buf); err != nil {
			t.Fatal(err)
		}
		var token message.Token
		if err := token.UnmarshalBinary(buf); err != nil || token.Len() != len(memory) {
			t.Fatalf("%v, %d bytes", err, token.Len())
		}
		data := make([]byte, 700_001)
		for i := range data {
			data[i] = byte(i * 31)
		}
		if err := b.Write(t.Context(), token, 4095, data); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, len(data))
		if err := b.Read(t.Context(), token, 4095, got); err != nil || !bytes.Equal(got, data) {
			t.Fatalf("read back: %v, equal %v", err, bytes.Equal(got, data))
		}
		var workers sync.WaitGroup
		for range 4 {
			workers.Go(func() {
				for range 50 {
					if _, err := b.FetchAdd(t.Context(), token, 8, 2); err != nil {
						t.Error(err)
					}
				}
			})
		}
		workers.Wait()
		if was, err := b.CompareSwap(t.Context(), token, 8, 400, 7); was != 400 || err != nil {
			t.Errorf("counter is %d, want 400 (%v)", was, err)
		}
		if was, _ := b.FetchAdd(t.Context(), token, 8, 0); was != 7 {
			t.Errorf("after the swap %d, want 7", was)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}
}

// If a token does not allow an access, the call fails without asking the peer, and the connection stays.
func TestTokenRefused(t *testing.T) {
	a, b := connect(t, fault.Config{}, message.Config{})
	e, err := a.Export(make([]byte, 64), message.Read)
	if err != nil {
		t.Fatal(err)
	}
	token := e.Token()
	buf := make([]byte, 8)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"write to what is exported for reading": {b.Write(t.Context(), token, 0, buf), syscall.EACCES},
		"beyond the end":                        {b.Read(t.Context(), token, 57, buf), syscall.EFAULT},
		"before the start":                      {b.Read(t.Context(), token, -1, buf), syscall.EFAULT},
		"no token":                              {new(message.Token).UnmarshalBinary(buf), syscall.EINVAL},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: %v, want %v", name, c.err, c.want)
		}
	}
	if _, err := b.FetchAdd(t.Context(), token, 0, 1); !errors.Is(err, syscall.EACCES) {
		t.Errorf("atomic on what is exported for reading: %v", err)
	}
	if err := b.Read(t.Context(), token, 0, buf); err != nil {
		t.Errorf("the connection should still work: %v", err)
	}
	if _, err := a.Export(buf, 0); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("export for nothing: %v", err)
	}
}

// After a canceled call the connection still works.
func TestCancel(t *testing.T) {
	a, b := connect(t, fault.Config{}, message.Config{Transfers: 2})
	e, err := a.Export(make([]byte, 1<<20), message.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for range 10 {
		if err := b.Read(canceled, e.Token(), 0, make([]byte, 1<<20)); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
	}
	if _, err := b.Recv(canceled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("receive: %v", err)
	}
	if err := b.Read(t.Context(), e.Token(), 0, make([]byte, 1<<20)); err != nil {
		t.Error(err)
	}
}

// Close delivers; the peer receives everything and then io.EOF.
func TestClose(t *testing.T) {
	a, b := connect(t, lossy, message.Config{})
	go func() {
		for i := range 100 {
			a.Send(t.Context(), fmt.Append(nil, i))
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}()
	buf := make([]byte, b.MaxRecv())
	for i := range 100 {
		n, err := b.Recv(t.Context(), buf)
		if err != nil || string(buf[:n]) != fmt.Sprint(i) {
			t.Fatalf("message %d: %q, %v", i, buf[:n], err)
		}
	}
	if _, err := b.Recv(t.Context(), buf); !errors.Is(err, io.EOF) {
		t.Errorf("after the end: %v, want EOF", err)
	}
	if err := b.Send(t.Context(), nil); !errors.Is(err, io.EOF) {
		t.Errorf("send after the end: %v, want EOF", err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
	if err := b.Close(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("second close: %v", err)
	}
}

// Disconnect delivers and is bounded by its context; Close frees the connection after it.
func TestDisconnect(t *testing.T) {
	a, b := connect(t, lossy, message.Config{})
	if err := a.Send(t.Context(), []byte("last")); err != nil {
		t.Fatal(err)
	}
	if err := a.Disconnect(t.Context()); err != nil {
		t.Error(err)
	}
	buf := make([]byte, b.MaxRecv())
	if n, err := b.Recv(t.Context(), buf); err != nil || string(buf[:n]) != "last" {
		t.Errorf("received %q, %v", buf[:n], err)
	}
	if err := a.Send(t.Context(), nil); !errors.Is(err, net.ErrClosed) {
		t.Errorf("send after Disconnect: %v", err)
	}
	if err := a.Disconnect(t.Context()); err != nil {
		t.Errorf("second Disconnect: %v", err)
	}
	if err := a.Close(); err != nil {
		t.Errorf("Close after Disconnect: %v", err)
	}
	if err := a.Disconnect(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Disconnect after Close: %v", err)
	}
}

// A value beyond its limits is refused, not changed.
func TestConfigLimits(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	for _, c := range []message.Config{{MaxMessage: -1}, {MaxMessage: 1<<30 + 1}, {MaxSend: -1}, {Depth: 1<<12 + 1}, {Depth: -1}, {Transfers: 1 << 11}, {Backlog: -1}, {Linger: -1}} {
		if _, err := message.Listen(d, tooltest.Server4+":0", c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := message.Dial(t.Context(), d, tooltest.Client4+":1", c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

// Calls that wait end when this side closes.
func TestCloseWakes(t *testing.T) {
	_, b := connect(t, fault.Config{}, message.Config{})
	done := make(chan error, 1)
	go func() {
		_, err := b.Recv(t.Context(), nil)
		done <- err
	}()
	b.Close()
	if err := <-done; !errors.Is(err, net.ErrClosed) {
		t.Errorf("receive: %v", err)
	}
}

// Both sides refuse a peer that uses another protocol.
func TestForeignPeer(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	l, err := message.Listen(a, tooltest.Server4+":0", message.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var rejected *roce.RejectError
	if _, err := b.Dial(t.Context(), l.Addr().String(), roce.DialConfig{}); !errors.As(err, &rejected) {
		t.Errorf("a stranger got %v, want a reject", err)
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
	if _, err := message.Dial(t.Context(), b, tooltest.Server4+":7472", message.Config{}); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("a strange listener: %v, want EPROTO", err)
	}
}

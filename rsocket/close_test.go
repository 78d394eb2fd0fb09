package rsocket_test

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// soon fails the test if f takes longer than d of simulated time.
func soon(t *testing.T, what string, d time.Duration, f func() error) {
	t.Helper()
	start := time.Now()
	if err := f(); err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if took := time.Since(start); took > d {
		t.Errorf("%s took %v", what, took)
	}
}

// Close returns even if two io.Copy, one in each direction, wait for their other connection.
func TestCloseDuringCopy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := streams(t, fault.Config{}, rsocket.Config{})
		if _, err := b.Write(make([]byte, 100)); err != nil {
			t.Fatal(err)
		}
		near, far := net.Pipe() // far neither reads nor writes
		var copies sync.WaitGroup
		copies.Go(func() { io.Copy(near, a) })
		copies.Go(func() { io.Copy(a, near) })
		synctest.Wait()
		soon(t, "SetDeadline", 0, func() error { return a.SetDeadline(time.Now()) })
		if _, err := a.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("read while a copy waits: %v, want its deadline's error", err)
		}
		if _, err := a.Write(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("write while a copy waits: %v, want its deadline's error", err)
		}
		soon(t, "CloseRead", time.Second, a.CloseRead)
		soon(t, "CloseWrite", time.Second, a.CloseWrite)
		soon(t, "Close", time.Second, a.Close)
		far.Close()
		copies.Wait()
	})
}

// CloseWrite ends a Write that waits for the peer to read, and so does Close.
func TestCloseDuringWrite(t *testing.T) {
	for _, half := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			a, _ := streams(t, fault.Config{}, rsocket.Config{})
			written := make(chan error, 1)
			go func() {
				_, err := a.Write(make([]byte, 1<<20))
				written <- err
			}()
			synctest.Wait()
			want := net.ErrClosed
			if half {
				want = syscall.EPIPE
				soon(t, "CloseWrite", time.Second, a.CloseWrite)
			} else {
				soon(t, "Close", time.Second, a.Close)
			}
			if err := <-written; !errors.Is(err, want) {
				t.Errorf("write: %v, want %v", err, want)
			}
		})
	}
}

// If the peer is silent, Close returns after Config.Linger, and ends a CloseWrite that waits
// for the peer. A second Close returns at once.
func TestCloseSilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = 100 * time.Millisecond // shorter than the retries of the queue pair
		silent := fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Dir: fault.Tx, Nth: 50, Count: 1 << 30}}}
		da, db := tooltest.Pair(t, silent)
		a, _ := connect(t, da, db, rsocket.Config{Linger: linger})
		for a.SetWriteDeadline(time.Now().Add(10*time.Millisecond)) == nil {
			if _, err := a.Write(make([]byte, 1000)); err != nil {
				break
			}
		}
		half := make(chan error, 1)
		go func() { half <- a.CloseWrite() }()
		synctest.Wait()
		first := make(chan error, 1)
		start := time.Now()
		go func() { first <- a.Close() }()
		synctest.Wait()
		soon(t, "CloseWrite", 0, func() error {
			if err := <-half; !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		soon(t, "second Close", 0, func() error {
			if err := a.Close(); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		<-first
		if took := time.Since(start); took > linger {
			t.Errorf("Close took %v with Linger of %v", took, linger)
		}
	})
}

// Both sides end their direction and close at the same time, while the network loses packets.
// Each side reads all data that the other wrote. ECONNRESET is allowed: if the last
// acknowledgement of a side is lost and its peer is gone, the side cannot know that its data arrived.
func TestCloseBothDeliver(t *testing.T) {
	for seed := range uint64(8) {
		synctest.Test(t, func(t *testing.T) {
			a, b := streams(t, fault.Config{Seed: seed, Tx: fault.Rates{Loss: 0.1}}, rsocket.Config{})
			var ends sync.WaitGroup
			for _, c := range []*rsocket.Conn{a, b} {
				ends.Go(func() {
					if _, err := c.Write(make([]byte, 30_000)); err != nil {
						t.Error(err)
					}
					if err := c.CloseWrite(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("seed %d: close of one direction: %v", seed, err)
					}
					if got, err := io.ReadAll(c); len(got) != 30_000 || err != nil {
						t.Errorf("seed %d: read %d bytes, %v", seed, len(got), err)
					}
					if err := c.Close(); err != nil && !errors.Is(err, syscall.ECONNRESET) {
						t.Errorf("seed %d: close: %v", seed, err)
					}
				})
			}
			ends.Wait()
		})
	}
}

// Closing a device ends the calls that wait on its streams.
func TestDeviceClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		da, db := tooltest.Pair(t, fault.Config{})
		a, _ := connect(t, da, db, rsocket.Config{})
		ended := make(chan error, 3)
		go func() {
			_, err := a.Read(make([]byte, 1))
			ended <- err
		}()
		go func() {
			_, err := a.Write(make([]byte, 1<<20))
			ended <- err
		}()
		synctest.Wait()
		da.Close()
		for range 2 {
			if err := <-ended; err == nil {
				t.Error("a call on a closed device succeeded")
			}
		}
		soon(t, "CloseWrite", 0, func() error { a.CloseWrite(); return nil })
		soon(t, "Close", 0, func() error { a.Close(); return nil })
	})
}

// Disconnect delivers and waits for the peer's confirmation; Close frees the stream after it.
func TestDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		da, db := tooltest.Pair(t, fault.Config{})
		a, b := connect(t, da, db, rsocket.Config{})
		if _, err := a.Write([]byte("last")); err != nil {
			t.Fatal(err)
		}
		if err := a.Disconnect(t.Context()); err != nil {
			t.Error(err)
		}
		if got, err := io.ReadAll(b); err != nil || string(got) != "last" {
			t.Errorf("read %q, %v", got, err)
		}
		synctest.Wait() // the queue pair ends, and all completions are handled
		if _, err := a.Write([]byte("more")); !errors.Is(err, syscall.EPIPE) {
			t.Errorf("write after Disconnect: %v", err)
		}
		if err := errors.Join(a.Disconnect(t.Context()), a.Close()); err != nil {
			t.Errorf("a second Disconnect, and Close: %v", err)
		}
		if err := a.Disconnect(t.Context()); !errors.Is(err, net.ErrClosed) {
			t.Errorf("Disconnect after Close: %v", err)
		}
		b.Close()
	})
}

// A value beyond its limits is refused, not changed.
func TestConfigLimits(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	for _, c := range []rsocket.Config{{SendBuffer: 4095}, {RecvBuffer: -1}, {RecvBuffer: 1<<30 + 1}, {SendDepth: 15}, {RecvDepth: 1<<15 + 1}, {Maps: 129},
		{Maps: -1}, {Maps: 1 << 15}, {Linger: -1}, {Backlog: -1}} {
		if _, err := rsocket.Listen(d, tooltest.Server4+":0", c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
		if _, err := rsocket.Dial(t.Context(), d, tooltest.Client4+":1", c); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

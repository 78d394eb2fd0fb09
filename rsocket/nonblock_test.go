package rsocket_test

import (
	"bytes"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// TestTry: a call that does not wait returns EAGAIN if it would have to wait. The functions of Watch are called when the
// program may try again.
func TestTry(t *testing.T) {
	b, a := streams(t, fault.Config{}, rsocket.Config{})
	token := func(c chan struct{}) func() {
		return func() {
			select {
			case c <- struct{}{}:
			default:
			}
		}
	}
	any := make(chan struct{}, 1)
	b.Watch(token(any), nil)
	a.Watch(nil, token(any))
	p := make([]byte, 256<<10)
	if n, err := b.TryRead(p); n != 0 || err != syscall.EAGAIN {
		t.Fatalf("TryRead of nothing: %d, %v", n, err)
	}
	if read, write, over := b.Ready(); read || !write || over {
		t.Errorf("Ready of a new stream: %v %v %v", read, write, over)
	}
	sent := make([]byte, 1<<20) // more than all buffers
	for i := range sent {
		sent[i] = byte(i * 7)
	}
	var got []byte
	left := sent
	for len(got) < len(sent) {
		n, err := a.TryWrite(left)
		if err != nil && err != syscall.EAGAIN {
			t.Fatal(err)
		}
		left = left[n:]
		n, err = b.Peek(p)
		switch {
		case err == syscall.EAGAIN:
			wait(t, any)
			continue
		case err != nil:
			t.Fatal(err)
		}
		q := make([]byte, n)
		if m, err := b.TryRead(q); m != n || err != nil || !bytes.Equal(q, p[:n]) {
			t.Fatalf("TryRead after a Peek of %d bytes: %d, %v", n, m, err)
		}
		got = append(got, q...)
	}
	if !bytes.Equal(got, sent) {
		t.Error("other data arrived")
	}
	if err := a.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	for {
		_, err := b.TryRead(p)
		if err == io.EOF {
			break
		}
		if err != syscall.EAGAIN {
			t.Fatal(err)
		}
		wait(t, any)
	}
	if _, err := a.TryWrite(p); !errors.Is(err, syscall.EPIPE) {
		t.Errorf("TryWrite after CloseWrite: %v", err)
	}
}

func wait(t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(time.Minute):
		t.Fatal("Watch was not called")
	}
}

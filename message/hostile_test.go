package message_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
)

// hello is the private data of a peer, with any depth and limit.
func hello(depth, limit uint32) []byte {
	b := binary.BigEndian.AppendUint32([]byte("rmg\x01"), depth)
	return binary.BigEndian.AppendUint32(b, limit)
}

// stranger connects a queue pair of the test, with private data says, to a message listener. The
// queue pair has posted receives, whose memory is the returned region.
func stranger(t *testing.T, a, b *roce.Device, cfg message.Config, says []byte) (victim *message.Conn, conn *roce.Conn, mr *roce.MR) {
	t.Helper()
	l, err := message.Listen(a, tooltest.Server4+":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	pd := b.AllocPD()
	if mr, err = pd.RegMR(make([]byte, 1<<20), roce.LocalWrite); err != nil {
		t.Fatal(err)
	}
	conn, err = b.Dial(t.Context(), l.Addr().String(), roce.DialConfig{PD: pd, Param: roce.ConnParam{PrivateData: says},
		QPConfig: roce.QPConfig{SignalAll: true, Caps: roce.Caps{MaxSendWR: 256, MaxRecvWR: 256, MaxSendSGE: 1, MaxRecvSGE: 1}},
		Setup: func(q *roce.QP) error {
			for range 64 {
				if err := q.PostRecv(&roce.RecvWR{SG: []roce.SGE{mr.SGE(0, 4096)}}); err != nil {
					return err
				}
			}
			return nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	if victim, err = l.Accept(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		victim.Close()
		conn.Close()
		mr.Close()
		pd.Close()
	})
	return victim, conn, mr
}

// allocated returns how many bytes f allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// The message limit of a peer bounds sent messages, but makes this side allocate nothing.
func TestPeerLimitCostsNothing(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	if n := allocated(func() {
		victim, _, _ := stranger(t, a, b, message.Config{}, hello(4, 1<<28))
		if got := victim.MaxSend(); got != 64<<10 {
			t.Errorf("MaxSend is %d with a peer that takes more, want the sender's own 65536", got)
		}
		if err := victim.Send(t.Context(), make([]byte, 64<<10+1)); !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("send beyond the sender's own limit: %v, want EMSGSIZE", err)
		}
	}); n > 64<<20 {
		t.Errorf("a peer that takes messages of 256 MiB made this side allocate %d MiB", n>>20)
	}
}

// A configuration whose buffers do not fit into any address space is refused.
func TestConfigTooLarge(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	_, err := message.Listen(a, tooltest.Server4+":0", message.Config{MaxMessage: 1 << 30, Depth: 1 << 12})
	if !errors.Is(err, syscall.EINVAL) {
		t.Errorf("4 TiB of receive buffers: %v, want EINVAL", err)
	}
	if _, err = message.Dial(t.Context(), a, tooltest.Client4+":1", message.Config{MaxMessage: 1 << 30, Depth: 1 << 12}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("64 GiB of send buffers: %v, want EINVAL", err)
	}
}

// A Recv with a buffer that is too short loses no message and does not change their order, even if
// many such calls wait at the same time.
func TestShortReceives(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := connect(t, fault.Config{}, message.Config{})
		const n = 8
		var all sync.WaitGroup
		for range n {
			all.Go(func() {
				if _, err := b.Recv(t.Context(), nil); !errors.Is(err, syscall.EMSGSIZE) {
					t.Errorf("short receive: %v, want EMSGSIZE", err)
				}
			})
		}
		synctest.Wait() // all of them wait
		for i := range n {
			if err := a.Send(t.Context(), fmt.Append(nil, "message ", i)); err != nil {
				t.Fatal(err)
			}
		}
		all.Wait()
		buf := make([]byte, 100)
		for i := range n {
			n, err := b.Recv(t.Context(), buf)
			if want := fmt.Sprint("message ", i); err != nil || string(buf[:n]) != want {
				t.Fatalf("received %q, %v, want %q", buf[:n], err, want)
			}
		}
	})
}

// If a Recv with a short buffer leaves the message, the next waiting Recv is woken.
func TestShortReceiveWakesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := connect(t, fault.Config{}, message.Config{})
		short, long := make(chan error, 1), make(chan string, 1)
		go func() {
			_, err := b.Recv(t.Context(), nil)
			short <- err
		}()
		synctest.Wait() // the short receive waits first
		go func() {
			buf := make([]byte, 100)
			n, err := b.Recv(t.Context(), buf)
			if err != nil {
				t.Error(err)
			}
			long <- string(buf[:n])
		}()
		synctest.Wait()
		if err := a.Send(t.Context(), []byte("x")); err != nil {
			t.Fatal(err)
		}
		if err := <-short; !errors.Is(err, syscall.EMSGSIZE) {
			t.Errorf("short receive: %v, want EMSGSIZE", err)
		}
		if got := <-long; got != "x" {
			t.Errorf("received %q, want %q", got, "x")
		}
	})
}

// A peer may WRITE with immediate data into exported memory. Its completion is not taken for a
// message: the connection ends with EPROTO.
func TestImmediateWriteIsNoMessage(t *testing.T) {
	a, b := tooltest.Pair(t, fault.Config{})
	victim, conn, mr := stranger(t, a, b, message.Config{MaxMessage: 64}, hello(4, 64))
	memory := make([]byte, 1<<20)
	e, err := victim.Export(memory, message.ReadWrite)
	if err != nil {
		t.Fatal(err)
	}
	token, _ := e.Token().MarshalBinary()
	err = conn.QP().PostSend(&roce.SendWR{Opcode: roce.WriteImm, SG: []roce.SGE{mr.SGE(0, 1<<20)},
		RemoteAddr: binary.BigEndian.Uint64(token), RKey: roce.RKey(binary.BigEndian.Uint32(token[16:]))})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := victim.Recv(t.Context(), make([]byte, 1<<20)); !errors.Is(err, syscall.EPROTO) {
		t.Errorf("received %d bytes, %v, want EPROTO", n, err)
	}
}

// If a peer returns more credits than messages were sent, the connection ends with EPROTO, and Send
// does not hang.
func TestStrayCredit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		victim, conn, mr := stranger(t, a, b, message.Config{}, hello(1, 64))
		if err := conn.QP().PostSend(&roce.SendWR{Opcode: roce.SendImm, Imm: 1 << 30, SG: []roce.SGE{mr.SGE(0, 1)}}); err != nil {
			t.Fatal(err)
		}
		<-victim.Done()
		if !errors.Is(victim.Err(), syscall.EPROTO) {
			t.Errorf("over because of %v, want EPROTO", victim.Err())
		}
		if err := victim.Send(t.Context(), nil); !errors.Is(err, syscall.EPROTO) {
			t.Errorf("send: %v, want EPROTO", err)
		}
	})
}

// Close ends waiting transfers even if the peer never answers.
func TestCloseEndsTransfers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		server, client := connectOn(t, a, b, message.Config{})
		e, err := server.Export(make([]byte, 1<<20), message.ReadWrite)
		if err != nil {
			t.Fatal(err)
		}
		a.Close() // the peer is silent
		canceled, cancel := context.WithCancel(t.Context())
		done := make(chan error, 2)
		go func() { done <- client.Read(canceled, e.Token(), 0, make([]byte, 1<<20)) }()
		go func() { done <- client.Write(t.Context(), e.Token(), 0, make([]byte, 1<<20)) }()
		synctest.Wait()
		cancel()
		<-done
		client.Close()
		if err := <-done; err == nil {
			t.Error("a write to a silent peer succeeded")
		}
	})
}

// The second Close returns at once, whatever the first waits for.
func TestSecondCloseReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := tooltest.Pair(t, fault.Config{})
		victim, conn, _ := stranger(t, a, b, message.Config{}, hello(200, 64))
		for range 64 { // the peer has 64 receives and never posts more
			if err := victim.Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		for range 8 {
			if err := victim.Send(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
		}
		first := make(chan error, 1)
		go func() { first <- victim.Close() }()
		synctest.Wait()
		if err := victim.Close(); !errors.Is(err, net.ErrClosed) {
			t.Errorf("second close: %v", err)
		}
		if err := <-first; !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("first close: %v, want the end of Config.Linger", err)
		}
		conn.Close()
	})
}

// Accept returns an error when the device of the listener is closed.
func TestAcceptOnClosedDevice(t *testing.T) {
	a, _ := tooltest.Pair(t, fault.Config{})
	l, err := message.Listen(a, tooltest.Server4+":0", message.Config{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := l.Accept(context.Background())
		done <- err
	}()
	a.Close()
	if err := <-done; err == nil {
		t.Error("accepted on a closed device")
	}
	l.Close()
}

package rsocket_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/rsocket"
)

// proxy copies data in both directions between two connections. When a connection ends one
// direction, proxy ends this direction of the other connection.
func proxy(a, b net.Conn) {
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{a, b}, {b, a}} {
		both.Go(func() {
			io.Copy(way[0], way[1])
			if c, ok := way[0].(interface{ CloseWrite() error }); ok {
				c.CloseWrite()
			}
		})
	}
	both.Wait()
	a.Close()
	b.Close()
}

// tcp connects two ends over the loopback.
func tcp(t *testing.T) (net.Conn, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	a, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { a.Close(); b.Close() })
	return a, b
}

// One proxy connects TCP to rsocket, the other rsocket to TCP. The data of both directions
// arrives complete, and both proxies end after their users.
func TestProxy(t *testing.T) {
	for _, f := range []fault.Config{{}, lossy} {
		user, front := tcp(t)
		back, service := tcp(t)
		near, far := streams(t, f, rsocket.Config{RecvBuffer: 16 << 10})
		var proxies, users sync.WaitGroup
		proxies.Go(func() { proxy(front, near) })
		proxies.Go(func() { proxy(far, back) })
		const total = 1 << 20
		for i, c := range []net.Conn{user, service} {
			sums := make(chan []byte, 2)
			users.Go(func() {
				rng, sum := rand.New(rand.NewPCG(3, uint64(i))), sha256.New()
				buf := make([]byte, 60_000)
				for left := total; left > 0; {
					n := min(left, 1+rng.IntN(len(buf)))
					for k := range n {
						buf[k] = byte(rng.Uint32())
					}
					sum.Write(buf[:n])
					if _, err := c.Write(buf[:n]); err != nil {
						t.Error(err)
						break
					}
					left -= n
				}
				c.(*net.TCPConn).CloseWrite()
				sums <- sum.Sum(nil)
			})
			peer := []net.Conn{service, user}[i]
			users.Go(func() {
				sum := sha256.New()
				if n, err := io.Copy(sum, peer); n != total || err != nil {
					t.Errorf("user %d: the other read %d bytes, %v", i, n, err)
				}
				sums <- sum.Sum(nil)
			})
			users.Go(func() {
				if !bytes.Equal(<-sums, <-sums) {
					t.Errorf("user %d: what was read is not what was written", i)
				}
			})
		}
		users.Wait()
		proxies.Wait()
	}
}

// The connections around a proxy close in different orders, in the middle of a transfer. With every
// order the proxy ends, and no goroutine is left (otherwise synctest fails).
func TestProxyCloses(t *testing.T) {
	orders := [][]int{{0}, {1}, {2}, {3}, {0, 3}, {3, 0}, {1, 2}, {2, 1}, {1, 2, 0, 3}, {2, 0}}
	for _, order := range orders {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				near, far := streams(t, fault.Config{}, rsocket.Config{RecvBuffer: 8 << 10, SendBuffer: 8 << 10})
				user, front := net.Pipe()
				var all sync.WaitGroup
				all.Go(func() { proxy(front, near) })
				for _, c := range []net.Conn{user, far} {
					all.Go(func() { // the other end soon stops reading this data
						for {
							if _, err := c.Write(make([]byte, 5000)); err != nil {
								return
							}
						}
					})
				}
				all.Go(func() { io.CopyN(io.Discard, far, 20_000) })
				all.Go(func() { io.CopyN(io.Discard, user, 20_000) })
				synctest.Wait()
				conns := []net.Conn{user, front, near, far}
				for _, i := range order {
					conns[i].Close()
				}
				// A pipe has no CloseWrite: the user leaves when the stream has ended.
				for _, c := range []net.Conn{user, far} {
					synctest.Wait()
					c.Close()
				}
				all.Wait()
			})
		})
	}
}

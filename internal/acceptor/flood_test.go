package acceptor_test

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/message"
	"github.com/goroce/roce/rsocket"
)

const service = "10.0.0.1:7471"

// network is a switch with a server, a client, and strangers that forge addresses.
type network struct {
	t              testing.TB
	server, client *roce.Device
	stranger       link.Port
	forged         int
}

func newNetwork(t testing.TB) *network {
	t.Helper()
	return newLimitedNetwork(t, roce.ConnLimits{})
}

func newLimitedNetwork(t testing.TB, limits roce.ConnLimits) *network {
	t.Helper()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	port := func(addr string) link.Port {
		p, err := hub.Port(addr, roce.DerivedMAC(netip.MustParseAddr(addr)))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	device := func(addr string) *roce.Device {
		d, err := roce.Open(roce.Config{Ports: []link.Port{port(addr)}, Addrs: []netip.Addr{netip.MustParseAddr(addr)}, Options: roce.Options{Limits: limits}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { d.Close() })
		return d
	}
	return &network{t, device("10.0.0.1"), device("10.0.0.2"), port("10.0.0.66"), 0}
}

// forge sends a connection request of a peer that will never confirm.
func (n *network) forge(private []byte) {
	n.t.Helper()
	n.forgeAs(private, func(*cm.REQ) {})
}

// forgeAs is forge with a request that change modifies.
func (n *network) forgeAs(private []byte, change func(*cm.REQ)) {
	n.t.Helper()
	n.forged++
	k := n.forged
	from := netip.AddrFrom4([4]byte{10, 1, byte(k >> 8), byte(k)})
	req := cm.REQ{LocalID: cm.CommID(k), LocalGUID: cm.GUID(k), QPN: bth.QPN(k + 2), PKey: bth.DefaultPKey, MTU: bth.MTU1024,
		ServiceID: cm.Service(cm.PortSpaceTCP, 7471), LocalResponseTimeout: 20, MaxCMRetries: 15,
		Primary: cm.Path{LocalGID: bth.GIDFrom(from), RemoteGID: n.server.GIDs()[0], HopLimit: 64, AckTimeout: 17}}
	h := cm.IPHeader{SrcPort: 1, Src: from, Dst: netip.MustParseAddr("10.0.0.1")}
	if err := h.Put(req.Private[:]); err != nil {
		n.t.Fatal(err)
	}
	copy(req.Private[cm.IPHeaderLen:], private)
	change(&req)
	path, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: n.server.GIDs()[0],
		SrcMAC: n.stranger.Info().MAC, DstMAC: n.server.Query().Link.MAC, SrcPort: 0xC000, HopLimit: 64})
	if err != nil {
		n.t.Fatal(err)
	}
	const size = bth.BTHLen + bth.DETHLen + cm.MADLen + bth.ICRCLen
	body, crc, room := n.stranger.Begin(path, size)
	if !room {
		n.t.Fatal("no room")
	}
	bth.PutBTH(body, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
	bth.PutDETH(body[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
	req.Put((*[cm.MADLen]byte)(body[bth.BTHLen+bth.DETHLen:]))
	const at = size - bth.ICRCLen
	bth.PutICRC(body[at:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:at]))
	n.stranger.Commit()
	n.stranger.Flush()
}

// Requests of strangers that never confirm use bounded memory and goroutines, and a client can still connect.
func TestFloodOfRequests(t *testing.T) {
	rsocketHello := append([]byte{1, 2, 1, 0x80}, make([]byte, 36)...)
	rsocketHello[23] = 2
	for _, kind := range []struct {
		name    string
		private []byte
		serve   func(*network) (accept, dial, closing func() error)
	}{
		{"message", []byte("rmg\x01\x00\x00\x00\x04\x00\x01\x00\x00"), func(n *network) (_, _, _ func() error) {
			l, err := message.Listen(n.server, service, message.Config{})
			if err != nil {
				n.t.Fatal(err)
			}
			return func() error {
					c, err := l.Accept(context.Background())
					if err == nil {
						err = c.Close()
					}
					return err
				}, func() error {
					c, err := message.Dial(context.Background(), n.client, service, message.Config{})
					if err == nil {
						c.Close()
					}
					return err
				}, l.Close
		}},
		{"rsocket", rsocketHello, func(n *network) (_, _, _ func() error) {
			l, err := rsocket.Listen(n.server, service, rsocket.Config{})
			if err != nil {
				n.t.Fatal(err)
			}
			return func() error {
					c, err := l.Accept()
					if err == nil {
						err = c.Close()
					}
					return err
				}, func() error {
					c, err := rsocket.Dial(context.Background(), n.client, service, rsocket.Config{})
					if err == nil {
						c.Close()
					}
					return err
				}, l.Close
		}},
	} {
		t.Run(kind.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNetwork(t)
				accept, dial, closing := kind.serve(n)
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				goroutines := runtime.NumGoroutine()
				for range 400 {
					n.forge(kind.private)
					synctest.Wait()
				}
				runtime.ReadMemStats(&after)
				if more := runtime.NumGoroutine() - goroutines; more > 130 {
					t.Errorf("%d goroutines for 400 strangers", more)
				}
				if more := after.TotalAlloc - before.TotalAlloc; more > 32<<20 {
					t.Errorf("%d MiB for 400 strangers", more>>20)
				}
				accepted := make(chan error, 1)
				go func() { accepted <- accept() }()
				if err := dial(); err != nil {
					t.Errorf("dial: %v", err)
				}
				if err := <-accepted; err != nil {
					t.Errorf("accept: %v", err)
				}
				if err := closing(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// listen takes plain connections.
func (n *network) listen(backlog int) *acceptor.Acceptor[*roce.Conn] {
	n.t.Helper()
	a, err := acceptor.Listen(n.server, service, backlog,
		func(ctx context.Context, r *roce.ConnRequest) (*roce.Conn, error) {
			return r.Accept(ctx, roce.AcceptConfig{})
		},
		func(c *roce.Conn) { c.Close() })
	if err != nil {
		n.t.Fatal(err)
	}
	return a
}

// The backlog limits unaccepted connections; each accepted one makes room for the next. Close ends the rest.
func TestUnaccepted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		const backlog = 4
		a := n.listen(backlog)
		dialed := make(chan *roce.Conn, 100)
		for range 3 * backlog {
			go func() {
				c, err := n.client.Dial(context.Background(), service, roce.DialConfig{})
				if err != nil {
					t.Error(err)
				}
				dialed <- c
			}()
		}
		synctest.Wait()
		if got := len(dialed); got != backlog {
			t.Fatalf("%d connections without an Accept, want %d", got, backlog)
		}
		for i := range 2 * backlog {
			c, err := a.Accept(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			synctest.Wait()
			if len(dialed) < backlog+1+i {
				time.Sleep(10 * time.Second) // the client repeats a dropped request
			}
			if got := len(dialed); got != backlog+1+i {
				t.Fatalf("%d connections after %d Accepts, want %d", got, i+1, backlog+1+i)
			}
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
		left := 0
		for range 3 * backlog {
			c := <-dialed
			synctest.Wait()
			if c.Err() == nil {
				left++
			}
			c.Close()
		}
		if left != 2*backlog {
			t.Errorf("%d connections are left, want the %d that were accepted", left, 2*backlog)
		}
	})
}

// Strangers that hold all places and do not confirm lose a place after a second.
func TestEvict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork(t)
		a := n.listen(4)
		for range 4 {
			n.forge(nil)
		}
		synctest.Wait()
		start := time.Now()
		c, err := n.client.Dial(context.Background(), service, roce.DialConfig{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if took := time.Since(start); took > 1100*time.Millisecond {
			t.Errorf("connected after %v", took)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
}

// Accept ends when the acceptor or its device is closed.
func TestAcceptEnds(t *testing.T) {
	for _, device := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := newNetwork(t)
			a := n.listen(0)
			done := make(chan error, 1)
			go func() {
				_, err := a.Accept(context.Background())
				done <- err
			}()
			synctest.Wait()
			if device {
				n.server.Close()
			} else {
				a.Close()
			}
			if err := <-done; !errors.Is(err, net.ErrClosed) {
				t.Errorf("accept: %v, want net.ErrClosed", err)
			}
			a.Close()
			if err := a.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("second close: %v", err)
			}
		})
	}
}

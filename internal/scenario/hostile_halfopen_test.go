package scenario_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/qp"
)

// request sends the k-th REQ for port 7471, with a source address that may be forged.
func (a *attacker) request(from netip.Addr, k int) {
	a.t.Helper()
	a.mad(from, forgedREQ(a.victim, from, k))
}

func (a *attacker) mad(from netip.Addr, m cm.Message) {
	a.t.Helper()
	a.send(a.path(from.String()), bth.BTHLen+bth.DETHLen+cm.MADLen+bth.ICRCLen, func(b []byte) {
		bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
		bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
		m.Put((*[cm.MADLen]byte)(b[bth.BTHLen+bth.DETHLen:]))
	})
}

func forgedREQ(victim *roce.Device, from netip.Addr, k int) *cm.REQ {
	req := &cm.REQ{LocalID: cm.CommID(k + 1), LocalGUID: cm.GUID(k + 1), QPN: bth.QPN(k + 2), PKey: bth.DefaultPKey, MTU: bth.MTU1024,
		ServiceID: cm.Service(cm.PortSpaceTCP, 7471), LocalResponseTimeout: 31, MaxCMRetries: 15,
		Primary: cm.Path{LocalGID: bth.GIDFrom(from), RemoteGID: victim.GIDs()[0], HopLimit: 64, AckTimeout: 31}}
	h := cm.IPHeader{SrcPort: 1, Src: from, Dst: victim.GIDs()[0].Addr()}
	if err := h.Put(req.Private[:]); err != nil {
		panic(err)
	}
	return req
}

// manySources returns a different address for each request of a flood.
func manySources(k int) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], 0x0A010000+uint32(k))
	return netip.AddrFrom4(b)
}

func oneSource(int) netip.Addr { return netip.MustParseAddr("10.0.0.66") }

// TestAcceptIsBounded: a peer that sends a request and then nothing delays Accept for seconds only, whatever its request
// says.
func TestAcceptIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server := n.device("10.0.0.1")
		evil := newAttacker(n, server)
		l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		evil.request(oneSource(0), 0)
		r := ok(l.Accept(t.Context()))(t)
		began := time.Now()
		_, err := r.Accept(t.Context(), roce.AcceptConfig{})
		wantErr(t, "Accept", err, syscall.ETIMEDOUT)
		if took := time.Since(began); took != 10*time.Second {
			t.Errorf("Accept took %v", took)
		}
		if qps := queuePairs(server); qps != 0 {
			t.Errorf("%d queue pairs are left", qps)
		}
	})
}

// nowhere is a resolver that finds no host.
type nowhere struct{}

func (nowhere) Resolve(context.Context, netip.Addr, netip.Addr) (roce.Neighbour, error) {
	return roce.Neighbour{}, syscall.EHOSTUNREACH
}

// TestRequestFromNowhere: a request of an unreachable sender uses no queue pair.
func TestRequestFromNowhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		config.Resolver = nowhere{}
		server := n.open(config)
		evil := newAttacker(n, server)
		l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		evil.request(oneSource(0), 0)
		r := ok(l.Accept(t.Context()))(t)
		_, err := r.Accept(t.Context(), roce.AcceptConfig{Setup: func(*roce.QP) error {
			t.Error("the program sets a queue pair up")
			return nil
		}})
		wantErr(t, "Accept", err, syscall.EHOSTUNREACH)
	})
}

// TestGuessedData: packets from the address in a connection request, for the queue pair of the connection, confirm it only
// if they have the PSN in the REP.
func TestGuessedData(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		config := n.config("10.0.0.1")
		config.Congestion = &roce.DCQCN{LineRate: qp.Gbps}
		server := n.open(config)
		evil := newAttacker(n, server)
		l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{}))(t)
		evil.request(oneSource(0), 0)
		r := ok(l.Accept(t.Context()))(t)
		var q *roce.QP
		go func() {
			time.Sleep(time.Second)
			packet := func(op bth.Opcode, size int, psn bth.PSN) {
				evil.send(evil.path(oneSource(0).String()), bth.BTHLen+size+bth.ICRCLen, func(b []byte) {
					bth.PutBTH(b, op, bth.MigReq, 0, bth.DefaultPKey, q.Num(), psn)
				})
				synctest.Wait()
			}
			for i := range bth.PSN(50) {
				packet(bth.RCSendOnly, 0, i<<18)
				packet(bth.RCAck, bth.AETHLen, i<<18)
			}
			packet(bth.CNP, bth.CNPReservedLen, 0)
		}()
		_, err := r.Accept(t.Context(), roce.AcceptConfig{Setup: func(made *roce.QP) error { q = made; return nil }})
		wantErr(t, "Accept", err, syscall.ETIMEDOUT)
	})
}

// TestUnansweredRequest: a request that the program has not taken, or has dropped, ends after a time and frees its place.
func TestUnansweredRequest(t *testing.T) {
	for _, polled := range []bool{false, true} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprintf("polled %v, taken %v", polled, taken), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := newNetwork(t)
					config := n.config("10.0.0.1")
					config.Polled = polled
					server, client := n.open(config), n.device("10.0.0.2")
					evil := newAttacker(n, server)
					l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{Backlog: 1, RequestTimeout: 5 * time.Second}))(t)
					evil.request(oneSource(0), 0)
					for server.Progress() {
					}
					if taken {
						r := ok(l.Accept(t.Context()))(t)
						time.Sleep(6 * time.Second)
						server.Progress()
						_, err := r.Accept(t.Context(), roce.AcceptConfig{})
						wantErr(t, "Accept of a request that is over", err, syscall.ECONNABORTED)
					} else {
						time.Sleep(6 * time.Second)
					}
					go func() {
						if r, err := l.Accept(t.Context()); err != nil || r.RemoteAddr().Addr() != client.GIDs()[0].Addr() {
							t.Errorf("Accept: %v, %v", r, err)
						} else {
							r.Accept(t.Context(), roce.AcceptConfig{})
						}
					}()
					ok(client.Dial(within(t, 10*time.Second), serverAddr, roce.DialConfig{}))(t)
				})
			})
		}
	}
}

// TestFloodedServer: while one source, or many, send REQs and never confirm, a client
// connects within seconds. A server that accepts each request on a separate goroutine serves the client in any flood; a
// server that accepts in its loop does so in the flood of one source.
func TestFloodedServer(t *testing.T) {
	for _, tt := range []struct {
		name       string
		from       func(int) netip.Addr
		concurrent bool
	}{{"one source", oneSource, true}, {"many sources", manySources, true}, {"one source, in the loop", oneSource, false}} {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				config := n.config("10.0.0.1")
				config.Limits = roce.ConnLimits{MaxHalfOpen: 256}
				server, client := n.open(config), n.device("10.0.0.2")
				evil := newAttacker(n, server)
				l := ok(server.Listen(t.Context(), ":7471", roce.ListenConfig{Backlog: 32}))(t)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				accept := func(r *roce.ConnRequest) { r.Accept(ctx, roce.AcceptConfig{}) }
				go func() {
					for {
						r, err := l.Accept(ctx)
						if err != nil {
							return
						}
						if tt.concurrent {
							go accept(r)
						} else {
							accept(r)
						}
					}
				}()
				k := 0
				flood := func() { // the requests of 5 ms
					for range 50 {
						evil.request(tt.from(k), k)
						k++
					}
					time.Sleep(5 * time.Millisecond)
				}
				for range 100 {
					flood()
				}
				dialled := make(chan error, 1)
				began := time.Now()
				go func() {
					_, err := client.Dial(ctx, serverAddr, roce.DialConfig{})
					dialled <- err
				}()
				for synctest.Wait(); len(dialled) == 0; flood() {
					if time.Since(began) > 10*time.Second {
						t.Fatal("not connected for 10 s")
					}
				}
				check(t, <-dialled)
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("connected after %v", took)
				}
				if m, _, _ := remembered(server); m > 256+1 {
					t.Errorf("%d connections are remembered", m)
				}
				stop()
			})
		})
	}
}

// TestStrangerEndsNothing: a REQ of a stranger with the GUID and the QPN of a client
// does not end its connection, and does not stop the client from making another one.
func TestStrangerEndsNothing(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		evil := newAttacker(c.net, c.server)
		server, client := c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		for i := range 20 {
			req := forgedREQ(c.server, oneSource(0), i)
			req.ServiceID++ // nobody listens there
			req.LocalGUID, req.QPN = cm.GUID(c.client.Query().GUID), client.QP().Num()+bth.QPN(i)
			evil.mad(oneSource(0), req)
		}
		time.Sleep(time.Second)
		c.connect(roce.DialConfig{}, roce.AcceptConfig{})
		if server.Err() != nil || client.Err() != nil {
			t.Errorf("the connection is over: %v, %v", server.Err(), client.Err())
		}
	})
}

package scenario_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/qp"
)

const udService = "10.0.0.1:7174"

// wantStatus checks that a service was not resolved, and returns how.
func wantStatus(t testing.TB, err error, status cm.SIDRStatus) roce.ResolveError {
	t.Helper()
	var r *roce.ResolveError
	if !errors.As(err, &r) || r.Status != status || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v, want status %d", err, status)
		return roce.ResolveError{}
	}
	return *r
}

// nothingLeft checks that a device remembers no request.
func nothingLeft(t testing.TB, devices ...*roce.Device) {
	t.Helper()
	for _, d := range devices {
		if m, e, w := remembered(d); m+e+w > 0 {
			t.Errorf("the connection manager remembers %d, %d ends and %d paths", m, e, w)
		}
	}
}

// TestResolveUD: a client asks for a service's queue pair and talks to it.
func TestResolveUD(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		ctx := within(t, time.Minute)
		l := ok(c.server.ListenUD(ctx, ":7174", roce.ListenConfig{}))(t)
		tcp := ok(c.server.Listen(ctx, ":7174", roce.ListenConfig{}))(t) // another port space
		server, client := newUDOn(t, c.server, 0, 0x22222222), newUDOn(t, c.client, 0, 0x22222222)
		var request *roce.UDRequest
		var wg sync.WaitGroup
		wg.Go(func() {
			request = ok(l.Accept(ctx))(t)
			check(t, request.Accept(server.qp, []byte("from the server")))
		})
		peer := ok(c.client.ResolveUD(ctx, udService, roce.ResolveConfig{PrivateData: []byte("from the client"), QKey: 0x22222222, TrafficClass: 0xB8}))(t)
		wg.Wait()
		private := func(got []byte, want string, size int) {
			t.Helper()
			if len(got) != size || string(bytes.TrimRight(got, "\x00")) != want {
				t.Errorf("private data %d bytes %q, want %d bytes %q", len(got), got, size, want)
			}
		}
		private(request.PrivateData(), "from the client", cm.SIDRREQUserLen)
		private(peer.PrivateData, "from the server", cm.SIDRREPPrivateLen)
		if request.RemoteAddr() != peer.LocalAddr || request.LocalAddr() != peer.RemoteAddr || peer.RemoteAddr.String() != udService {
			t.Errorf("the server is %v, its peer %v; the client is %v, its peer %v", request.LocalAddr(), request.RemoteAddr(), peer.LocalAddr, peer.RemoteAddr)
		}
		if peer.QPN != server.qp.Num() || peer.QKey != 0x22222222 {
			t.Errorf("queue pair %v with Q_Key %v, want %v", peer.QPN, peer.QKey, server.qp.Num())
		}
		if p := (*frame.Path)(peer.AH).Config(); p.TrafficClass != 0xB8 || p.FlowLabel != cm.FlowLabel(peer.LocalAddr.Port(), 7174) {
			t.Errorf("path %+v", p)
		}
		server.recv()
		wr := roce.SendWR{Opcode: roce.Send, Inline: []byte("hello")}
		peer.Address(&wr)
		check(t, client.qp.PostSend(&wr))
		server.want(client, "hello")

		wantErr(t, "answer again", request.Reject(nil), syscall.EINVAL)
		_, err := c.server.ListenUD(ctx, "10.0.0.1:7174", roce.ListenConfig{})
		wantErr(t, "listen again", err, syscall.EADDRINUSE)
		if any := ok(c.server.ListenUD(ctx, ":0", roce.ListenConfig{}))(t); any.Addr().Port() == 0 {
			t.Errorf("listening on %v", any.Addr())
		}
		check(t, tcp.Close())
		check(t, l.Close())
		wantErr(t, "close again", l.Close(), net.ErrClosed)
		_, err = l.Accept(ctx)
		wantErr(t, "accept after close", err, net.ErrClosed)
		_, err = c.client.ResolveUD(ctx, udService, roce.ResolveConfig{})
		wantStatus(t, err, cm.SIDRUnsupported)
		nothingLeft(t, c.server, c.client)
	})
}

// TestResolveUDRefused: the server program refuses a request, and passes invalid arguments to Accept and Reject.
func TestResolveUDRefused(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		ctx := within(t, time.Minute)
		l := ok(c.server.ListenUD(ctx, udService, roce.ListenConfig{}))(t)
		resolve := func(config roce.ResolveConfig, serve func(r *roce.UDRequest)) error {
			t.Helper()
			var wg sync.WaitGroup
			wg.Go(func() { serve(ok(l.Accept(ctx))(t)) })
			_, err := c.client.ResolveUD(ctx, udService, config)
			wg.Wait()
			return err
		}
		err := resolve(roce.ResolveConfig{}, func(r *roce.UDRequest) { check(t, r.Reject([]byte("go away"))) })
		if why := wantStatus(t, err, cm.SIDRReject).PrivateData; string(bytes.TrimRight(why, "\x00")) != "go away" {
			t.Errorf("private data %q", why)
		}
		good, foreign, rc := newUD(t, c.server), newUD(t, c.client), newPeer(t, c.server, 1)
		keyless, early := newUDOn(t, c.server, 0, 0), newUD(t, c.server)
		check(t, early.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		check(t, early.qp.Init(0, testQKey))
		err = resolve(roce.ResolveConfig{QKey: roce.DefaultUDPQKey}, func(r *roce.UDRequest) {
			for name, err := range map[string]error{
				"another device's queue pair":   r.Accept(foreign.qp, nil),
				"an RC queue pair":              r.Accept(rc.qp, nil),
				"a queue pair in INIT":          r.Accept(early.qp, nil),
				"a queue pair with Q_Key 0":     r.Accept(keyless.qp, nil),
				"too much private data":         r.Accept(good.qp, make([]byte, 137)),
				"too much private data, reject": r.Reject(make([]byte, 137)),
			} {
				wantErr(t, name, err, syscall.EINVAL)
			}
			check(t, r.Accept(good.qp, nil))
		})
		wantErr(t, "a Q_Key other than demanded", err, syscall.EINVAL)

		for _, tt := range []struct {
			addr   string
			config roce.ResolveConfig
			want   error
		}{
			{"10.0.0.1", roce.ResolveConfig{}, syscall.EINVAL},
			{"somewhere", roce.ResolveConfig{}, syscall.EINVAL},
			{udService, roce.ResolveConfig{PrivateData: make([]byte, 181)}, syscall.EINVAL},
			{udService, roce.ResolveConfig{Local: netip.MustParseAddr("10.0.0.9")}, syscall.EADDRNOTAVAIL},
			{"[fd00::1]:7174", roce.ResolveConfig{}, syscall.ENETUNREACH},
		} {
			_, err := c.client.ResolveUD(ctx, tt.addr, tt.config)
			wantErr(t, tt.addr, err, tt.want)
		}
		nothingLeft(t, c.server, c.client)
	})
}

// TestResolveUDSilence: no peer answers, or the caller's context ends.
func TestResolveUDSilence(t *testing.T) {
	both(t, func(t *testing.T, c *couple) {
		start := time.Now()
		_, err := c.client.ResolveUD(context.Background(), "10.0.0.77:7174", roce.ResolveConfig{})
		wantErr(t, "nobody is there", err, syscall.ETIMEDOUT)
		if took := time.Since(start); took < 65*time.Second || took > 66*time.Second {
			t.Errorf("it took %v, want 16 times 4096 ms", took)
		}
		l := ok(c.server.ListenUD(t.Context(), udService, roce.ListenConfig{}))(t)
		_, err = c.client.ResolveUD(within(t, time.Second), udService, roce.ResolveConfig{})
		wantErr(t, "the application does not answer", err, context.DeadlineExceeded)
		nothingLeft(t, c.client)
		r := ok(l.Accept(t.Context()))(t)
		check(t, r.Accept(newUD(t, c.server).qp, nil)) // too late, and no harm
		synctest.Wait()
		nothingLeft(t, c.server)
	})
}

// TestResolveUDLost: the client repeats a lost request. After a lost answer the server treats the repetition as a new
// request.
func TestResolveUDLost(t *testing.T) {
	for _, attr := range []cm.Attribute{cm.AttrSIDRREQ, cm.AttrSIDRREP} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			server := n.device("10.0.0.1")
			config := n.config("10.0.0.2")
			config.Ports[0] = ok(fault.Wrap(config.Ports[0], fault.Config{Rules: []fault.Rule{{Action: fault.Drop, Func: mads(attr), Nth: 1, Count: 2}}}))(t)
			client := n.open(config)
			l := ok(server.ListenUD(t.Context(), udService, roce.ListenConfig{}))(t)
			u := newUD(t, server)
			asked := 0
			go func() {
				for {
					r, err := l.Accept(context.Background())
					if err != nil {
						return
					}
					asked++
					check(t, r.Accept(u.qp, nil))
				}
			}()
			start := time.Now()
			peer := ok(client.ResolveUD(t.Context(), udService, roce.ResolveConfig{}))(t)
			want := map[cm.Attribute]int{cm.AttrSIDRREQ: 1, cm.AttrSIDRREP: 3}[attr]
			if peer.QPN != u.qp.Num() || asked != want {
				t.Errorf("%v lost: queue pair %v, asked %d times, want %d", attr, peer.QPN, asked, want)
			}
			if took := time.Since(start); took != 2*4096*time.Millisecond {
				t.Errorf("%v lost: took %v", attr, took)
			}
			check(t, l.Close())
			nothingLeft(t, server, client)
		})
	}
}

// TestResolveUDClose: closing the listener or the device refuses unanswered requests.
func TestResolveUDClose(t *testing.T) {
	for _, what := range []string{"listener, before it is taken", "device, before it is taken", "device, taken and not answered", "client"} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
			l := ok(server.ListenUD(t.Context(), udService, roce.ListenConfig{}))(t)
			answer := make(chan error)
			go func() {
				_, err := client.ResolveUD(context.Background(), udService, roce.ResolveConfig{})
				answer <- err
			}()
			synctest.Wait()
			switch what {
			case "listener, before it is taken":
				check(t, l.Close())
				wantStatus(t, <-answer, cm.SIDRReject)
				nothingLeft(t, server, client)
			case "device, before it is taken":
				check(t, server.Close())
				wantStatus(t, <-answer, cm.SIDRReject)
			case "device, taken and not answered":
				r := ok(l.Accept(t.Context()))(t)
				check(t, server.Close())
				wantStatus(t, <-answer, cm.SIDRReject)
				wantErr(t, "answer on a closed device", r.Reject(nil), net.ErrClosed)
			case "client":
				check(t, client.Close())
				wantErr(t, what, <-answer, net.ErrClosed)
				_, err := client.ResolveUD(t.Context(), udService, roce.ResolveConfig{})
				wantErr(t, what, err, net.ErrClosed)
			}
		})
	}
}

// TestResolveUDNoDatagrams: the UDP port space has no connections, and that of
// TCP no datagrams.
func TestResolveUDNoDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
		ok(server.ListenUD(t.Context(), ":1", roce.ListenConfig{}))(t)
		ok(server.Listen(t.Context(), ":2", roce.ListenConfig{}))(t)
		_, err := client.Dial(within(t, time.Minute), "10.0.0.1:1", roce.DialConfig{})
		wantReject(t, err, cm.RejectInvalidServiceID)
		_, err = client.ResolveUD(within(t, time.Minute), "10.0.0.1:2", roce.ResolveConfig{})
		wantStatus(t, err, cm.SIDRUnsupported)
	})
}

// TestResolveUDOverIPv6: the client resolves an IPv6 service from its IPv6 address.
func TestResolveUDOverIPv6(t *testing.T) {
	bubble(t, func(t *testing.T) {
		server, client := twoVersions(t)
		u := newUD(t, client)
		l := ok(client.ListenUD(t.Context(), "[fd00::2]:5", roce.ListenConfig{}))(t)
		go func() {
			if r, err := l.Accept(context.Background()); err == nil {
				check(t, r.Accept(u.qp, nil))
			}
		}()
		peer := ok(server.ResolveUD(t.Context(), "[fd00::2]:5", roce.ResolveConfig{}))(t)
		if c := (*frame.Path)(peer.AH).Config(); c.Src != bth.GIDFrom(netip.MustParseAddr("fd00::1")) || peer.QKey != testQKey {
			t.Errorf("peer %+v, path %+v", peer, c)
		}
	})
}

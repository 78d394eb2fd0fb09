package gsi

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/mono"
)

// neighbours stands for other processes on the address of the device.
type neighbours struct {
	share.Shared // no other method is called
	claims       map[uint64]int
	dropped      chan struct{}
	noted        []share.Conn
}

func (*neighbours) Slots() []share.Slot        { return []share.Slot{5} }
func (*neighbours) Disconnected(*share.Handle) {}

func (s *neighbours) Connected(c share.Conn) share.Handle {
	s.noted = append(s.noted, c)
	return share.Handle{}
}

func (s *neighbours) Claim(service uint64) error {
	s.claims[service]++
	return nil
}

func (s *neighbours) Drop(service uint64) {
	s.claims[service]--
	s.dropped <- struct{}{}
}

// request returns an agent that shares its address, its listener for a service, and the connection
// that a peer has asked for.
func request(t *testing.T, service cm.ServiceID) (*Agent, *neighbours, *Listener, *Conn) {
	peer, own := bth.GIDFrom(peerAddr), bth.GIDFrom(ownAddr)
	s := &neighbours{claims: map[uint64]int{}, dropped: make(chan struct{}, 9)}
	g := testAgent(t, new(testHost))
	g.shared = s
	asked := make(chan *Conn, 1)
	l, err := g.Listen(cm.ListenParam{ServiceID: service}, ListenHandler{Conn: func(c *Conn, _ cm.Event) { asked <- c }})
	if err != nil {
		t.Fatal(err)
	}
	req := cm.REQ{LocalID: 77, ServiceID: service, LocalGUID: 9, QPN: 99, PKey: bth.DefaultPKey, MTU: bth.MTU1024, Primary: cm.Path{LocalGID: peer, RemoteGID: own}}
	ip := cm.IPHeader{Src: peerAddr, Dst: ownAddr, SrcPort: 40000}
	ip.Put(req.Private[:])
	var mad [cm.MADLen]byte
	req.Put(&mad)
	if err := g.do(func(now mono.Time) { g.manager.HandleMAD(now, peer, own, mad[:]) }); err != nil {
		t.Fatal(err)
	}
	return g, s, l, <-asked
}

// Accept puts a connection on the board before the RTU arrives, so that the peer is also told if
// this process dies before the RTU.
func TestAcceptedIsNoted(t *testing.T) {
	_, s, _, c := request(t, 0x0000000001061234)
	if len(s.noted) != 0 {
		t.Fatal("a request that is not answered is noted as a connection")
	}
	if err := c.Accept(cm.AcceptParam{QPN: 64 + 5}); err != nil {
		t.Fatal(err)
	}
	want := share.Conn{LocalID: uint32(c.Info().LocalID()), RemoteID: 77, RemoteQPN: 99, Local: bth.GIDFrom(ownAddr), Remote: bth.GIDFrom(peerAddr)}
	if len(s.noted) != 1 || s.noted[0] != want {
		t.Errorf("noted %+v, want %+v", s.noted, want)
	}
}

// A peer repeats its request until it has an answer: a closed listener keeps its claim on the
// service until all its handshakes have ended, whatever ends them.
func TestClaimOutlivesListener(t *testing.T) {
	const service = 0x0000000001061234
	peer, own := bth.GIDFrom(peerAddr), bth.GIDFrom(ownAddr)
	for name, end := range map[string]func(g *Agent, c *Conn) error{
		"rejected":  func(_ *Agent, c *Conn) error { return c.Reject(cm.RejectConsumer, nil) },
		"destroyed": func(_ *Agent, c *Conn) error { c.Destroy(); return nil },
		"confirmed": func(g *Agent, c *Conn) error {
			if err := c.Accept(cm.AcceptParam{QPN: 64 + 5}); err != nil {
				return err
			}
			return c.CommEstablished()
		},
		"accepted, then destroyed": func(_ *Agent, c *Conn) error {
			err := c.Accept(cm.AcceptParam{QPN: 64 + 5})
			c.Destroy()
			return err
		},
		"given up by the peer": func(g *Agent, c *Conn) error {
			var mad [cm.MADLen]byte
			rej := cm.REJ{RemoteID: c.Info().LocalID(), Of: cm.OfOther, Reason: cm.RejectTimeout, LocalID: 77, InfoLen: 8}
			rej.Info[7] = 9
			rej.Put(&mad)
			return g.do(func(now mono.Time) { g.manager.HandleMAD(now, peer, own, mad[:]) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			g, s, l, c := request(t, service)
			l.Close()
			if s.claims[service] != 1 {
				t.Fatal("the service is another process's while a request for it is not answered")
			}
			if err := end(g, c); err != nil {
				t.Fatal(err)
			}
			<-s.dropped
			if s.claims[service] != 0 {
				t.Error("the service is still claimed")
			}
		})
	}
}

// halfHost is a resolver that waits in vain for all hosts but one.
type halfHost struct {
	testHost
	alive netip.Addr
}

func (h *halfHost) Resolve(ctx context.Context, local, remote netip.Addr) (route.Neighbour, error) {
	if remote != h.alive {
		<-ctx.Done()
		return route.Neighbour{}, ctx.Err()
	}
	return h.testHost.Resolve(ctx, local, remote)
}

// The reachable peers of a dead process get their DREQs soon, however many other peers are
// unreachable.
func TestDisconnectOrphansBesideUnreachable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testAgent(t, &halfHost{alive: peerAddr})
		var list []share.Conn
		for i := range uint32(20) {
			gone := netip.AddrFrom4([4]byte{10, 0, 0, 100 + byte(i%4)})
			list = append(list, share.Conn{LocalID: 64 * i, Local: bth.GIDFrom(ownAddr), Remote: bth.GIDFrom(gone)})
		}
		list = append(list, share.Conn{LocalID: 9, Local: bth.GIDFrom(ownAddr), Remote: bth.GIDFrom(peerAddr)})
		var peersTold sync.WaitGroup
		peersTold.Go(func() { g.disconnectOrphans(list) })
		time.Sleep(orphanDREQs * orphanDREQPause)
		synctest.Wait()
		g.do(func(mono.Time) {
			if n := g.Counters().Sent[cm.AttrDREQ-cm.AttrREQ]; n != orphanDREQs {
				t.Errorf("%d DREQs for the peer that is there, want %d", n, orphanDREQs)
			}
		})
		g.cancel()
		peersTold.Wait()
	})
}

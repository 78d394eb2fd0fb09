package gsi

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/mono"
)

// idsOf returns the communication IDs of a device: on an address that processes share those of
// its first slot.
func idsOf(s share.Shared) cm.IDClass {
	if s == nil {
		return cm.IDClass{}
	}
	residue, modulus := share.IDs(s.Slots())
	return cm.IDClass{Residue: cm.CommID(residue), Modulus: cm.CommID(modulus)}
}

// portsOf returns the ephemeral ports of a device in the same way.
func portsOf(s share.Shared) portClass {
	if s == nil {
		return portClass{0, 1}
	}
	return portClass{uint32(s.Slots()[0]), share.Slots}
}

// startSharing makes the agent disconnect the peers of other processes on the address when these die,
// and report the activity of this process on request.
func (g *Agent) startSharing() {
	if g.teller != nil {
		g.teller.OnReport(g.report)
	}
	if g.shared != nil {
		g.shared.OnOrphans(func(list []share.Conn) {
			if !g.nic.Closing() {
				g.nic.Go(func() { g.disconnectOrphans(list) })
			}
		})
	}
}

// report returns the activity of this process, with its queue pairs if detail is
// set.
func (g *Agent) report(detail bool) (r share.Report) {
	r.QueuePairs, _ = g.nic.Count()
	c := g.nic.Counters(func() {
		r.Connections = len(g.conns)
		for l := range g.listeners {
			r.Services = append(r.Services, uint64(l.service))
		}
	})
	r.TxPackets, r.RxPackets = c.Link.TxPackets, c.Link.RxPackets
	r.Clock = time.Duration(g.nic.Now())
	if detail {
		r.Queues = queues(g.nic.Observe())
	}
	slices.Sort(r.Services)
	r.Services = slices.Compact(r.Services)
	return r
}

// claim announces to the other processes that this one listens for a service. No lock is
// held.
func (g *Agent) claim(id cm.ServiceID) error {
	if g.shared == nil {
		return nil
	}
	return g.shared.Claim(uint64(id))
}

// dropClaim ends a claim.
func (g *Agent) dropClaim(id cm.ServiceID) {
	if g.shared != nil {
		g.shared.Drop(uint64(id))
	}
}

// handshakeBegun records that a peer has begun a connection with a listener. A peer without an answer
// repeats its request, which names only the service. So until the handshake ends, requests for the
// service must arrive at this process, even if the listener is closed. The shard is locked.
func (g *Agent) handshakeBegun(c *Conn, l *Listener) {
	if g.shared != nil {
		c.listener = l
		l.handshakes++
	}
}

// handshakeEnded records the end of the handshake of a connection. The shard is locked.
func (g *Agent) handshakeEnded(c *Conn) {
	l := c.listener
	if l == nil {
		return
	}
	c.listener = nil
	if l.handshakes--; l.closed && l.handshakes == 0 {
		g.shard.Call(func() {
			if !g.nic.Closing() {
				g.nic.Go(func() { g.dropClaim(l.service) })
			}
		})
	}
}

// putOnBoard records a connection on the board, so that its peer is told if this process
// dies. The shard is locked.
func (g *Agent) putOnBoard(c *Conn) {
	if g.shared == nil || c.noted != (share.Handle{}) {
		return
	}
	c.noted = g.shared.Connected(share.Conn{LocalID: uint32(c.conn.LocalID()), RemoteID: uint32(c.conn.RemoteID()), RemoteQPN: c.conn.RemoteQPN(),
		Local: c.conn.LocalGID(), Remote: c.conn.PeerAddress()})
}

// removeFromBoard removes a connection from the board. The shard is locked.
func (g *Agent) removeFromBoard(c *Conn) {
	if g.shared != nil {
		g.shared.Disconnected(&c.noted)
	}
}

// Number and interval of the DREQs to the peers of a dead process. A DREQ may be lost, and no
// process receives the DREP. Number and time limit of parallel lookups of routes to these peers:
// an unreachable peer must not delay the DREQs to others.
const (
	orphanDREQs     = 4
	orphanDREQPause = 150 * time.Millisecond
	lookups         = 64
	lookupTime      = time.Second
)

// disconnectOrphans tells the peers of a dead process about the end of their connections.
func (g *Agent) disconnectOrphans(list []share.Conn) {
	peers := map[route.Key][]share.Conn{}
	for _, c := range list {
		key := route.Key{Local: c.Local, Peer: c.Remote}
		peers[key] = append(peers[key], c)
	}
	room := make(chan struct{}, lookups)
	var peersTold sync.WaitGroup
	for key, conns := range peers {
		peersTold.Go(func() { g.disconnectOrphansOf(key, conns, room) })
	}
	peersTold.Wait()
}

// disconnectOrphansOf is disconnectOrphans for the connections to one peer.
func (g *Agent) disconnectOrphansOf(key route.Key, conns []share.Conn, room chan struct{}) {
	for range orphanDREQs {
		room <- struct{}{}
		ctx, cancel := context.WithTimeout(g.background, lookupTime)
		r, err := g.Route(ctx, key.Local.Addr(), key.Peer.Addr(), 0)
		cancel()
		<-room
		for _, c := range conns {
			if err == nil {
				err = g.do(func(mono.Time) {
					g.remember(r.key(), r.path)
					g.manager.SendDREQ(c.Local, c.Remote, cm.CommID(c.LocalID), cm.CommID(c.RemoteID), c.RemoteQPN)
				})
			}
		}
		select {
		case <-g.background.Done():
			return
		case <-time.After(orphanDREQPause):
		}
	}
}

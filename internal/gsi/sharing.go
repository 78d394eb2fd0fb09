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

// startSharing makes the agent tell the peers of other processes that died, and say what this
// process does, when it is asked to.
func (g *Agent) startSharing() {
	if g.shared != nil {
		g.shared.OnReport(g.report)
		g.shared.OnOrphans(func(list []share.Conn) {
			if !g.nic.Closing() {
				g.nic.Go(func() { g.bury(list) })
			}
		})
	}
}

// report says what this process does, and if detail is set what its queue pairs do.
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

// claim says to the other processes that this one listens for a service. No lock is held.
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

// begun notes that a peer has begun a connection with a listener. A peer without an answer repeats
// its request, which names the service only: it must arrive here, also when the listener is
// closed, until the handshake is over. The shard is locked.
func (g *Agent) begun(c *Conn, l *Listener) {
	if g.shared != nil {
		c.listener = l
		l.handshakes++
	}
}

// settled notes that the handshake of a connection is over. The shard is locked.
func (g *Agent) settled(c *Conn) {
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

// note notes a connection for the case that this process dies. The shard is locked.
func (g *Agent) note(c *Conn) {
	if g.shared == nil || c.noted != (share.Handle{}) {
		return
	}
	c.noted = g.shared.Connected(share.Conn{LocalID: uint32(c.conn.LocalID()), RemoteID: uint32(c.conn.RemoteID()), RemoteQPN: c.conn.RemoteQPN(),
		Local: c.conn.LocalGID(), Remote: c.conn.PeerAddress()})
}

// unnote notes that a connection is over. The shard is locked.
func (g *Agent) unnote(c *Conn) {
	if g.shared != nil {
		g.shared.Disconnected(&c.noted)
	}
}

// The peers of a process that died are told so often, with such pauses: a DREQ may be lost, and
// the DREP is to a process that does not exist. The ways to so many peers are looked up at a time,
// for so long: one that is gone must not delay what others are told.
const (
	burials     = 4
	burialPause = 150 * time.Millisecond
	lookups     = 64
	lookupTime  = time.Second
)

// bury tells the peers of connections of a process that died that they are over.
func (g *Agent) bury(list []share.Conn) {
	peers := map[route.Key][]share.Conn{}
	for _, c := range list {
		key := route.Key{Local: c.Local, Peer: c.Remote}
		peers[key] = append(peers[key], c)
	}
	room := make(chan struct{}, lookups)
	var burying sync.WaitGroup
	for key, conns := range peers {
		burying.Go(func() { g.buryAt(key, conns, room) })
	}
	burying.Wait()
}

// buryAt is bury for the connections with one peer.
func (g *Agent) buryAt(key route.Key, conns []share.Conn, room chan struct{}) {
	for range burials {
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
		case <-time.After(burialPause):
		}
	}
}

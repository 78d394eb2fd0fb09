package cm

import (
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/mono"
)

// FuzzManager reads its input as a list of operations and messages with a few IDs.
// Nothing may panic, the invariants must hold after each step, and after all connections are
// destroyed the Manager must keep nothing.
func FuzzManager(f *testing.F) {
	f.Add([]byte{0, 0, 1, 0, 4, 0, 10, 0, 5, 0, 12, 0})
	f.Add([]byte{2, 1, 9, 0, 6, 1, 4, 1, 11, 1, 3, 3, 0, 7, 14, 30})
	f.Add([]byte{2, 0, 2, 0, 9, 0, 2, 0, 20, 0, 21, 0, 7, 0, 13, 0, 3, 9})
	f.Fuzz(func(t *testing.T, in []byte) {
		var n uint32
		m, err := NewManager(Config{GUID: ownGUID, MaxConns: 8, MaxHalfOpen: 5, MaxReplies: 4,
			// Few numbers, so that IDs often collide.
			Rand: func() uint32 { n++; return n % 5 }})
		if err != nil {
			t.Fatal(err)
		}
		l, err := m.Listen(ListenParam{ServiceID: service, Backlog: 3})
		if err != nil {
			t.Fatal(err)
		}
		udpListener, err := m.Listen(ListenParam{ServiceID: udp, Backlog: 3})
		if err != nil {
			t.Fatal(err)
		}
		var now mono.Time
		var conns []*Conn
		var queries []*Query
		var inquiries []*Inquiry
		recv := func(msg Message) { m.HandleMAD(now, peerGID, ownGID, encode(msg)) }
		take := func() {
			e, ok := m.NextEvent()
			switch {
			case !ok:
			case e.Kind == AlternateRequest && e.Conn.localID&1 == 0:
				e.Conn.AnswerAlternate(now, AlternateAnswer{Status: APStatus(e.Conn.localID >> 1 & 1)})
			case e.Kind == ConnectRequest:
				conns = append(conns, e.Conn)
			case e.Kind == ServiceRequest:
				inquiries = append(inquiries, e.Inquiry)
			}
		}
		for ; len(in) >= 2; in = in[2:] {
			op, v := in[0], in[1]
			own, peer := CommID(v&7), CommID(v>>3&7)
			var c *Conn
			if len(conns) > 0 {
				c = conns[int(v)%len(conns)]
			}
			switch op % 30 {
			case 0:
				p := connectParam()
				p.QPN = bth.QPN(own)
				if c, err := m.Connect(now, p); err == nil {
					conns = append(conns, c)
				}
			case 1:
				p := peerREP()
				p.RemoteID, p.LocalID, p.QPN = own, peer, bth.QPN(v>>6)
				recv(p)
			case 2:
				p := peerREQ()
				p.LocalID, p.QPN, p.LocalGUID = peer, bth.QPN(v>>6), GUID(v&1)
				recv(p)
			case 3:
				now = now.Add(time.Duration(v) * time.Second / 8)
				m.HandleTimeout(now)
			case 4, 5:
				take()
			case 6:
				recv(&RTU{LocalID: peer, RemoteID: own})
			case 7:
				p := peerDREQ()
				p.LocalID, p.RemoteID, p.RemoteQPN = peer, own, bth.QPN(v>>6)
				recv(p)
			case 8:
				recv(&DREP{LocalID: peer, RemoteID: own})
			case 9, 10:
				recv(&REJ{LocalID: peer, RemoteID: own, Of: Subject(v >> 6), Reason: RejectReason(op % 12)})
			case 11:
				recv(&REJ{LocalID: peer, Reason: RejectTimeout, Info: [72]byte{7: v & 1}})
			case 12:
				recv(&MRA{LocalID: peer, RemoteID: own, Of: Subject(v >> 6), ServiceTimeout: v & 31})
			case 13:
				m.NextMAD()
			case 14:
				m.HandleTimeout(m.NextTimeout().Add(-1)) // too early
			case 15:
				if t := m.NextTimeout(); t != mono.Never && now.Before(t) {
					now = t
				}
				m.HandleTimeout(now)
			case 16:
				if q, err := m.Resolve(now, resolveParam()); err == nil {
					queries = append(queries, q)
				}
			case 17:
				recv(&SIDRREP{RequestID: own, Status: SIDRStatus(peer)})
			case 18:
				p := peerSIDRREQ()
				p.RequestID = peer
				recv(p)
			case 19:
				if len(inquiries) > 0 {
					inquiries[int(v)%len(inquiries)].Accept(1, 2, nil)
				}
			case 20:
				if c != nil {
					p := acceptParam()
					p.QPN = bth.QPN(v >> 6)
					c.Accept(now, p)
				}
			case 21:
				if c != nil {
					c.ReadyToUse(now, nil)
				}
			case 22:
				if c != nil {
					c.CommEstablished(now)
				}
			case 23:
				if c != nil {
					c.Disconnect(now, nil)
				}
			case 24:
				if c != nil {
					c.Reject(now, RejectConsumer, nil)
				}
			case 25:
				if c != nil {
					c.Destroy(now)
				}
			}
			switch op % 30 {
			case 26:
				p := peerLAP(uint64(v >> 6))
				p.LocalID, p.RemoteID, p.RemoteQPN = peer, own, bth.QPN(v>>6)
				recv(p)
			case 27:
				p := peerAPR(uint64(v>>6)<<32|uint64(own), APStatus(v>>6&1))
				p.LocalID, p.RemoteID = peer, own
				recv(p)
			case 28:
				if c != nil {
					c.LoadAlternate(now, altPath(), nil)
				}
			case 29:
				if c != nil {
					c.Migrated(now)
				}
			}
			if err := m.check(); err != nil {
				t.Fatal(err)
			}
			if m.Len() > 8 || l.requests.n > 3 || m.halfOpen.n > 5 || m.replies > 4 {
				t.Fatalf("limits exceeded: %d, %d, %d, %d", m.Len(), l.requests.n, m.halfOpen.n, m.replies)
			}
		}
		l.Close(now)
		udpListener.Close(now)
		for m.events.Len() > 0 {
			take()
		}
		for _, c := range conns {
			c.Destroy(now)
		}
		for _, q := range queries {
			q.Cancel()
		}
		for _, q := range inquiries {
			q.Reject(SIDRReject, nil)
		}
		for t := m.NextTimeout(); t != mono.Never; t = m.NextTimeout() {
			m.HandleTimeout(t)
		}
		if e, ok := m.NextEvent(); ok {
			t.Fatalf("event %v after everything is destroyed", e)
		}
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
		if m.Len()+len(m.byRemote)+len(m.byQPN)+len(m.listeners) != 0 {
			t.Fatalf("%d remain", m.Len())
		}
	})
}

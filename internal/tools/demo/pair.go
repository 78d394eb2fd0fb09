package demo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// The memory of either side: the word of the atomics, then buffers of one
// message each.
const (
	size     = 3000 // bytes of a message: three packets of 1024
	word     = 0
	received = 8               // server: what SENDs bring
	written  = received + size // server: what WRITEs bring; client: what goes out
	readable = written + size  // server: what READs take, from one of so many places; client: what they bring
	places   = 64
	total    = readable + size + places
)

// receives is how many the server keeps posted.
const receives = 16

// pair is two connected NICs.
type pair struct {
	client, server         *roce.Device
	wire                   *fault.Port // under the client
	nearPD, farPD          *roce.PD
	near, far              *roce.MR
	conn, peer             *roce.Conn
	service                string   // where the server listens
	sendCQ, recvCQ, idleCQ *roce.CQ // client's sends, server's receives, and what never completes
	handshake              time.Duration
	value                  uint64 // of the word
	owned                  []io.Closer
}

// newPair makes the NICs and their memory. The client's port is captured, on the
// wire side of the faults.
func newPair(c *Config, capture *pcap.Writer) (p *pair, err error) {
	p = new(pair)
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	p.client, p.server, err = wires[cmp.Or(c.Link, LinkMem)](func(port link.Port) (_ link.Port, err error) {
		if capture != nil {
			if port, err = pcap.Wrap(port, capture, pcap.Options{}); err != nil {
				return nil, err
			}
		}
		p.wire, err = fault.Wrap(port, fault.Config{Seed: c.Seed})
		return p.wire, err
	})
	if err != nil {
		return p, err
	}
	p.own(p.client)
	p.own(p.server)
	p.service = netip.AddrPortFrom(p.server.GIDs()[0].Addr(), servicePort).String()
	for _, q := range []struct {
		d  *roce.Device
		cq **roce.CQ
	}{{p.client, &p.sendCQ}, {p.server, &p.recvCQ}, {p.server, &p.idleCQ}} {
		if *q.cq, err = q.d.CreateCQ(2 * receives); err != nil {
			return p, err
		}
		p.own(*q.cq)
	}
	for _, m := range []struct {
		d  *roce.Device
		pd **roce.PD
		mr **roce.MR
	}{{p.client, &p.nearPD, &p.near}, {p.server, &p.farPD, &p.far}} {
		*m.pd = m.d.AllocPD()
		p.own(*m.pd)
		*m.mr, err = (*m.pd).RegMR(make([]byte, total), roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead|roce.RemoteAtomic)
		if err != nil {
			return p, err
		}
		p.own(*m.mr)
	}
	fill(p.far.Bytes()[readable:], 0)
	return p, nil
}

func (p *pair) own(c io.Closer) { p.owned = append(p.owned, c) }

// close frees everything, the last made first.
func (p *pair) close() {
	for i := len(p.owned) - 1; i >= 0; i-- {
		p.owned[i].Close()
	}
}

// connect connects the NICs by the connection manager.
func (p *pair) connect(ctx context.Context) error {
	l, err := p.server.Listen(ctx, p.service, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	type accepted struct {
		conn *roce.Conn
		err  error
	}
	peer := make(chan accepted, 1)
	go func() {
		request, err := l.Accept(ctx)
		if err != nil {
			peer <- accepted{nil, err}
			return
		}
		conn, err := request.Accept(ctx, roce.AcceptConfig{PD: p.farPD, Setup: p.postReceives,
			QPConfig: roce.QPConfig{SendCQ: p.idleCQ, RecvCQ: p.recvCQ}})
		peer <- accepted{conn, err}
	}()
	start := time.Now()
	p.conn, err = p.client.Dial(ctx, p.service, roce.DialConfig{PD: p.nearPD, QPConfig: roce.QPConfig{SendCQ: p.sendCQ}})
	p.handshake = time.Since(start)
	if err != nil {
		l.Close() // so that the other end gives up, too
		return errors.Join(err, (<-peer).err)
	}
	p.own(p.conn)
	a := <-peer
	if a.err != nil {
		return a.err
	}
	p.peer = a.conn
	p.own(p.peer)
	return hasten(p.conn.QP())
}

func (p *pair) postReceives(q *roce.QP) error {
	for range receives {
		if err := p.postReceive(q); err != nil {
			return err
		}
	}
	return nil
}

func (p *pair) postReceive(q *roce.QP) error {
	return q.PostRecv(&roce.RecvWR{SG: []roce.SGE{p.far.SGE(received, size)}})
}

// hasten shortens the ACK timeout of a connected queue pair. The connection
// manager sets one of half a second or more, fit for any network. Within a process
// 67 ms are plenty: a machine may stand still for half a second before eight of them
// are over. The verbs allow it while the send queue drains.
func hasten(q *roce.QP) error {
	const code = 14 // 4.096 µs · 2^14
	for _, step := range []struct {
		attr roce.Attr
		mask roce.AttrMask
	}{
		{roce.Attr{State: roce.StateSQD}, roce.AttrState},
		{roce.Attr{State: roce.StateSQD, Timeout: code}, roce.AttrState | roce.AttrTimeout},
		{roce.Attr{State: roce.StateRTS}, roce.AttrState},
	} {
		if err := q.Modify(&step.attr, step.mask); err != nil {
			return err
		}
	}
	return nil
}

// disconnect ends the connection in order.
func (p *pair) disconnect(ctx context.Context) error {
	if err := p.conn.Disconnect(ctx); err != nil {
		return err
	}
	select {
	case <-p.peer.Done():
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lost counts the packets the wire has lost, both ways.
func (p *pair) lost() uint64 {
	tx, rx := p.wire.Counters()
	return tx.Dropped + rx.Dropped
}

func (p *pair) nodes() (n [2]Node) {
	for i, end := range []struct {
		d *roce.Device
		c *roce.Conn
	}{{p.client, p.conn}, {p.server, p.peer}} {
		attr, _ := end.c.QP().Query()
		guid := end.d.Query().GUID
		n[i] = Node{
			Addr: end.d.GIDs()[0].Addr().String(), QPN: end.c.QP().Num(), MTU: attr.PathMTU.Bytes(),
			GUID: fmt.Sprintf("%04x:%04x:%04x:%04x", guid>>48, guid>>32&0xffff, guid>>16&0xffff, guid&0xffff),
		}
	}
	return n
}

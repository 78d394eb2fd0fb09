package demo

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/devinfo"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// The memory of either side: the word of the atomics, then buffers of one message each.
const (
	size     = 3000 // bytes of a message: three packets of 1024
	word     = 0
	received = 8               // server: target of SENDs
	written  = received + size // server: target of WRITEs; client: source of SENDs and WRITEs
	readable = written + size  // server: source of READs, at one of places offsets; client: target of READs
	places   = 64
	total    = readable + size + places
)

// receives is the number of receives that the server keeps posted.
const receives = 16

// pair is two connected NICs.
type pair struct {
	client, server         *objects.Set
	wire                   *fault.Port // under the client
	near, far              *roce.MR
	conn, peer             *roce.Conn
	service                string   // where the server listens
	sendCQ, recvCQ, idleCQ *roce.CQ // for the client's sends, for the server's receives, and for the server's sends, of which there are none
	handshake              time.Duration
	value                  uint64 // of the word
}

// newPair creates the NICs and their memory. It captures at the client's port, between the wire
// and the faults.
func newPair(c *Config, capture *pcap.Writer) (*pair, error) {
	p := new(pair)
	client, server, err := wires[cmp.Or(c.Link, LinkMem)](func(port link.Port) (_ link.Port, err error) {
		if capture != nil {
			if port, err = pcap.Wrap(port, capture, pcap.Options{}); err != nil {
				return nil, err
			}
		}
		p.wire, err = fault.Wrap(port, fault.Config{Seed: c.Seed})
		return p.wire, err
	})
	if err != nil {
		return nil, err
	}
	p.client, p.server = objects.New(client), objects.New(server)
	p.service = netip.AddrPortFrom(server.GIDs()[0].Addr(), servicePort).String()
	p.sendCQ, p.recvCQ, p.idleCQ = p.client.CQ(2*receives), p.server.CQ(2*receives), p.server.CQ(2*receives)
	const access = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead | roce.RemoteAtomic
	p.near, p.far = p.client.MR(total, access), p.server.MR(total, access)
	if err := cmp.Or(p.client.Err(), p.server.Err()); err != nil {
		p.close()
		return nil, err
	}
	fill(p.far.Bytes()[readable:], 0)
	return p, nil
}

// close closes the connection, then everything else.
func (p *pair) close() {
	for _, s := range []*objects.Set{p.client, p.server} {
		s.Close()
		s.Dev.Close()
	}
}

// connect connects the NICs by the connection manager.
func (p *pair) connect(ctx context.Context) error {
	l, err := p.server.Dev.Listen(ctx, p.service, roce.ListenConfig{})
	if err != nil {
		return err
	}
	defer l.Close()
	accepted := make(chan error, 1)
	go func() {
		request, err := l.Accept(ctx)
		if err == nil {
			p.peer, err = request.Accept(ctx, roce.AcceptConfig{PD: p.server.PD, Setup: p.postReceives,
				QPConfig: roce.QPConfig{SendCQ: p.idleCQ, RecvCQ: p.recvCQ}})
		}
		accepted <- err
	}()
	start := time.Now()
	p.conn, err = p.client.Dev.Dial(ctx, p.service, roce.DialConfig{PD: p.client.PD, QPConfig: roce.QPConfig{SendCQ: p.sendCQ}})
	p.handshake = time.Since(start)
	if err != nil {
		l.Close() // so that the server's Accept returns
		return errors.Join(err, <-accepted)
	}
	p.client.Add(p.conn)
	if err := <-accepted; err != nil {
		return err
	}
	p.server.Add(p.peer)
	return shortenTimeout(p.conn.QP())
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

// shortenTimeout shortens the ACK timeout of a connected queue pair. The connection manager sets half a second or more,
// for any network; within a host less is enough. The verbs permit the change while the send queue drains (SQD).
func shortenTimeout(q *roce.QP) error {
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

// disconnect ends the connection in an orderly way.
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

// lost returns the number of packets that the wire has lost, both ways.
func (p *pair) lost() uint64 {
	tx, rx := p.wire.Counters()
	return tx.Dropped + rx.Dropped
}

func (p *pair) nodes() (n [2]Node) {
	for i, c := range []*roce.Conn{p.conn, p.peer} {
		d := []*objects.Set{p.client, p.server}[i].Dev
		attr, _ := c.QP().Query()
		n[i] = Node{Addr: d.GIDs()[0].Addr().String(), QPN: c.QP().Num(), MTU: attr.PathMTU.Bytes(), GUID: devinfo.GUIDString(d.Query().GUID)}
	}
	return n
}

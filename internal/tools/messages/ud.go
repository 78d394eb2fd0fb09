package messages

import (
	"context"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/usage"
)

// UD is a UD queue pair that sends a number of messages to one peer and receives as many.
// Each message carries the sender's queue pair number as immediate data. Each has memory of
// its own to arrive in; the C programs receive all messages into one place.
type UD struct {
	QP *roce.QP

	set  *objects.Set
	cq   *roce.CQ
	mr   *roce.MR // the message that is sent, then room for each that is received
	opts *Options
}

// NewUD makes a queue pair in RTS and posts a receive for each message if it is going to
// receive. With noLoopback the own device does not get what it sends to a multicast group.
func NewUD(d *roce.Device, o *Options, receives, noLoopback bool) (e *UD, err error) {
	if mtu := d.Query().ActiveMTU.Bytes(); o.Count > 0 && o.Size > mtu {
		return nil, usage.Errorf("-S %d: a datagram has at most the port's MTU, %d bytes", o.Size, mtu)
	}
	s, n, places := objects.New(d), max(o.Count, 1), 0
	if receives {
		places = o.Count
	}
	e = &UD{set: s, cq: s.CQ(2 * n), mr: s.MR(o.Size+places*(roce.GRHLen+o.Size), roce.LocalWrite), opts: o}
	e.QP = s.QP(roce.QPConfig{Type: roce.UD, SendCQ: e.cq, NoMulticastLoopback: noLoopback,
		Caps: roce.Caps{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err = s.Err(); err == nil {
		err = e.start(places)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return e, nil
}

// start posts the receives and takes the queue pair to RTS.
func (e *UD) start(places int) error {
	if err := e.QP.Init(0, roce.DefaultUDPQKey); err != nil {
		return err
	}
	for i := range places {
		if err := e.QP.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{e.mr.SGE(e.place(i))}}); err != nil {
			return err
		}
	}
	return e.QP.Ready(e.set.Dev.RandomPSN())
}

// place returns offset and length of the memory that message i is received into.
func (e *UD) place(i int) (at, length int) {
	length = roce.GRHLen + e.opts.Size
	return e.opts.Size + i*length, length
}

// Close closes all objects.
func (e *UD) Close() error { return e.set.Close() }

// GRH returns the GRH of a received message.
func (e *UD) GRH(wc *roce.WC) []byte {
	at, _ := e.place(int(wc.ID))
	return e.mr.Bytes()[at:][:roce.GRHLen]
}

// Post posts all messages to a peer.
func (e *UD) Post(peer *roce.UDPeer, flags roce.SendFlags) error {
	wr := roce.SendWR{Opcode: roce.SendImm, Flags: flags, SG: []roce.SGE{e.mr.SGE(0, e.opts.Size)}, Imm: uint32(e.QP.Num())}
	peer.Address(&wr)
	for range e.opts.Count {
		if err := e.QP.PostSend(&wr); err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for as many completions as there are messages. It calls first, if that is not
// nil, with the first one.
func (e *UD) Wait(ctx context.Context, first func(*roce.WC) error) error {
	for k := range e.opts.Count {
		wc, err := e.cq.Next(ctx)
		if err == nil {
			err = wc.Err()
		}
		if err == nil && wc.Opcode == roce.WCRecv && (wc.Flags&roce.WCWithImm == 0 || roce.QPN(wc.Imm) != wc.SrcQPN) {
			err = fmt.Errorf("it has immediate data %#x, want the sender's number %v", wc.Imm, wc.SrcQPN)
		}
		if err == nil && k == 0 && first != nil {
			err = first(&wc)
		}
		if err != nil {
			return fmt.Errorf("message %d: %w", k, err)
		}
	}
	return nil
}

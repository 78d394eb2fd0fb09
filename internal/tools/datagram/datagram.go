// Package datagram is what librdmacm's examples of UD have in common: a queue pair
// that sends a number of messages to one peer and receives as many. Each carries
// the sender's queue pair number as immediate data.
package datagram

import (
	"context"
	"fmt"
	"io"

	"github.com/goroce/roce"
)

// Config says how many messages there are, and of what size.
type Config struct {
	Count int // either way; 0: none
	Size  int // bytes, at least 1

	// NoLoopback keeps multicast from the sender's own device.
	NoLoopback bool
}

// End is a UD queue pair with memory: for the message it sends, and for each it
// receives. The examples receive all into one place, where a message may arrive
// while the one before is looked at.
type End struct {
	QP *roce.QP

	cfg   Config
	cq    *roce.CQ
	mr    *roce.MR
	owned []io.Closer
}

// place is where message i is received, behind the one that is sent.
func (e *End) place(i int) (at, size int) {
	size = roce.GRHLen + e.cfg.Size
	return e.cfg.Size + i*size, size
}

// New makes an end whose queue pair is in RTS, and posts its receives if it is
// going to receive.
func New(d *roce.Device, c Config, receives bool) (e *End, err error) {
	if mtu := d.Query().ActiveMTU.Bytes(); c.Count > 0 && c.Size > mtu {
		return nil, fmt.Errorf("message size %d is larger than the port's MTU of %d", c.Size, mtu)
	}
	e = &End{cfg: c}
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	pd := d.AllocPD()
	e.owned = append(e.owned, pd)
	n := max(c.Count, 1)
	if e.cq, err = d.CreateCQ(2 * n); err != nil {
		return nil, err
	}
	e.owned = append(e.owned, e.cq)
	places := 0
	if receives {
		places = c.Count
	}
	if e.mr, err = pd.RegMR(make([]byte, c.Size+places*(roce.GRHLen+c.Size)), roce.LocalWrite); err != nil {
		return nil, err
	}
	e.owned = append(e.owned, e.mr)
	e.QP, err = pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: e.cq, NoMulticastLoopback: c.NoLoopback,
		Caps: roce.Caps{MaxSendWR: n, MaxRecvWR: n, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return nil, err
	}
	e.owned = append(e.owned, e.QP)
	if err = e.QP.Init(0, roce.DefaultUDPQKey); err != nil {
		return nil, err
	}
	for i := range places {
		if err = e.QP.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{e.mr.SGE(e.place(i))}}); err != nil {
			return nil, err
		}
	}
	return e, e.QP.Ready(d.RandomPSN())
}

// Close frees everything, the last made first.
func (e *End) Close() {
	for i := len(e.owned) - 1; i >= 0; i-- {
		e.owned[i].Close()
	}
}

// GRH is the GRH area of a received message.
func (e *End) GRH(wc *roce.WC) []byte {
	at, _ := e.place(int(wc.ID))
	return e.mr.Bytes()[at:][:roce.GRHLen]
}

// Send posts all messages to a peer.
func (e *End) Send(peer *roce.UDPeer, flags roce.SendFlags) error {
	wr := roce.SendWR{Opcode: roce.SendImm, Flags: flags, SG: []roce.SGE{e.mr.SGE(0, e.cfg.Size)}, Imm: uint32(e.QP.Num())}
	peer.Address(&wr)
	for range e.cfg.Count {
		if err := e.QP.PostSend(&wr); err != nil {
			return err
		}
	}
	return nil
}

// Wait waits for as many completions as there are messages. first, if not nil, is
// called with the first.
func (e *End) Wait(ctx context.Context, first func(*roce.WC) error) error {
	for k := range e.cfg.Count {
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

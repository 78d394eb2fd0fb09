//go:build linux

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/message"
	"github.com/goroce/roce/rsocket"
)

// The services of the peer.
const (
	streamPort  = "7001" // package rsocket: sends all bytes back
	messagePort = "7002" // package message: sends all messages back
	verbsPort   = "7003" // SENDs: checks them and sends them back
)

// Messages of the verbs service.
const (
	numberedSize = 8 << 10
	numberedDeep = 16
)

// peer runs the process at the other end until its standard input ends.
func peer(driver string) error {
	d, err := openHere(driver, false, 99)
	if err != nil {
		return err
	}
	defer d.Close()
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	streams, err := rsocket.Listen(d, net.JoinHostPort("0.0.0.0", streamPort), rsocket.Config{})
	if err != nil {
		return err
	}
	defer streams.Close()
	serve(streams.Accept, func(c net.Conn) {
		io.Copy(c, c)
		c.Close()
	})
	messages, err := message.Listen(d, net.JoinHostPort("0.0.0.0", messagePort), message.Config{})
	if err != nil {
		return err
	}
	defer messages.Close()
	serve(func() (*message.Conn, error) { return messages.Accept(ctx) }, func(c *message.Conn) { echo(ctx, c) })
	l, err := d.Listen(ctx, net.JoinHostPort("0.0.0.0", verbsPort), roce.ListenConfig{})
	if err != nil {
		return err
	}
	serve(func() (*roce.ConnRequest, error) { return l.Accept(ctx) }, func(r *roce.ConnRequest) { numbered(ctx, d, r) })
	return child.Serve(os.Stdin, os.Stdout, &resting{measure()}, func() {})
}

// serve calls handle for each connection, on a goroutine of its own, until accept fails.
func serve[C any](accept func() (C, error), handle func(C)) {
	go func() {
		for {
			c, err := accept()
			if err != nil {
				return
			}
			go handle(c)
		}
	}()
}

// resting has the peer's resource use before its first connection.
type resting struct{ idle usage }

// Rest returns an error if the peer uses more resources than before its first connection.
func (r *resting) Rest(child.None, *child.None) error {
	if err := r.idle.grown(); err != nil {
		return fmt.Errorf("its connections are over: %w", err)
	}
	return nil
}

// echo sends messages back.
func echo(ctx context.Context, c *message.Conn) {
	defer c.Close()
	b := make([]byte, c.MaxRecv())
	for {
		n, err := c.Recv(ctx, b)
		if err != nil || c.Send(ctx, b[:n]) != nil {
			return
		}
	}
}

// numbered sends back each message it receives, in order.
func numbered(ctx context.Context, d *roce.Device, r *roce.ConnRequest) {
	done, err := d.CreateCQ(4 * numberedDeep)
	if err != nil {
		return
	}
	defer done.Close()
	var mr *roce.MR
	c, err := r.Accept(ctx, roce.AcceptConfig{QPConfig: roce.QPConfig{SendCQ: done}, Setup: func(q *roce.QP) (err error) {
		mr, err = receives(q)
		return err
	}})
	if err != nil {
		return
	}
	defer c.Close()
	defer mr.Close()
	for {
		wc, err := done.Next(ctx)
		if err != nil || wc.Status != cq.Success {
			return
		}
		if !wc.Opcode.Recv() { // a send has completed: the receive with its buffer may be posted again
			if c.QP().PostRecv(&roce.RecvWR{ID: wc.ID, SG: []roce.SGE{mr.SGE(int(wc.ID)*numberedSize, numberedSize)}}) != nil {
				return
			}
			continue
		}
		if c.QP().PostSend(&roce.SendWR{ID: wc.ID, Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{mr.SGE(int(wc.ID)*numberedSize, int(wc.ByteLen))}}) != nil {
			return
		}
	}
}

// receives registers memory for twice the messages in flight, and posts receives into it.
func receives(q *roce.QP) (*roce.MR, error) {
	mr, err := q.PD().RegMR(make([]byte, 2*numberedDeep*numberedSize), roce.LocalWrite)
	if err != nil {
		return nil, err
	}
	for i := range 2 * numberedDeep {
		if err := q.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{mr.SGE(i*numberedSize, numberedSize)}}); err != nil {
			return nil, err
		}
	}
	return mr, nil
}

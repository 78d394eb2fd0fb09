package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/goroce/roce"
	"github.com/goroce/roce/rdmacm"
)

// regionSize is the size of the memory that the client writes and reads.
const regionSize = 64 << 10

// messageType says what a message is about.
type messageType uint32

const (
	memory messageType = 0 // where the sender's region is
	done   messageType = 1 // the client has finished
)

// message is struct message of the C program, in the byte order of the host.
type message struct {
	Type messageType
	RKey roce.RKey
	Addr uint64
}

var messageSize = binary.Size(message{})

// connection is a connection with its four memory regions.
type connection struct {
	id                    *rdmacm.ID
	recv, send            *roce.MR // messages
	rdmaLocal, rdmaRemote *roce.MR // this side's copy, and what the peer writes and reads
	peer                  message
	lastSent              messageType
}

// newConnection registers the memory of a connection (ibv_reg_mr).
func newConnection(id *rdmacm.ID, pd *roce.PD) (*connection, error) {
	c := &connection{id: id}
	for _, m := range []struct {
		mr     **roce.MR
		size   int
		access roce.Access
	}{
		{&c.send, messageSize, 0},
		{&c.recv, messageSize, roce.LocalWrite},
		{&c.rdmaLocal, regionSize, roce.LocalWrite},
		{&c.rdmaRemote, regionSize, roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead},
	} {
		var err error
		if *m.mr, err = pd.RegMR(make([]byte, m.size), m.access); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// close deregisters the memory (ibv_dereg_mr).
func (c *connection) close() error {
	return errors.Join(c.send.Close(), c.recv.Close(), c.rdmaLocal.Close(), c.rdmaRemote.Close())
}

// postReceive posts a receive for one message (ibv_post_recv).
func (c *connection) postReceive() error {
	return c.id.QP().PostRecv(&roce.RecvWR{SG: []roce.SGE{c.recv.SGE(0, messageSize)}})
}

// sendMessage tells the peer where the region is, and why.
func (c *connection) sendMessage(t messageType) error {
	m := message{Type: t, RKey: c.rdmaRemote.RKey(), Addr: c.rdmaRemote.Addr()}
	if _, err := binary.Encode(c.send.Bytes(), binary.NativeEndian, m); err != nil {
		return err
	}
	c.lastSent = t
	return c.id.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{c.send.SGE(0, messageSize)}})
}

// rdma posts a WRITE or READ of the peer's whole region.
func (c *connection) rdma(opcode roce.Opcode) error {
	return c.id.QP().PostSend(&roce.SendWR{Opcode: opcode, Flags: roce.Signaled, SG: []roce.SGE{c.rdmaLocal.SGE(0, regionSize)},
		RemoteAddr: c.peer.Addr, RKey: c.peer.RKey})
}

// pattern is what the client writes.
var pattern = func() []byte {
	b := make([]byte, regionSize)
	for i := range b {
		b[i] = byte(i*7 + i>>8)
	}
	return b
}()

// onCompletion takes the step that follows a completion.
func (p *program) onCompletion(ctx context.Context, wc *roce.WC) error {
	c := p.conn
	if err := wc.Err(); err != nil {
		select {
		case <-p.finished: // what the disconnection flushes matters no more
			return nil
		default:
			return err
		}
	}
	switch wc.Opcode {
	case roce.WCRecv:
		return p.onMessage()
	case roce.WCWrite:
		clear(c.rdmaLocal.Bytes())
		return c.rdma(roce.Read)
	case roce.WCRead:
		if !bytes.Equal(c.rdmaLocal.Bytes(), pattern) {
			return errors.New("what was read is not what was written")
		}
		fmt.Fprintln(p.out, "client: what was read is what was written")
		return c.sendMessage(done)
	case roce.WCSend:
		if c.lastSent != done {
			return nil
		}
		defer close(p.finished)
		return c.id.Disconnect(ctx) // rdma_disconnect
	}
	return fmt.Errorf("completion of %v", wc.Opcode)
}

// onMessage takes a message of the peer.
func (p *program) onMessage() error {
	c := p.conn
	if _, err := binary.Decode(c.recv.Bytes(), binary.NativeEndian, &c.peer); err != nil {
		return err
	}
	if c.peer.Type == done {
		if !bytes.Equal(c.rdmaRemote.Bytes(), pattern) {
			return errors.New("the region is not as the client wrote it")
		}
		fmt.Fprintln(p.out, "server: the region is as the client wrote it")
		close(p.finished)
		return nil
	}
	if p.server {
		if err := c.postReceive(); err != nil { // the client's second message
			return err
		}
		return c.sendMessage(memory)
	}
	copy(c.rdmaLocal.Bytes(), pattern)
	return c.rdma(roce.Write)
}

package node

import (
	"context"
	"fmt"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/examples/o2iblnd/lnd"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/rdmacm"
)

// link is a connection or an attempt: an rdmacm ID with its queue pair, and the state machine of the connection.
type link struct {
	node *Node
	id   *rdmacm.ID
	peer *lnd.Peer
	conn *lnd.Conn // nil before the sides have agreed on the parameters

	active      bool // this side has asked
	established bool
	gone        bool
	reported    bool // the result of this attempt was reported to the NI

	deadline time.Time // for the peer's answer, if this side has asked

	cq    *roce.CQ
	recv  *roce.MR // buffers of the receives
	send  *roce.MR // buffers of the sends
	slots []int    // free buffers of send
	used  map[uint64]int

	message [wire.MaxMessage]byte // copy of the message that is being received

	early []roce.WC // completions of receives before conn was set
}

// receiveID marks the work request IDs of receives.
const receiveID = 1 << 63

// setUp makes the queue pair and posts all receives.
func (l *link) setUp(depth int) (err error) {
	n := l.node
	sends := n.ni.Config().ConcurrentSends
	receives := lnd.Receives(depth)
	work := n.ni.Config().SendWork
	if l.cq, err = n.dev.CreateCQ(work + receives); err != nil {
		return err
	}
	caps := roce.Caps{MaxSendWR: work, MaxRecvWR: receives, MaxSendSGE: 1, MaxRecvSGE: 1}
	if err = l.id.CreateQP(n.pd, roce.QPConfig{SendCQ: l.cq, RecvCQ: l.cq, Caps: caps}); err != nil {
		return err
	}
	if l.recv, err = n.pd.RegMR(make([]byte, receives*wire.MaxMessage), roce.LocalWrite); err != nil {
		return err
	}
	if l.send, err = n.pd.RegMR(make([]byte, sends*wire.MaxMessage), 0); err != nil {
		return err
	}
	l.used = map[uint64]int{}
	for i := range sends {
		l.slots = append(l.slots, i)
	}
	for i := range receives {
		if err = l.post(i); err != nil {
			return err
		}
	}
	n.running.Go(l.completions)
	return nil
}

func (l *link) post(i int) error {
	return l.id.PostRecv(receiveID|uint64(i), l.recv.SGE(i*wire.MaxMessage, wire.MaxMessage))
}

// completions takes the completions of the queue pair until the link is torn down.
func (l *link) completions() {
	for {
		wc, err := l.cq.Next(l.node.ctx)
		if err != nil {
			return
		}
		l.node.mu.Lock()
		l.completed(&wc)
		l.node.mu.Unlock()
	}
}

// completed acts on one completion.
func (l *link) completed(wc *roce.WC) {
	if l.gone || l.conn == nil && wc.Status != cq.Success {
		return
	}
	now := time.Now()
	switch {
	case wc.Status != cq.Success:
		l.conn.Close(fmt.Errorf("node: the connection to %v failed: %w", l.peer.NID, wc.Err()))
	case l.conn == nil: // the peer has received the RTU and sent data, but the node has not yet handled the event
		l.early = append(l.early, *wc)
		return
	case wc.ID&receiveID != 0:
		l.receive(now, wc)
	default:
		l.slots = append(l.slots, l.used[wc.ID])
		delete(l.used, wc.ID)
		l.conn.Sent(now, wc.ID)
	}
	l.node.act(l)
}

func (l *link) receive(now time.Time, wc *roce.WC) {
	i := int(wc.ID &^ receiveID)
	b := l.message[:copy(l.message[:], l.recv.Bytes()[i*wire.MaxMessage:][:wc.ByteLen])]
	if err := l.post(i); err != nil { // before the credit of the message is given back
		l.conn.Close(err)
		return
	}
	l.node.traced(l, "<", b)
	l.node.establish(l) // data of the peer implies its RTU
	l.conn.Receive(now, b)
}

// transmit posts the registration of the memory, the WRITEs and the SEND.
func (l *link) transmit(t *lnd.Transmit) error {
	var wrs []roce.SendWR
	var m *Mapping
	if x, ok := userOf(t.Op); ok && x.mapping != nil {
		m = x.mapping
		if m.wr != nil && (len(t.Writes) > 0 || t.Op.Kind != lnd.SendPut) {
			if err := l.id.QP().PostSend(m.wr); err != nil { // after this, the region has its new key
				return err
			}
			m.wr = nil
		}
	}
	for _, w := range t.Writes {
		wrs = append(wrs, roce.SendWR{Opcode: roce.Write, SG: []roce.SGE{m.reg.SGE(w.Offset, w.Len)}, RemoteAddr: w.RemoteAddr, RKey: roce.RKey(w.RKey)})
	}
	slot := l.slots[len(l.slots)-1]
	l.slots = l.slots[:len(l.slots)-1]
	l.used[t.ID] = slot
	copy(l.send.Bytes()[slot*wire.MaxMessage:], t.Message)
	l.node.traced(l, ">", t.Message)
	wrs = append(wrs, roce.SendWR{ID: t.ID, Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{l.send.SGE(slot*wire.MaxMessage, len(t.Message))}})
	_, err := l.id.QP().PostSends(wrs)
	return err
}

// tearDown frees all objects of the link.
func (l *link) tearDown() {
	if l.gone {
		return
	}
	l.gone = true
	l.id.DestroyQP()
	l.id.Destroy()
	for _, mr := range []*roce.MR{l.recv, l.send} {
		if mr != nil {
			mr.Close()
		}
	}
	if l.cq != nil {
		l.cq.Close()
	}
}

// param returns the connection parameters of the kernel's driver.
func param(private []byte) rdmacm.ConnParam {
	return rdmacm.ConnParam{PrivateData: private, ResponderResources: -1, InitiatorDepth: -1, FlowControl: true, RetryCount: 5, RNRRetryCount: 6}
}

// noAnswer is the reason of the connection manager for an attempt without an answer in time.
const noAnswer = 4

// ackTimeout is the local ACK timeout of the kernel's driver: 2.1 s.
const ackTimeout = 19

// connectTimeout bounds the steps of a connection.
const connectTimeout = 5 * time.Second

// accept answers a request on a goroutine of its own: it may wait for the neighbour's address.
func (l *link) accept(private []byte) {
	l.node.running.Go(func() {
		ctx, cancel := context.WithTimeout(l.node.ctx, connectTimeout)
		defer cancel()
		if err := l.id.Accept(ctx, param(private)); err != nil {
			l.node.mu.Lock()
			defer l.node.mu.Unlock()
			l.node.drop(l)
		}
	})
}

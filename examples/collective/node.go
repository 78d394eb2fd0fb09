package main

import (
	"context"
	"encoding/binary"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// size is the number of nodes, 2^dims. For each bit of its number, a node has a queue pair to the node whose number
// differs in that bit. One more queue pair connects the node to itself.
const (
	dims = 3
	size = 1 << dims
)

// node is one of the nodes.
type node struct {
	rank    int
	numbers int
	dev     *roce.Device
	links   [dims + 1]*channel // by bit; the last one leads to the node itself
	sent    *roce.CQ           // of sends to others
	done    *roce.CQ           // of sends on the last channel: the end of a list
	mr      *roce.MR
}

// channel is a queue pair with its own completion queue of receives. With a common queue, a node could mistake the
// second message of a fast neighbour for the first message of another.
type channel struct {
	qp   *roce.QP
	recv *roce.CQ
}

// The areas of a node's memory, each with one vector: its own numbers, the numbers that arrive on each channel,
// and the sum that a program computes to send it.
const (
	own     = 0
	arrived = 1
	sum     = arrived + dims + 1
	areas   = sum + 1
)

// at names an area.
func (n *node) at(area int) roce.SGE { return n.mr.SGE(area*n.numbers*8, n.numbers*8) }

// number returns number i of an area.
func (n *node) number(area, i int) int64 {
	return int64(binary.BigEndian.Uint64(n.mr.Bytes()[(area*n.numbers+i)*8:]))
}

// value is a number that a node has in a round.
func value(rank, round, i int) int64 { return int64(rank*1000003+round*101+i) - 2000000 }

// fill writes the node's own numbers, and elsewhere a value that no operation leaves.
func (n *node) fill(round int) {
	b := n.mr.Bytes()
	for i := range b {
		b[i] = 0xAA
	}
	for i := range n.numbers {
		binary.BigEndian.PutUint64(b[i*8:], uint64(value(n.rank, round, i)))
	}
}

type cluster []*node

// newCluster makes the nodes and connects them. With lists they have cross-channel communication.
func newCluster(ctx context.Context, numbers int, lists bool) (c cluster, err error) {
	defer func() {
		if err != nil {
			c.close()
		}
	}()
	hub := mem.NewHub(mem.Config{MTU: 4200})
	for rank := range size {
		n, err := newNode(hub, rank, numbers, lists)
		if err != nil {
			return c, err
		}
		c = append(c, n)
	}
	for rank, n := range c {
		for l := range n.links {
			if err := n.connect(ctx, l, c[neighbour(rank, l)]); err != nil {
				return c, err
			}
		}
	}
	return c, nil
}

// neighbour is the node at the other end of a channel.
func neighbour(rank, link int) int {
	if link == dims {
		return rank
	}
	return rank ^ 1<<link
}

func (c cluster) close() {
	for _, n := range c {
		n.dev.Close()
	}
}

func newNode(hub *mem.Hub, rank, numbers int, lists bool) (*node, error) {
	addr := netip.AddrFrom4([4]byte{10, 0, 0, byte(1 + rank)})
	port, err := hub.Port(addr.String(), roce.DerivedMAC(addr))
	if err != nil {
		return nil, err
	}
	n := &node{rank: rank, numbers: numbers}
	if n.dev, err = roce.Open(roce.Config{Ports: []link.Port{port}, Addrs: []netip.Addr{addr}}); err != nil {
		return nil, err
	}
	if err := n.create(lists); err != nil {
		n.dev.Close()
		return nil, err
	}
	return n, nil
}

// create makes the queue pairs of a node and their queues. With lists the program polls only the last queue, so
// the others ignore overruns.
func (n *node) create(lists bool) (err error) {
	counted := roce.CQConfig{Entries: 16, CrossChannel: lists, IgnoreOverrun: lists}
	pd := n.dev.AllocPD()
	if n.mr, err = pd.AllocMR(areas*n.numbers*8, roce.LocalWrite); err != nil {
		return err
	}
	if n.sent, err = n.dev.CreateCQWith(counted); err != nil {
		return err
	}
	if n.done, err = n.dev.CreateCQ(16); err != nil {
		return err
	}
	for l := range n.links {
		c := new(channel)
		if c.recv, err = n.dev.CreateCQWith(counted); err != nil {
			return err
		}
		caps := roce.DefaultCaps
		caps.MaxSendSGE = dims + 1
		sends := n.sent
		if l == dims {
			sends = n.done
		}
		c.qp, err = pd.CreateQP(roce.QPConfig{SendCQ: sends, RecvCQ: c.recv, Caps: caps, CrossChannel: lists})
		if err != nil {
			return err
		}
		if err = c.qp.Init(roce.DefaultQPAccess, 0); err != nil {
			return err
		}
		n.links[l] = c
	}
	return nil
}

// ackTimeout is 4.096 µs times 2^18, about one second: the nodes share the processors, and one of them may wait long for
// a processor.
const ackTimeout = 18

func (n *node) connect(ctx context.Context, l int, to *node) error {
	return n.links[l].qp.Connect(ctx, roce.Peer{AHAttr: roce.AHAttr{DGID: to.dev.GIDs()[0]}, QPN: to.links[l].qp.Num(), MTU: n.dev.Query().PathMTU,
		Timeout: ackTimeout, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1}, 0)
}

//go:build linux

package ours

import (
	"context"
	"errors"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/interop/conformance/verbs"
)

func (n *Node) CreateChannel() (verbs.Handle, error) {
	c, err := n.dev.CreateCompChannel()
	return made(n, c, err)
}

func (n *Node) DestroyChannel(c verbs.Handle) error {
	return n.closed(c, get[*roce.CompChannel](n, c).Close())
}

func (n *Node) CreateCQ(size int, channel verbs.Handle, vector int) (verbs.CQ, error) {
	c, err := n.dev.CreateCQWith(roce.CQConfig{Entries: size, Shard: vector, Channel: get[*roce.CompChannel](n, channel), CrossChannel: true})
	if err != nil {
		return verbs.CQ{}, err
	}
	return verbs.CQ{H: n.add(c), Cap: c.Cap()}, nil
}

func (n *Node) ResizeCQ(h verbs.Handle, size int) (int, error) {
	c := get[*roce.CQ](n, h)
	err := c.Resize(size)
	return c.Cap(), err
}

func (n *Node) DestroyCQ(c verbs.Handle) error { return n.closed(c, get[*roce.CQ](n, c).Close()) }

func (n *Node) ReqNotify(c verbs.Handle, solicited bool) error {
	return get[*roce.CQ](n, c).RequestNotify(solicited)
}

func (n *Node) CQEvent(channel verbs.Handle, d time.Duration) (verbs.Handle, error) {
	ctx, stop := wait(d)
	defer stop()
	c, err := get[*roce.CompChannel](n, channel).Next(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return 0, again("get_cq_event")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.handle[c], err
}

// Poll repeats CQ.Poll until it has max completions, or the time d has passed.
func (n *Node) Poll(h verbs.Handle, max int, d time.Duration) ([]cq.WC, error) {
	ctx, stop := wait(d)
	defer stop()
	c := get[*roce.CQ](n, h)
	wcs := make([]cq.WC, max)
	got := c.Poll(wcs)
	for got < max {
		if c.Wait(ctx) != nil {
			break
		}
		got += c.Poll(wcs[got:])
	}
	return wcs[:got], nil
}

func (n *Node) CreateSRQ(pd verbs.Handle, a verbs.SRQAttr) (verbs.Sink, error) {
	return n.CreateXRCSRQ(pd, 0, 0, a)
}

func (n *Node) OpenXRCD() (verbs.Handle, error) {
	x, err := n.dev.OpenXRCD(roce.XRCDConfig{})
	return made(n, x, err)
}

// CreateXRCSRQ calls PD.CreateSRQ with an XRC domain, unless its handle is 0.
func (n *Node) CreateXRCSRQ(pd, xrcd, c verbs.Handle, a verbs.SRQAttr) (verbs.Sink, error) {
	s, err := get[*roce.PD](n, pd).CreateSRQ(roce.SRQConfig{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit,
		XRCD: get[*roce.XRCD](n, xrcd), CQ: get[*roce.CQ](n, c)})
	if err != nil {
		return verbs.Sink{}, err
	}
	got := s.Query()
	return verbs.Sink{H: n.add(s), Num: uint32(s.Num()), MaxWR: got.MaxWR, MaxSGE: got.MaxSGE}, nil
}

func (n *Node) ModifySRQ(srq verbs.Handle, a verbs.SRQAttr, mask int) error {
	return get[*roce.SRQ](n, srq).Modify(roce.SRQAttr{MaxWR: a.MaxWR, Limit: a.Limit}, roce.SRQAttrMask(mask))
}

func (n *Node) QuerySRQ(srq verbs.Handle) (verbs.SRQAttr, error) {
	a := get[*roce.SRQ](n, srq).Query()
	return verbs.SRQAttr{MaxWR: a.MaxWR, MaxSGE: a.MaxSGE, Limit: a.Limit}, nil
}

func (n *Node) DestroySRQ(srq verbs.Handle) error {
	return n.closed(srq, get[*roce.SRQ](n, srq).Close())
}

func (n *Node) PostSRQRecv(srq verbs.Handle, wrs ...verbs.RecvWR) error {
	return postRecvs("post_srq_recv", get[*roce.SRQ](n, srq), wrs)
}

// postRecvs posts to a queue pair or a shared receive queue.
func postRecvs(call string, to interface {
	PostRecvs([]roce.RecvWR) (int, error)
}, wrs []verbs.RecvWR) error {
	list := make([]roce.RecvWR, len(wrs))
	for i, w := range wrs {
		list[i] = roce.RecvWR{ID: w.ID, SG: w.SG}
	}
	if posted, err := to.PostRecvs(list); err != nil {
		return &verbs.Error{Side: "roce", Call: call, Errno: verbs.Errno(err), Posted: posted}
	}
	return nil
}

func (n *Node) AttachMcast(q verbs.Handle, g bth.GID) error {
	return get[*roce.QP](n, q).AttachMulticast(g)
}

func (n *Node) DetachMcast(q verbs.Handle, g bth.GID) error {
	return get[*roce.QP](n, q).DetachMulticast(g)
}

//go:build linux

// Package verbs is the load: what a well-made application does with package roce.
// It posts lists of work requests, asks for one completion a list, takes completions
// in batches and, unless told to sleep, drives the device itself.
package verbs

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/links"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/trial"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// open makes a device of the link of a Spec. What is not on the link is not
// measured: the peer is known.
func open(s trial.Spec) (device, error) {
	p, err := links.Open(s)
	if err != nil {
		return device{}, err
	}
	spin := time.Duration(0)
	if s.Sleep {
		spin = -1
	}
	d, err := roce.Open(roce.Config{Ports: []link.Port{p}, Addrs: []netip.Addr{s.Local.IP},
		Resolver: roce.Neighbours{s.Remote.IP: s.Remote.MAC}, Polled: !s.Wait, Lazy: !s.Wait, Spin: spin})
	return device{d, p}, err
}

// device is a device and its only port.
type device struct {
	*roce.Device
	port link.Port
}

// mode says how the driver runs.
func (d device) mode() string { return d.port.Info().Mode }

// offer is what an end tells the other.
type offer struct {
	QPNs []uint32 `json:"qpns"`
	PSN  uint32   `json:"psn"`
	Addr uint64   `json:"addr"`
	RKey uint32   `json:"rkey"`
}

// rig is one end of a number of connected queue pairs that share a completion
// queue and a memory region.
type rig struct {
	spec   trial.Spec
	dev    device
	pd     *roce.PD
	cq     *roce.CQ
	srq    *roce.SRQ
	qps    []*roce.QP
	config roce.QPConfig // of those
	mr     *roce.MR
	psn    roce.PSN
	peer   offer
}

// maxCQE is more than there are messages under way.
const maxCQE = 1<<16 - 1

const access = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead

// newRig makes the queue pairs.
func newRig(s trial.Spec, memory int, sendWR, recvWR int) (r *rig, err error) {
	dev, err := open(s)
	if err != nil {
		return nil, err
	}
	r = &rig{spec: s, dev: dev, psn: dev.RandomPSN()}
	defer func() {
		if err != nil {
			dev.Close()
		}
	}()
	n := max(s.QPs, 1)
	r.pd = dev.AllocPD()
	if r.mr, err = r.pd.RegMR(make([]byte, memory), access); err != nil {
		return nil, err
	}
	if r.cq, err = dev.CreateCQ(min(n*(sendWR+recvWR), maxCQE)); err != nil {
		return nil, err
	}
	c := roce.QPConfig{SendCQ: r.cq, Caps: roce.Caps{MaxSendWR: sendWR, MaxRecvWR: recvWR, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64}}
	c.SplitWrites = s.Op == result.SplitWrite
	if s.SRQ {
		if r.srq, err = r.pd.CreateSRQ(roce.SRQConfig{MaxWR: recvWR}); err != nil {
			return nil, err
		}
		c.SRQ, c.Caps.MaxRecvWR = r.srq, 0
	}
	for range n {
		if err := r.add(c); err != nil {
			return nil, err
		}
	}
	r.config = c
	return r, nil
}

// add makes one more queue pair.
func (r *rig) add(c roce.QPConfig) error {
	q, err := r.pd.CreateQP(c)
	if err != nil {
		return err
	}
	r.qps = append(r.qps, q)
	return q.Init(access, 0)
}

func (r *rig) offer() offer {
	o := offer{PSN: uint32(r.psn), Addr: r.mr.Addr(), RKey: uint32(r.mr.RKey())}
	for _, q := range r.qps {
		o.QPNs = append(o.QPNs, uint32(q.Num()))
	}
	return o
}

// readsAtATime is how many READs are answered at a time: the most there can be,
// which small ones need.
const readsAtATime = roce.MaxRdAtomic

// connect connects each queue pair with its counterpart.
func (r *rig) connect(peer offer) error {
	if len(peer.QPNs) != len(r.qps) {
		return fmt.Errorf("%d queue pairs here, %d there", len(r.qps), len(peer.QPNs))
	}
	r.peer = peer
	timeout := uint8(ackTimeout)
	if r.spec.Loss > 0 {
		timeout = lossyTimeout
	}
	for i, q := range r.qps {
		err := q.Connect(context.Background(), roce.Peer{
			AHAttr: roce.AHAttr{DGID: bth.GIDFrom(r.spec.Remote.IP)},
			QPN:    roce.QPN(peer.QPNs[i]), PSN: roce.PSN(peer.PSN), MTU: pathMTU(r.spec.PMTU), Timeout: timeout,
			RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, RdAtomic: readsAtATime,
		}, r.psn)
		if err != nil {
			return err
		}
	}
	return nil
}

// ackTimeout is 4.096 µs times 2^16, 0.27 s: on a busy machine an end may not run for
// longer than seven retries after the usual 67 ms. Where packets are lost on purpose it
// is those.
const ackTimeout, lossyTimeout = 16, 14

func pathMTU(n int) roce.MTU {
	for m := roce.MTU256; m.Valid(); m++ {
		if m.Bytes() == n {
			return m
		}
	}
	return roce.MTU1024
}

func (r *rig) close() error { return r.dev.Close() }

// wait sleeps until there are completions, if that is wanted.
func (r *rig) wait(ctx context.Context) error {
	if !r.spec.Wait {
		return nil
	}
	return r.cq.Wait(ctx)
}

// check turns an unsuccessful completion into an error.
func check(wc *roce.WC) error {
	if wc.Status != roce.StatusSuccess {
		return fmt.Errorf("%v on QP %v: %v", wc.Opcode, wc.QPN, wc.Status)
	}
	return nil
}

//go:build linux

// Package verbs generates the load: it uses package roce like an efficient application. It posts lists of work
// requests, requests one completion for each list, polls for several completions at a time and, unless the Spec says
// to sleep, drives the device itself.
package verbs

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/links"
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// device is a device and its first port.
type device struct {
	*roce.Device
	port link.Port
}

// open makes a device on the link of a Spec. It knows the peer's Ethernet address, so that
// address resolution is no part of the measurement.
func open(s harness.Spec) (device, error) {
	ports, err := links.OpenShards(s)
	if err != nil {
		return device{}, err
	}
	recovery := roce.RecoverDefault
	if s.Recovery {
		recovery = roce.RecoverAll
	} else if s.Kind == result.Loss {
		recovery = roce.RecoverGoBack
	}
	d, err := roce.Open(roce.Config{Ports: ports, Addrs: []netip.Addr{s.Local.IP}, Options: roce.Options{
		Resolver: roce.Neighbours{s.Remote.IP: s.Remote.MAC}, Polled: !s.Wait && !s.Background, Lazy: !s.Wait, Spin: s.Spin, SleepAtOnce: s.Sleep, Recovery: recovery}})
	return device{d, ports[0]}, err
}

// OpenDevice makes a device on the link of a Spec, as the measurements of this package do.
func OpenDevice(s harness.Spec) (*roce.Device, error) {
	d, err := open(s)
	return d.Device, err
}

// mode returns how the driver runs.
func (d device) mode() string { return d.port.Info().Mode }

// Close closes the device, unless there is none.
func (d device) Close() error {
	if d.Device == nil {
		return nil
	}
	return d.Device.Close()
}

// offer is the data that an end sends to its peer.
type offer struct {
	QPNs []uint32 `json:"qpns"`
	Idle []uint32 `json:"idle,omitempty"`
	PSN  uint32   `json:"psn"`
	Addr uint64   `json:"addr"`
	RKey uint32   `json:"rkey"`
}

// endpoint is one end of some connected queue pairs that share a completion queue and a memory
// region.
type endpoint struct {
	spec   harness.Spec
	dev    device
	pd     *roce.PD
	cq     *roce.CQ
	srq    *roce.SRQ
	qps    []*roce.QP
	idle   []*roce.QP    // connected, and not used
	perQP  float64       // bytes of heap of each idle queue pair
	config roce.QPConfig // of the queue pairs
	mr     *roce.MR
	psn    roce.PSN
	peer   offer
}

// maxCQE is more than the number of messages in flight.
const maxCQE = 1<<16 - 1

const access = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead

// newEndpoint makes the device, a region of the given size, and as many queue pairs as s says.
func newEndpoint(s harness.Spec, memory int, sendWR, recvWR int) (*endpoint, error) {
	dev, err := open(s)
	if err != nil {
		return nil, err
	}
	e, err := newEndpointOn(dev, 0, s, memory, sendWR, recvWR)
	if err != nil {
		dev.Close()
	}
	return e, err
}

// newEndpointOn is newEndpoint on a shard of a device.
func newEndpointOn(dev device, shard int, s harness.Spec, memory, sendWR, recvWR int) (e *endpoint, err error) {
	e = &endpoint{spec: s, dev: dev, psn: dev.RandomPSN()}
	n := max(s.QPs, 1)
	e.pd = dev.AllocPD()
	if e.mr, err = e.pd.RegMR(make([]byte, memory), access); err != nil {
		return nil, err
	}
	if e.cq, err = dev.CreateCQWith(roce.CQConfig{Entries: min(n*(sendWR+recvWR), maxCQE), Shard: shard}); err != nil {
		return nil, err
	}
	e.config = roce.QPConfig{SendCQ: e.cq, Caps: roce.Caps{MaxSendWR: sendWR, MaxRecvWR: recvWR, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 64},
		SplitWrites: s.Op == result.SplitWrite}
	if s.SRQ {
		if e.srq, err = e.pd.CreateSRQ(roce.SRQConfig{MaxWR: recvWR}); err != nil {
			return nil, err
		}
		e.config.SRQ, e.config.Caps.MaxRecvWR = e.srq, 0
	}
	for range n {
		if err := e.add(e.config); err != nil {
			return nil, err
		}
	}
	return e, e.addIdle()
}

// addIdle makes the idle queue pairs, with the default queue sizes.
func (e *endpoint) addIdle() error {
	if e.spec.Idle == 0 {
		return nil
	}
	busy, before := e.qps, heap()
	e.qps = make([]*roce.QP, 0, e.spec.Idle)
	for range e.spec.Idle {
		if err := e.add(roce.QPConfig{SendCQ: e.cq, Caps: roce.DefaultCaps}); err != nil {
			return err
		}
	}
	e.perQP = (float64(heap()) - float64(before)) / float64(e.spec.Idle)
	e.idle, e.qps = e.qps, busy
	return nil
}

// add makes one more queue pair.
func (e *endpoint) add(c roce.QPConfig) error {
	q, err := e.pd.CreateQP(c)
	if err != nil {
		return err
	}
	e.qps = append(e.qps, q)
	return q.Init(access, 0)
}

func (e *endpoint) offer() offer {
	numbers := func(qps []*roce.QP) (n []uint32) {
		for _, q := range qps {
			n = append(n, uint32(q.Num()))
		}
		return n
	}
	return offer{QPNs: numbers(e.qps), Idle: numbers(e.idle), PSN: uint32(e.psn), Addr: e.mr.Addr(), RKey: uint32(e.mr.RKey())}
}

// ackTimeout is 4.096 µs times 2^16, 0.27 s: on a busy machine an end may be descheduled for longer than seven retries
// of the usual 67 ms. lossyTimeout is the usual one, for links that lose packets on purpose.
const ackTimeout, lossyTimeout = 16, 14

// Connect connects the queue pairs with those of the peer's offer.
func (e *endpoint) Connect(b json.RawMessage) error {
	var peer offer
	if err := json.Unmarshal(b, &peer); err != nil {
		return err
	}
	return e.connect(peer)
}

// connect connects each queue pair with the one at the same place of the peer's list. As many
// READs as possible may be outstanding: short ones need that.
func (e *endpoint) connect(peer offer) error {
	if len(peer.QPNs) != len(e.qps) || len(peer.Idle) != len(e.idle) {
		return fmt.Errorf("%d queue pairs here, %d there", len(e.qps)+len(e.idle), len(peer.QPNs)+len(peer.Idle))
	}
	e.peer = peer
	timeout := uint8(ackTimeout)
	if e.spec.Loss > 0 {
		timeout = lossyTimeout
	}
	numbers := slices.Concat(peer.QPNs, peer.Idle)
	for i, q := range slices.Concat(e.qps, e.idle) {
		err := q.Connect(context.Background(), roce.Peer{
			AHAttr: roce.AHAttr{DGID: bth.GIDFrom(e.spec.Remote.IP)},
			QPN:    roce.QPN(numbers[i]), PSN: roce.PSN(peer.PSN), MTU: pathMTU(e.spec.PMTU), Timeout: timeout,
			RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 1, RdAtomic: roce.MaxRdAtomic,
		}, e.psn)
		if err != nil {
			return err
		}
	}
	return nil
}

func pathMTU(n int) roce.MTU {
	for m := roce.MTU256; m.Valid(); m++ {
		if m.Bytes() == n {
			return m
		}
	}
	return roce.MTU1024
}

// Close closes the device, unless there is none.
func (e *endpoint) Close() error {
	if e == nil {
		return nil
	}
	return e.dev.Close()
}

// wait sleeps until there are completions, if the Spec says so; otherwise it returns at once.
func (e *endpoint) wait(ctx context.Context) error {
	if !e.spec.Wait {
		return nil
	}
	return e.cq.Wait(ctx)
}

// check turns an unsuccessful completion into an error.
func check(wc *roce.WC) error {
	if wc.Status != roce.StatusSuccess {
		return fmt.Errorf("%v on QP %v: %v", wc.Opcode, wc.QPN, wc.Status)
	}
	return nil
}

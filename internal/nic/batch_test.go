package nic

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/route"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// admission is a QP 1 that admits every datagram and records the dataAt of each call.
type admission struct {
	QP1
	log []mono.Time
	got int
}

func (a *admission) Admit(_, dataAt mono.Time, _ *bth.GID) bool {
	a.log = append(a.log, dataAt)
	return true
}
func (a *admission) Receive(mono.Time, *frame.Packet) { a.got++ }

// pauses is a filter that notes its calls.
type pauses struct{ log []string }

func (p *pauses) Admit(n bth.QPN, g bth.GID) { p.log = append(p.log, fmt.Sprint("admit ", n, g)) }
func (p *pauses) Pause(n bth.QPN)            { p.log = append(p.log, fmt.Sprint("pause ", n)) }
func (p *pauses) Forget(n bth.QPN)           {}
func (p *pauses) Drops() (d link.FilterDrops) {
	return d
}

// testNIC is a NIC with an RC, a UC and a UD queue pair.
type testNIC struct {
	*NIC
	hub    *mem.Hub
	qp1    *admission
	pauses *pauses
	qps    [3]*QP
	send   *cq.CQ
	recv   *cq.CQ
	m      *mr.MR
}

var batchOwn, batchPeer = netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")

func batchPath(t *testing.T, from, to netip.Addr, tc uint8) *frame.Path {
	p, err := frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(to), SrcMAC: frame.MAC{2, 2}, DstMAC: frame.MAC{2, 1}, SrcPort: 50000, TrafficClass: tc})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func newTestNIC(t *testing.T, recovery qp.Recovery) *testNIC {
	hub := mem.NewHub(mem.Config{})
	port, err := hub.Port("p", frame.MAC{2, 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { port.Close() })
	routes := route.New(route.Config{MAC: port.Info().MAC, GIDs: []bth.GID{bth.GIDFrom(batchOwn)}})
	rng := rand.New(rand.NewPCG(5, 6))
	n, err := New(Config{Ports: []link.Port{port}, Routes: routes, Polled: true, Rand: rng.Uint64, Notify: func(Event) {}, Recovery: recovery})
	if err != nil {
		t.Fatal(err)
	}
	b := &testNIC{NIC: n, hub: hub, qp1: new(admission), pauses: new(pauses)}
	n.qp1, n.filter = b.qp1, b.pauses
	mem, pd := mr.NewTable(rng.Uint64), mr.NewPD()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	b.send, err = cq.New(4096, cq.Options{})
	check(err)
	b.recv, err = cq.New(4096, cq.Options{})
	check(err)
	b.m, err = mem.Register(pd, make([]byte, 4096), mr.LocalWrite|mr.RemoteWrite|mr.RemoteRead, mr.Options{IOVA: 0x1000, HasIOVA: true})
	check(err)
	for i, typ := range []qp.Type{qp.RC, qp.UC, qp.UD} {
		q := new(QP)
		q.Init(n.shards[0], q, func(EventType) {})
		check(n.Create(q, qp.Config{Type: typ, PD: pd, Memory: mem, SendCQ: b.send, RecvCQ: b.recv, Caps: qp.Caps{MaxSendWR: 64, MaxRecvWR: 64}}, nil, false, func() error { return nil }))
		a := qp.Attr{Port: 1, AV: qp.NewAH(batchPath(t, batchOwn, batchPeer, 0)), PathMTU: bth.MTU1024, DestQPN: 5, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, MaxRdAtomic: 1, MaxDestRdAtomic: 1, QKey: 77,
			Access: mr.RemoteWrite | mr.RemoteRead}
		masks := [][3]qp.AttrMask{
			{qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN | qp.AttrMaxDestRdAtomic | qp.AttrMinRNRTimer, qp.AttrTimeout | qp.AttrRetryCnt | qp.AttrRNRRetry | qp.AttrSQPSN | qp.AttrMaxRdAtomic},
			{qp.AttrPKeyIndex | qp.AttrPort | qp.AttrAccess, qp.AttrAV | qp.AttrPathMTU | qp.AttrDestQPN | qp.AttrRQPSN, qp.AttrSQPSN},
			{qp.AttrPKeyIndex | qp.AttrPort | qp.AttrQKey, 0, qp.AttrSQPSN},
		}[i]
		for j, s := range []qp.State{qp.Init, qp.RTR, qp.RTS} {
			a.State = s
			check(q.engine.Modify(&a, qp.AttrState|masks[j]))
		}
		b.qps[i] = q
	}
	return b
}

func (b *testNIC) outcome() string {
	s := b.shards[0]
	var wcs [4096]cq.WC
	k := b.recv.Poll(wcs[:])
	text := fmt.Sprint(s.counters, s.drops, s.dataAt, s.dryDrops, b.qp1.log, b.qp1.got, b.pauses.log, wcs[:k])
	for _, q := range b.qps {
		a, _ := q.engine.Query()
		a.AV, a.AltAV = nil, nil
		text += fmt.Sprint("\n", a, q.dry, q.paused, q.queued, q.engine.NextTimeout())
	}
	return text
}

// TestBatches: a batch has the effect of its frames one by one.
func TestBatches(t *testing.T) {
	for seed := range uint64(8) {
		recovery := qp.RecoverGoBack
		if seed&1 != 0 {
			recovery = qp.RecoverAll
		}
		whole, single := newTestNIC(t, recovery), newTestNIC(t, recovery)
		rng := rand.New(rand.NewPCG(seed, 3))
		layout := whole.info.Layout
		stranger := netip.MustParseAddr("10.0.0.3")
		var paths []*frame.Path
		for _, from := range []netip.Addr{batchPeer, batchPeer, batchPeer, stranger, batchOwn} {
			paths = append(paths, batchPath(t, from, batchOwn, 0), batchPath(t, from, batchOwn, 3))
		}
		var psn [3]bth.PSN
		now := mono.Time(0).Add(time.Second)
		for step := range 60 {
			now = now.Add(time.Duration(1 + rng.IntN(1000000)))
			var data [][]byte
			var over []*frame.Path
			for len(data) < 100 {
				k, n := rng.IntN(3), 1+rng.IntN(12)
				path := paths[rng.IntN(2+rng.IntN(len(paths)-1))&^1]
				if rng.IntN(10) == 0 {
					path = paths[1]
				}
				op := []bth.Opcode{bth.RCSendOnly, bth.UCSendOnly, bth.UDSendOnly}[k]
				if rng.IntN(15) == 0 {
					op = []bth.Opcode{bth.RCSendOnly, bth.UCSendOnly, bth.UDSendOnly, bth.RCAck, bth.CNP}[rng.IntN(5)]
				}
				dest := whole.qps[k].Num()
				switch rng.IntN(30) {
				case 0:
					dest++
				case 1:
					dest, op = bth.QPNGSI, bth.UDSendOnly
				}
				info := op.Info()
				size := int(info.HeaderLen) + 8 + bth.ICRCLen
				if op == bth.RCAck {
					size -= 8
				}
				if op == bth.CNP {
					size = bth.BTHLen + 16 + bth.ICRCLen
				}
				if dest == bth.QPNGSI {
					size = int(info.HeaderLen) + 256 + bth.ICRCLen
				}
				for range n {
					if rng.IntN(20) == 0 {
						psn[k] = psn[k].Add(rng.IntN(3) - 1)
					}
					b := make([]byte, path.HeaderLen(layout)+size)
					body, crc := path.Put(b, layout, size, uint16(rng.IntN(3)))
					at := bth.PutBTH(body, op, bth.BTHFlags(0), 0, bth.DefaultPKey, dest, psn[k])
					if info.Headers&bth.HasDETH != 0 {
						key := bth.QKey(77)
						if rng.IntN(40) == 0 {
							key++
						}
						bth.PutDETH(body[at:], key, 9)
					}
					if info.Headers&bth.HasAETH != 0 {
						bth.PutAETH(body[at:], bth.AckNoCredits, 0)
					}
					end := len(body) - bth.ICRCLen
					bth.PutICRC(body[end:], crc.UpdateBody(body[:end]))
					if rng.IntN(60) == 0 {
						b[len(b)-1] ^= 1
					} else if op == bth.RCSendOnly || op == bth.UCSendOnly {
						psn[k] = psn[k].Add(1)
					}
					data, over = append(data, b), append(over, path)
				}
			}
			data = data[:min(len(data), link.Batch)]
			hidden := seed&2 != 0 // the driver hides the headers
			envelopes := func() func(i int) link.Frame {
				made := make(map[*frame.Path]*frame.Envelope)
				return func(i int) link.Frame {
					if !hidden {
						return link.Frame{Data: data[i]}
					}
					if made[over[i]] == nil {
						e := over[i].Envelope()
						e.SrcMAC, e.DstMAC = frame.MAC{}, frame.MAC{}
						made[over[i]] = &e
					}
					return link.Frame{Data: data[i][over[i].HeaderLen(layout):], Env: made[over[i]], Segment: uint16(i % 3)}
				}
			}
			x := rng.IntN(3)
			for _, b := range []*testNIC{whole, single} {
				for i, q := range b.qps {
					if i == 2 && x > 0 {
						continue // the datagram queue pair is dry
					}
					q.resume()
					for q.engine.PostRecv(&qp.RecvWR{SG: []mr.SGE{b.m.SGE(0, 64)}}) == nil {
					}
				}
			}
			var frames []link.Frame
			of := envelopes()
			for i := range data {
				frames = append(frames, of(i))
			}
			whole.shards[0].receiveAll(now, frames)
			of = envelopes()
			for i := range data {
				single.shards[0].receiveAll(now, []link.Frame{of(i)})
			}
			if a, b := whole.outcome(), single.outcome(); a != b {
				t.Fatalf("seed %d, step %d:\n%s\nwant\n%s", seed, step, a, b)
			}
		}
	}
}

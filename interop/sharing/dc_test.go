//go:build linux

package sharing

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/interop/child"
)

// Target is a DC target in a process, with the values that initiators need.
type Target struct {
	Failure
	Addr netip.Addr
	QPN  roce.QPN
	RKey roce.RKey
	VA   uint64
}

const (
	dcKey  = 0x5EA5
	dcSize = 9000 // bytes of a WRITE and a READ: several packets
)

// servedTarget is the target of a member.
type servedTarget struct {
	*roce.DCT
	region *roce.MR // a word to which initiators add, and room for the data of each
}

// Serve makes a target for some initiators.
func (m *Member) Serve(initiators int, r *Target) error {
	r.Failure = failure(func() error {
		pd := m.dev.AllocPD()
		queue, err := m.dev.CreateCQ(16)
		if err != nil {
			return err
		}
		srq, err := pd.CreateSRQ(roce.SRQConfig{MaxWR: 1})
		if err != nil {
			return err
		}
		access := roce.RemoteRead | roce.RemoteWrite | roce.RemoteAtomic
		region, err := pd.RegMR(make([]byte, 8+initiators*dcSize), roce.LocalWrite|access)
		if err != nil {
			return err
		}
		target, err := pd.CreateDCT(roce.DCTConfig{CQ: queue, SRQ: srq, Key: dcKey, Access: access,
			GIDIndex: slices.Index(m.dev.GIDs(), bth.GIDFrom(m.local))})
		if err != nil {
			return err
		}
		m.target = &servedTarget{target, region}
		r.Addr, r.QPN, r.RKey, r.VA = m.local, target.Num(), region.RKey(), region.Addr()
		return nil
	}())
	return nil
}

// Served has the results of a target.
type Served struct {
	Count      uint64 // in the word
	Violations uint64
}

// Visitors returns the results of the member's target.
func (m *Member) Visitors(_ child.None, r *Served) error {
	r.Count, r.Violations = m.target.region.Load64(0), m.target.Query().KeyViolations
	return nil
}

// Visit has the targets of an initiator, and the number of the initiator.
type Visit struct {
	To     []Target
	Place  int
	Rounds int
}

// Visit accesses the targets in turn: a WRITE, a READ of the same memory, and a FETCH_ADD. At the end it tries a
// wrong access key.
func (m *Member) Visit(v Visit, r *Failure) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	*r = failure(m.visit(ctx, &v))
	return nil
}

func (m *Member) visit(ctx context.Context, v *Visit) error {
	i, err := m.newVisitor(ctx, v.To)
	if err != nil {
		return err
	}
	out, back := i.region.Bytes()[:dcSize], i.region.Bytes()[dcSize:2*dcSize]
	for round := range v.Rounds {
		for n, to := range v.To {
			for at := 0; at < dcSize; at += 8 {
				binary.BigEndian.PutUint64(out[at:], uint64(v.Place)<<48|uint64(round)<<32|uint64(n)<<24|uint64(at))
			}
			place := to.VA + 8 + uint64(v.Place*dcSize)
			for _, wr := range []roce.SendWR{
				{Opcode: roce.Write, RemoteAddr: place, SG: []roce.SGE{i.region.SGE(0, dcSize)}},
				{Opcode: roce.Read, RemoteAddr: place, SG: []roce.SGE{i.region.SGE(dcSize, dcSize)}},
				{Opcode: roce.FetchAdd, RemoteAddr: to.VA, CompareAdd: 1, SG: []roce.SGE{i.region.SGE(2*dcSize, 8)}},
			} {
				wr.DCKey = dcKey
				if status, err := i.do(ctx, n, &wr); err != nil || status != roce.StatusSuccess {
					return fmt.Errorf("round %d, %v to %v: %v, %v", round, wr.Opcode, to.Addr, status, err)
				}
			}
			if !bytes.Equal(out, back) {
				return fmt.Errorf("round %d: other data came back from %v", round, to.Addr)
			}
		}
	}
	status, err := i.do(ctx, 0, &roce.SendWR{Opcode: roce.Write, DCKey: dcKey + 1})
	if err != nil || status != roce.StatusRemAccessErr {
		return fmt.Errorf("with a wrong key: %v, %v", status, err)
	}
	return nil
}

// visitor is an initiator, with an address handle for each target.
type visitor struct {
	to     []Target
	ways   []*roce.AH
	qp     *roce.QP
	region *roce.MR
}

func (m *Member) newVisitor(ctx context.Context, to []Target) (*visitor, error) {
	i := &visitor{to: to}
	pd := m.dev.AllocPD()
	queue, err := m.dev.CreateCQ(16)
	if err != nil {
		return nil, err
	}
	if i.qp, err = pd.CreateQP(roce.QPConfig{Type: roce.DCI, SendCQ: queue}); err != nil {
		return nil, err
	}
	if i.region, err = pd.RegMR(make([]byte, 2*dcSize+8), roce.LocalWrite); err != nil {
		return nil, err
	}
	for _, t := range to {
		peer := bth.GIDFrom(t.Addr)
		from := slices.IndexFunc(m.dev.GIDs(), func(g bth.GID) bool { return g.Is4() == peer.Is4() })
		ah, err := m.dev.CreateAH(ctx, roce.AHAttr{DGID: peer, SGIDIndex: from})
		if err != nil {
			return nil, err
		}
		i.ways = append(i.ways, ah)
	}
	return i, i.qp.ReadyDC(roce.Initiator{AV: i.ways[0], MTU: bth.MTU1024, Timeout: 16, RetryCnt: 7, RNRRetry: 7, RdAtomic: 4})
}

// do posts a work request to a target and waits for its completion.
func (i *visitor) do(ctx context.Context, to int, wr *roce.SendWR) (roce.Status, error) {
	wr.AH, wr.RemoteQPN, wr.RKey, wr.Flags = i.ways[to], i.to[to].QPN, i.to[to].RKey, roce.Signaled
	if err := i.qp.PostSend(wr); err != nil {
		return 0, err
	}
	wc, err := i.qp.SendCQ().Next(ctx)
	return wc.Status, err
}

// DC initiators and targets in processes that share two addresses: each initiator accesses all targets in turn,
// also those in other processes on its own address.
func TestDC(t *testing.T) {
	each(t, func(t *testing.T, a, b side) {
		rounds := pick(3, 100)
		var all []*process
		for _, s := range []side{a, b} {
			all = append(all, s.member(t), s.member(t, func(o *Open) { o.Queues = 2 }), s.member(t, func(o *Open) { o.Loss = 0.02 }))
		}
		targets := make([]Target, len(all))
		for i, p := range all {
			if p.call("Serve", len(all), &targets[i]); targets[i].Text != "" {
				t.Fatal(targets[i].Text)
			}
		}
		var busy sync.WaitGroup
		for i, p := range all {
			busy.Go(func() {
				var f Failure
				if err := p.Call(t.Context(), "Visit", Visit{To: targets, Place: i, Rounds: rounds}, &f); err != nil || f.Text != "" {
					t.Errorf("initiator %d: %v, %s", i, err, f.Text)
				}
			})
		}
		busy.Wait()
		for i, p := range all {
			var got Served
			p.call("Visitors", nil, &got)
			if want := uint64(rounds * len(all)); got.Count != want {
				t.Errorf("target %d: %d additions, want %d", i, got.Count, want)
			}
			if i == 0 && got.Violations < uint64(len(all)) { // if a REJECT is lost, the target counts the repeated CONNECT, too
				t.Errorf("%d key violations, want one of each initiator", got.Violations)
			}
		}
	})
}

package scenario_test

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// TestBatchIdentifications: the driver hides the IPv4 Identifications of packets. The queue
// pair draws the same conclusions from a batch as from its packets one by one. Otherwise, if
// it took the first Identification for that of the whole batch, it would refuse good packets
// after the batch.
func TestBatchIdentifications(t *testing.T) {
	for name, most := range map[string]int{"one by one": 1, "in batches": link.Batch} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				c := n.config("10.0.0.1")
				port := &feeder{Port: linktest.Bare(c.Ports[0], false)}
				c.Ports[0], c.Polled = port, true
				p := newPeer(t, n.open(c), 64)
				peer := bth.GIDFrom(netip.MustParseAddr("10.0.0.2"))
				check(t, p.qp.Connect(context.Background(), roce.Peer{AHAttr: roce.AHAttr{DGID: peer}, QPN: 0x222222, PSN: 1,
					MTU: bth.MTU1024, Timeout: 14, RetryCnt: 7, RNRRetry: 7, MinRNRTimer: 12, RdAtomic: 1}, 1))
				path := ok(frame.NewPath(frame.PathConfig{Src: peer, Dst: p.dev.GIDs()[0], SrcPort: 0xC000, HopLimit: 64}))(t)
				psn := bth.PSN(1)
				arrive := func(id uint16, count int) {
					env := path.Envelope()
					env.ID = id
					env.Seal()
					var frames []link.Frame
					for i := range count {
						const size = bth.BTHLen + bth.RETHLen + 64 + bth.ICRCLen
						body, crc := path.Put(make([]byte, path.HeaderLen(frame.LayoutUDP)+size), frame.LayoutUDP, size, id+uint16(i))
						bth.PutBTH(body, bth.RCWriteOnly, bth.MigReq, 0, bth.DefaultPKey, p.qp.Num(), psn)
						bth.PutRETH(body[bth.BTHLen:], p.mr.Addr(), p.mr.RKey(), 64)
						bth.PutICRC(body[size-bth.ICRCLen:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:size-bth.ICRCLen]))
						frames = append(frames, link.Frame{Data: body, Env: &env, Segment: uint16(i)})
						psn = psn.Add(1)
					}
					for len(frames) > 0 {
						k := min(most, len(frames))
						port.frames = frames[:k]
						p.dev.Progress()
						frames = frames[k:]
					}
					time.Sleep(time.Microsecond)
				}
				arrive(0, 40)
				arrive(40, 100)
				arrive(139+200, 4)
				if c := p.dev.Counters(); c.RcvdPkts != 144 || c.StrangeID != 0 {
					t.Errorf("of 144 packets %d were taken, %d refused for their identification", c.RcvdPkts, c.StrangeID)
				}
			})
		})
	}
}

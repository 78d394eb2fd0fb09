package scenario_test

import (
	"bytes"
	"context"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// destQPN steers by the destination QPN, as a network card can.
func destQPN(data []byte) int {
	var p frame.Packet
	if p.Parse(data, frame.LayoutEthernet) != nil {
		return 0
	}
	return int(p.DestQPN())
}

// steerings says which port gets a packet for a queue pair of a device with
// several.
var steerings = []struct {
	name  string
	steer func(data []byte) int
}{
	{"to the right port", destQPN},
	{"to the wrong port", func(data []byte) int { return destQPN(data) + 1 }},
	{"to the first port", func([]byte) int { return 0 }},
	{"by the last byte", func(data []byte) int { return int(data[len(data)-1]) }},
}

func (n *network) multi(addr string, queues int, steer func([]byte) int) roce.Config {
	n.t.Helper()
	ip := netip.MustParseAddr(addr)
	c := roce.Config{Addrs: []netip.Addr{ip}}
	for _, p := range ok(n.hub.Queues(addr, roce.DerivedMAC(ip), queues, steer))(n.t) {
		c.Ports = append(c.Ports, link.Port(p))
	}
	return c
}

func TestShards(t *testing.T) {
	for _, s := range steerings {
		for _, mode := range []string{"background", "bare", "lazy", "polled"} {
			t.Run(s.name+","+mode, func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					n := newNetwork(t)
					n.bare = mode == "bare"
					polled := mode == "polled"
					c := n.multi("10.0.0.1", 3, s.steer)
					c.Polled, c.Lazy = polled, mode == "lazy"
					da, db := n.open(c), n.device("10.0.0.2")
					if polled {
						keepBusy(t, da)
					}
					if got := da.Query().Shards; got != 3 {
						t.Errorf("%d shards, want 3", got)
					}
					const size = 200_000
					start := time.Now()
					var wg sync.WaitGroup
					for i := range 9 {
						a, b := newPeerOn(t, da, i%3, size), newPeer(t, db, 2*size)
						if int(a.qp.Num())%3 != i%3 {
							t.Errorf("QPN %v is on shard %d of 3", a.qp.Num(), i%3)
						}
						connect(t, a, b)
						fill(a.buf, i)
						wg.Go(func() {
							for range 3 {
								a.post(roce.Write, 0, size, b, 0)
								b.post(roce.Read, size, size, a, 0)
								a.wait()
								b.wait()
							}
							if !bytes.Equal(a.buf, b.buf[:size]) || !bytes.Equal(a.buf, b.buf[size:]) {
								t.Errorf("pair %d: the data differs", i)
							}
						})
					}
					wg.Wait()
					// A polled device sleeps at one port and looks at the others
					// every millisecond.
					// In mode bare a device may take a packet for a damaged one, because it does
					// not see its Identification. If that packet is a repetition, or the end of
					// a message was behind it, a timer repeats a packet.
					ca, cb := da.Counters(), db.Counters()
					again := ca.Probes + cb.Probes + ca.SingleRepairs + cb.SingleRepairs + ca.PartialReads + cb.PartialReads
					if took := time.Since(start); took > 0 && !polled && again == 0 || took > 50*time.Millisecond {
						t.Errorf("took %v: a forwarded packet woke nobody", took)
					}
					// Packets at a wrong shard are handed on, not dropped.
					if drops := da.Counters().Drops; drops != (roce.DropCounters{}) {
						t.Errorf("packets were dropped: %+v", drops)
					}
				})
			})
		}
	}
}

// TestShardsAmongThemselves connects queue pairs of different shards of one
// device.
func TestShardsAmongThemselves(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.open(n.multi("10.0.0.1", 2, destQPN))
		a, b := newPeerOn(t, d, 0, 1<<20), newPeerOn(t, d, 1, 1<<20)
		connect(t, a, b)
		exchange(t, a, b)
		exchange(t, b, a)
	})
}

// TestShardsConnect: the connection manager is on one shard; its messages arrive at any shard, and its queue pairs are on
// all shards.
func TestShardsConnect(t *testing.T) {
	for _, s := range steerings {
		t.Run(s.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				server := n.open(n.multi("10.0.0.1", 2, s.steer))
				client := n.open(n.multi("10.0.0.2", 2, s.steer))
				ctx := within(t, time.Minute)
				l := ok(server.Listen(ctx, ":7471", roce.ListenConfig{}))(t)
				var wg sync.WaitGroup
				shards := map[int]bool{}
				for range 4 {
					var sc *roce.Conn
					wg.Go(func() {
						r, err := l.Accept(ctx)
						if err == nil {
							sc, err = r.Accept(ctx, roce.AcceptConfig{})
						}
						if err != nil {
							t.Error(err)
						}
					})
					cc := ok(client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{}))(t)
					wg.Wait()
					shards[int(cc.QP().Num())%2] = true
					check(t, sc.Disconnect(ctx))
					<-cc.Done()
					check(t, sc.Close())
					check(t, cc.Close())
				}
				if len(shards) != 2 {
					t.Errorf("all connections are on one shard")
				}
			})
		})
	}
}

func TestShardsOfQueues(t *testing.T) {
	n := newNetwork(t)
	d := n.open(n.multi("10.0.0.1", 2, destQPN))
	c0, c1 := ok(d.CreateCQ(1))(t), ok(d.CreateCQWith(roce.CQConfig{Entries: 1, Shard: 1}))(t)
	_, err := d.AllocPD().CreateQP(roce.QPConfig{SendCQ: c0, RecvCQ: c1})
	wantErr(t, "queues of different shards", err, syscall.EINVAL)
	_, err = d.Dial(context.Background(), "10.0.0.2:1", roce.DialConfig{QPConfig: roce.QPConfig{SendCQ: c0, RecvCQ: c1}})
	wantErr(t, "queues of different shards", err, syscall.EINVAL)
}

// TestEndBehindAcknowledgement: the peer acknowledges a SEND and then disconnects. Both packets wait, at different shards.
// The SEND succeeds: the end of the connection does not overtake its acknowledgement, whose shard may have to hand it to
// another one.
func TestEndBehindAcknowledgement(t *testing.T) {
	for name, c := range map[string]struct{ shards, owner, port int }{
		"at its shard":             {2, 1, 1},
		"for the first shard":      {2, 0, 1},
		"for the shard before":     {3, 1, 2},
		"for the shard behind":     {3, 2, 1},
		"all at the first":         {3, 2, 0},
		"both of the first shard":  {1, 0, 0},
		"owner of four, elsewhere": {4, 2, 3},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				n := newNetwork(t)
				config := n.multi("10.0.0.1", c.shards, func(data []byte) int {
					if destQPN(data) != int(bth.QPNGSI) {
						return c.port
					}
					return 0
				})
				config.Polled = true
				server, client := n.open(config), n.device("10.0.0.2")
				ctx := within(t, time.Minute)
				cq := ok(server.CreateCQWith(roce.CQConfig{Entries: 8, Shard: c.owner}))(t)
				l := ok(server.Listen(ctx, ":7471", roce.ListenConfig{}))(t)
				conns := make(chan *roce.Conn)
				go func() {
					r, err := l.Accept(ctx)
					check(t, err)
					sc, err := r.Accept(ctx, roce.AcceptConfig{QPConfig: roce.QPConfig{SendCQ: cq}})
					check(t, err)
					conns <- sc
				}()
				cc := ok(client.Dial(ctx, "10.0.0.1:7471", roce.DialConfig{Setup: func(q *roce.QP) error { return q.PostRecv(&roce.RecvWR{}) }}))(t)
				sc := <-conns
				check(t, sc.QP().PostSend(&roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled}))
				synctest.Wait() // the client has acknowledged
				go cc.Disconnect(ctx)
				synctest.Wait()
				server.Progress()
				if wc := ok(cq.Next(ctx))(t); wc.Status != roce.StatusSuccess || sc.Err() == nil {
					t.Errorf("%v, connection %v", wc.Status, sc.Err())
				}
			})
		})
	}
}

package scenario_test

import (
	"context"
	"net/netip"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/qp"
)

// TestEarlyDrop runs some tests of this package on devices whose ports drop early: those in which the device admits
// sources of packets, changes them and removes them. `go test ./internal/scenario -earlydrop` runs all of them.
func TestEarlyDrop(t *testing.T) {
	defer func(before bool) { *earlyDrop = before }(*earlyDrop)
	*earlyDrop = true
	for name, f := range map[string]func(*testing.T){
		"Migrate": TestMigrate, "MigrateBack": TestMigrateBack, "MigrateErrors": TestMigrateErrors, "MigrateRefused": TestMigrateRefused,
		"MigrateLoopback": TestMigrateLoopback, "DialAlternate": TestDialAlternate, "LoadAlternateConn": TestLoadAlternateConn,
		"XRC": TestXRC, "ConnectXRC": TestConnectXRC, "ResolveUD": TestResolveUD, "Datagrams": TestDatagrams, "Multicast": TestMulticast,
		"Shards": TestShards, "SetAddrs": TestSetAddrs, "Connect": TestConnect, "OwnQPReset": TestOwnQPReset, "Disconnect": TestDisconnect,
		"DataConfirms": TestDataConfirms, "StrangersRun": TestStrangersRun, "Drops": TestDrops, "ManyQPs": TestManyQPs,
	} {
		t.Run(name, f)
	}
}

// withoutEarlyDrop skips a test if early drop would count its packets under another reason, or lacks a feature that the
// test needs.
func withoutEarlyDrop(t *testing.T) {
	if *earlyDrop {
		t.Skip("without -earlydrop")
	}
}

// TestAdmitted checks the calls that the driver gets during the life of a queue pair. The driver admits more sources
// before the engine accepts their packets, and fewer after the engine has stopped accepting them.
func TestAdmitted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newFiltered(t)
		a, b := n.device("10.0.0.1"), n.device("10.0.0.2")
		f := n.filters[a]
		step := func(what string, admitted int, want ...string) {
			t.Helper()
			if calls, got := f.Calls(); !slices.Equal(calls, want) || got != admitted {
				t.Errorf("%s: calls %q, %d queue pairs admitted; want %q and %d", what, calls, got, want, admitted)
			}
		}
		step("open", 0)
		p, q := newPeer(t, a, 100), newPeer(t, b, 100)
		step("create", 1, "admit any")
		connect(t, p, q)
		step("RTR and RTS", 1, "admit 10.0.0.2")
		check(t, p.qp.Modify(&roce.Attr{State: qp.SQD}, qp.AttrState))
		step("SQD", 1)
		elsewhere := ok(a.CreateAH(context.Background(), roce.AHAttr{DGID: bth.GIDFrom(netip.MustParseAddr("10.0.0.3"))}))(t)
		check(t, p.qp.Modify(&roce.Attr{AV: elsewhere}, qp.AttrAV))
		step("another path", 1, "admit any", "admit 10.0.0.3")
		wantErr(t, "a bad path", p.qp.Modify(&roce.Attr{AV: elsewhere, Port: 2}, qp.AttrAV|qp.AttrPort), syscall.EINVAL)
		step("refused", 1, "admit any", "admit 10.0.0.3")
		check(t, p.qp.Modify(&roce.Attr{State: qp.RTS}, qp.AttrState))
		check(t, p.qp.LoadAlternate(context.Background(), roce.AHAttr{DGID: b.GIDs()[0]}))
		step("alternate path", 1, "admit any")
		check(t, p.qp.Modify(&roce.Attr{State: qp.Err}, qp.AttrState))
		step("ERR", 1)
		check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		step("RESET", 1)
		check(t, p.qp.Init(roce.DefaultQPAccess, 0))
		connectOne(t, p, q)
		step("again", 1, "admit 10.0.0.2")
		check(t, p.qp.Modify(&roce.Attr{State: qp.Reset}, qp.AttrState))
		step("RESET again", 1, "admit any")
		u := newUD(t, a)
		step("UD", 2, "admit any")
		check(t, u.qp.Close())
		check(t, p.qp.Close())
		step("destroy", 0, "forget", "forget")
		_, err := p.pd.CreateQP(roce.QPConfig{SendCQ: p.cq, Caps: roce.Caps{MaxSendWR: 1 << 30}})
		wantErr(t, "create", err, syscall.EINVAL)
		step("refused", 0)
	})
}

// TestEarlyDropStranger: packets that are dropped early are counted as if the device had
// dropped them, once; those of the peer and to QP 1 are not dropped.
func TestEarlyDropStranger(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newFiltered(t)
		a, b := newPeer(t, n.device("10.0.0.1"), 100), newPeer(t, n.device("10.0.0.2"), 100)
		connect(t, a, b)
		evil := newAttacker(n, b.dev)
		mallory := evil.path("10.0.0.66")
		const each = 7
		for i := range each {
			for _, to := range []roce.QPN{b.qp.Num(), b.qp.Num() + 1} {
				evil.send(mallory, bth.BTHLen+8+bth.ICRCLen, func(x []byte) {
					bth.PutBTH(x, bth.RCSendOnly, bth.AckReq, 0, bth.DefaultPKey, to, roce.PSN(i))
				})
			}
		}
		a.post(roce.Write, 0, 100, b, 0)
		a.wait()
		time.Sleep(time.Millisecond)
		c := b.dev.Counters()
		if c.Drops != (roce.DropCounters{NoQP: each}) || c.WrongPeer != each {
			t.Errorf("drops %+v, %d of a wrong peer; want %d of each", c.Drops, c.WrongPeer, each)
		}
		if d := n.filters[b.dev].Drops(); d != (link.FilterDrops{NoQP: each, WrongPeer: each}) {
			t.Errorf("dropped early: %+v", d)
		}
		if d := n.filters[a.dev].Drops(); d != (link.FilterDrops{}) {
			t.Errorf("dropped early at the client: %+v", d)
		}
	})
}

// TestEarlyDropPause: after some datagrams to a queue pair without receives, the driver drops the next ones early. The
// counter is the same. The first posted receive gets the next datagram.
func TestEarlyDropPause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newFiltered(t)
		a, b := newUD(t, n.device("10.0.0.1")), newUD(t, n.device("10.0.0.2"))
		f := n.filters[b.dev]
		to := a.ah(b)
		sent := 0
		for _, posted := range []int{0, 1, 3, 0} {
			for range posted {
				b.recv()
			}
			for range posted {
				a.send(to, b.qp.Num(), testQKey, "hello")
				b.want(a, "hello")
			}
			for range 100 {
				a.send(to, b.qp.Num(), testQKey, "in vain")
				time.Sleep(time.Millisecond)
				sent++
			}
			if c := b.dev.Counters(); c.UDNoReceive != uint64(sent) || c.Drops != (roce.DropCounters{}) {
				t.Errorf("%d without a receive, want %d; drops %+v", c.UDNoReceive, sent, c.Drops)
			}
			if calls, _ := f.Calls(); len(calls) == 0 && posted > 0 || len(calls) > 0 && calls[len(calls)-1] != "pause" {
				t.Errorf("%d posted: calls %q", posted, calls)
			}
		}
		if early := f.Drops().NoReceive; early < 250 || early > uint64(sent) {
			t.Errorf("%d of %d dropped early", early, sent)
		}
		// A receive that is too small also counts as a receive.
		check(t, b.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{b.mr.SGE(udHalf, roce.GRHLen+1)}}))
		f.Calls()
		for range 100 {
			a.send(to, b.qp.Num(), testQKey, "too long")
			time.Sleep(time.Millisecond)
		}
		if calls, _ := f.Calls(); len(calls) > 0 {
			t.Errorf("calls %q", calls)
		}
	})
}

// TestEarlyDropPauseRun: datagrams that come as a run count as many datagrams without a receive
// as those that come one by one.
func TestEarlyDropPauseRun(t *testing.T) {
	for _, posted := range []int{0, 5} {
		var want []string
		for _, batch := range []int{1, 100} {
			bubble(t, func(t *testing.T) {
				n := newFiltered(t)
				c := n.config("10.0.0.1")
				c.Polled = true
				port := &feeder{Port: c.Ports[0]}
				c.Ports[0] = port
				d := n.open(c)
				u := newUD(t, d)
				for range posted {
					u.recv()
				}
				path, f := newAttacker(n, d).path("10.0.0.66"), n.filters[d]
				f.Calls()
				for i := range 100 {
					port.frames = append(port.frames, link.Frame{Data: datagram(path, port.Info().Layout, u.qp.Num(), i)})
					if len(port.frames) == batch {
						d.Progress()
					}
				}
				calls, _ := f.Calls()
				if batch == 1 {
					want = calls
				}
				if len(calls) != 1 || !slices.Equal(calls, want) {
					t.Errorf("%d posted, batches of %d: calls %q, one by one %q", posted, batch, calls, want)
				}
				if got := d.Counters().UDNoReceive; got != uint64(100-posted) {
					t.Errorf("%d posted, batches of %d: %d without a receive, want %d", posted, batch, got, 100-posted)
				}
			})
		}
	}
}

// datagram is a frame with a datagram of 4 bytes for a UD queue pair.
func datagram(path *frame.Path, l frame.Layout, to roce.QPN, i int) []byte {
	const size = bth.BTHLen + bth.DETHLen + 4
	b := make([]byte, path.HeaderLen(l)+size+bth.ICRCLen)
	body, crc := path.Put(b, l, size+bth.ICRCLen, uint16(i))
	bth.PutBTH(body, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, to, roce.PSN(i))
	bth.PutDETH(body[bth.BTHLen:], testQKey, 0x42)
	bth.PutICRC(body[size:], crc.UpdateBody(body[:size]))
	return b
}

// floodable is a Port whose driver drops early during a flood only.
type floodable struct {
	link.Port
	floods *int
}

func (p floodable) Filter(link.MADLimit) (link.Filter, error) { return p, nil }
func (p floodable) Admit(bth.QPN, bth.GID)                    {}
func (p floodable) Pause(bth.QPN)                             {}
func (p floodable) Forget(bth.QPN)                            {}
func (p floodable) Drops() link.FilterDrops                   { return link.FilterDrops{} }
func (p floodable) Flooded()                                  { *p.floods++ }

// TestFlooded: the device reports a flood of strange packets to the driver, even if it arrives at another shard than that
// of its queue pair.
func TestFlooded(t *testing.T) {
	withoutEarlyDrop(t)
	for shard := range 2 {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.multi("10.0.0.1", 2, func([]byte) int { return 0 })
			c.Polled = true
			port, floods := &feeder{Port: c.Ports[0]}, 0
			c.Ports[0] = floodable{port, &floods}
			d := n.open(c)
			u := newUDOn(t, d, shard, testQKey)
			path := newAttacker(n, d).path("10.0.0.66")
			const each = 2048 // this many in 10 ms are a flood
			for i := range each {
				if port.frames = append(port.frames, link.Frame{Data: datagram(path, port.Info().Layout, u.qp.Num(), i)}); len(port.frames) == link.Batch {
					if floods != 0 {
						t.Errorf("shard %d: told of a flood after %d packets", shard, i)
					}
					for d.Progress() {
					}
				}
			}
			if got := d.Counters().UDNoReceive; got != each || floods != 1 {
				t.Errorf("shard %d: %d packets without a receive, told of %d floods; want %d and 1", shard, got, floods, each)
			}
		})
	}
}

// TestNotFlooded: the device does not report floods that the driver could not drop: datagrams to a group, and datagrams
// that are too long for the receive.
func TestNotFlooded(t *testing.T) {
	withoutEarlyDrop(t)
	for _, toGroup := range []bool{true, false} {
		bubble(t, func(t *testing.T) {
			n := newNetwork(t)
			c := n.config("10.0.0.1")
			c.Polled = true
			port, floods := &feeder{Port: c.Ports[0]}, 0
			c.Ports[0] = floodable{port, &floods}
			d := n.open(c)
			u := newUD(t, d)
			path, to := newAttacker(n, d).path("10.0.0.66"), u.qp.Num()
			if toGroup {
				config := path.Config()
				config.Dst, to = groupGID("239.1.2.3"), roce.QPNMulticast
				check(t, u.qp.AttachMulticast(config.Dst))
				path = ok(frame.NewPath(config))(t)
			} else {
				check(t, u.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{u.mr.SGE(udHalf, roce.GRHLen+1)}}))
			}
			const each = 4096
			for i := range each {
				if port.frames = append(port.frames, link.Frame{Data: datagram(path, port.Info().Layout, to, i)}); len(port.frames) == link.Batch {
					d.Progress()
				}
			}
			if got := d.Counters().UDNoReceive; got != each || floods != 0 {
				t.Errorf("to a group %v: %d packets without a receive, told of %d floods; want %d and 0", toGroup, got, floods, each)
			}
		})
	}
}

// refusing is a Port whose method Filter fails.
type refusing struct{ link.Port }

func (refusing) Filter(link.MADLimit) (link.Filter, error) { return nil, link.ErrUnsupported }

// TestEarlyDropRefused: a device works on a port whose Filter fails, even if that port wraps one that could drop early.
func TestEarlyDropRefused(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetworkOf(t, mem.Config{MTU: 4200})
		c := n.config("10.0.0.1")
		filtered, f := linktest.Filtered(c.Ports)
		c.Ports = []link.Port{refusing{filtered[0]}}
		a, b := n.connected(c)
		a.post(roce.Write, 0, 100, b, 0)
		a.wait()
		if calls, _ := f.Calls(); len(calls) != 0 {
			t.Errorf("calls %q", calls)
		}
	})
}

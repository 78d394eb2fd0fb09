package scenario_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
)

// attacker is another host on the switch that sends any packets to a victim.
type attacker struct {
	t      testing.TB
	port   link.Port
	victim *roce.Device
}

func newAttacker(n *network, victim *roce.Device) *attacker {
	return &attacker{n.t, n.port("10.0.0.66"), victim}
}

// path leads to the victim and pretends to come from an address.
func (a *attacker) path(from string) *frame.Path {
	a.t.Helper()
	return ok(frame.NewPath(frame.PathConfig{
		Src: bth.GIDFrom(netip.MustParseAddr(from)), Dst: a.victim.GIDs()[0],
		SrcMAC: a.port.Info().MAC, DstMAC: a.victim.Query().Link.MAC, SrcPort: 0xC000, HopLimit: 64}))(a.t)
}

// send sends n bytes from BTH to ICRC, filled in by f; a right ICRC is added.
func (a *attacker) send(p *frame.Path, n int, f func(b []byte)) {
	a.t.Helper()
	body, crc, room := a.port.Begin(p, n)
	if !room {
		a.t.Fatal("no room")
	}
	clear(body)
	f(body)
	at := n - bth.ICRCLen
	bth.PutICRC(body[at:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:at]))
	a.port.Commit()
	a.port.Flush()
}

// raw sends a frame as it is.
func (a *attacker) raw(data []byte) {
	a.t.Helper()
	path := a.path("10.0.0.66")
	n := max(len(data)-path.HeaderLen(frame.LayoutEthernet), 0)
	if _, _, room := a.port.Begin(path, n); !room {
		a.t.Fatal("no room")
	}
	copy(a.port.Lent(), data)
	mac := a.victim.Query().Link.MAC
	copy(a.port.Lent(), mac[:])
	a.port.Commit()
	a.port.Flush()
}

// TestDrops: packets that no queue pair may get are counted by the first check that they fail.
func TestDrops(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		p := newPeer(t, d, 100)
		evil := newAttacker(n, d)
		mallory := evil.path("10.0.0.66")
		const empty = bth.BTHLen + bth.ICRCLen
		put := func(op bth.Opcode, to roce.QPN, key bth.PKey) func([]byte) {
			return func(b []byte) { bth.PutBTH(b, op, bth.MigReq, 0, key, to, 1) }
		}
		var want roce.DropCounters
		look := func(what string) {
			t.Helper()
			time.Sleep(time.Millisecond)
			if got := d.Counters().Drops; got != want {
				t.Errorf("%s: counted %+v, want %+v", what, got, want)
				want = got
			}
		}
		evil.raw(bytes.Repeat([]byte{0xAA}, 60))
		want.Malformed++
		look("garbage")
		evil.send(mallory, empty, put(0xFF, p.qp.Num(), bth.DefaultPKey))
		want.Malformed++
		look("unknown opcode")
		evil.send(mallory, empty, put(bth.RCWriteOnly, p.qp.Num(), bth.DefaultPKey))
		want.Malformed++
		look("too short for its headers")
		elsewhere := ok(frame.NewPath(frame.PathConfig{Src: mallory.Config().Src, Dst: bth.GIDFrom(netip.MustParseAddr("10.0.0.9")),
			SrcMAC: mallory.Config().SrcMAC, DstMAC: mallory.Config().DstMAC, HopLimit: 1, SrcPort: 1}))(t)
		evil.send(elsewhere, empty, put(bth.RCSendOnly, p.qp.Num(), bth.DefaultPKey))
		want.NotForUs++
		look("another's address")
		for _, q := range []roce.QPN{0, p.qp.Num() + 1, bth.QPNMulticast, p.qp.Num() ^ 0x800000} {
			evil.send(mallory, empty, put(bth.RCSendOnly, q, bth.DefaultPKey))
			want.NoQP++
		}
		look("no queue pair")
		evil.send(mallory, empty, put(bth.RCSendOnly, p.qp.Num(), 0x1234))
		want.PKey++
		look("another partition")
		evil.send(mallory, empty, put(bth.RCSendOnly, bth.QPNGSI, bth.DefaultPKey))
		evil.send(mallory, empty+bth.DETHLen, func(b []byte) { put(bth.UDSendOnly, bth.QPNGSI, bth.DefaultPKey)(b) })
		want.NoMAD += 2
		look("no MAD")
		if got := d.Counters().ICRCErr; got != 0 {
			t.Errorf("%d wrong ICRCs", got)
		}
		body, _, _ := evil.port.Begin(mallory, empty)
		put(bth.RCSendOnly, p.qp.Num(), bth.DefaultPKey)(body)
		evil.port.Commit()
		evil.port.Flush()
		look("wrong ICRC")
		if got := d.Counters().ICRCErr; got != 1 {
			t.Errorf("%d wrong ICRCs, want 1", got)
		}
		for a := cm.AttrREQ; a <= cm.AttrAPR; a++ { // MADs of zeros
			evil.send(mallory, empty+bth.DETHLen+cm.MADLen, func(b []byte) {
				put(bth.UDSendOnly, bth.QPNGSI, bth.DefaultPKey)(b)
				bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
				b[bth.BTHLen+bth.DETHLen+17] = byte(a)
			})
		}
		look("empty MADs")
		if got := d.Counters().CM.Malformed; got == 0 {
			t.Errorf("no malformed MAD was counted")
		}
	})
}

// TestImpossibleSource: a packet from the network whose source is the device itself, or no
// host at all, is dropped and counted, whatever it names. Otherwise a packet with the device's own address could write
// to the memory of a connection of the device with itself, and the connection manager would answer to the broadcast
// address.
func TestImpossibleSource(t *testing.T) {
	withoutEarlyDrop(t)
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		d := n.device("10.0.0.1")
		a, b := newPeer(t, d, 64), newPeer(t, d, 64)
		connect(t, a, b)
		evil := newAttacker(n, d)
		const size = bth.BTHLen + bth.RETHLen + 64 + bth.ICRCLen
		run := uint64(0)
		for _, from := range []string{"10.0.0.1", "0.0.0.0", "255.255.255.255"} {
			path := evil.path(from)
			for i := range 8 { // in a row: those after the first few are recognised as one flow
				evil.send(path, size, func(body []byte) {
					bth.PutBTH(body, bth.RCWriteOnly, bth.MigReq, 0, bth.DefaultPKey, b.qp.Num(), a.psn.Add(i))
					bth.PutRETH(body[bth.BTHLen:], b.mr.Addr(), b.mr.RKey(), 64)
					copy(body[bth.BTHLen+bth.RETHLen:], bytes.Repeat([]byte{0xEE}, 64))
				})
			}
			evil.send(path, bth.BTHLen+bth.DETHLen+cm.MADLen+bth.ICRCLen, func(body []byte) {
				bth.PutBTH(body, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
				bth.PutDETH(body[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
			})
			run += 9
		}
		time.Sleep(time.Millisecond)
		c := d.Counters()
		if c.Drops != (roce.DropCounters{NotForUs: run}) || c.RcvdPkts != 0 || c.WrongPeer != 0 {
			t.Errorf("of %d packets: dropped %+v, executed %d, of a wrong peer %d", run, c.Drops, c.RcvdPkts, c.WrongPeer)
		}
		if !bytes.Equal(b.buf, make([]byte, 64)) {
			t.Error("a stranger has written to the memory of a connection of the device with itself")
		}
		fill(a.buf, 3)
		a.post(roce.Write, 0, 64, b, 0)
		a.wait()
		if !bytes.Equal(a.buf, b.buf) {
			t.Error("the connection does not work")
		}
	})
}

// tap is a port that keeps copies of what is received and sent.
type tap struct {
	link.Port
	frames *[][]byte
}

func (p tap) Recv(fr []link.Frame) (int, error) {
	n, err := p.Port.Recv(fr)
	for _, f := range fr[:n] {
		*p.frames = append(*p.frames, bytes.Clone(f.Data))
	}
	return n, err
}

// TestHostile records all packets that a device receives while it connects, transfers and disconnects. It replays them,
// mutated, from another host while a connection works. They must not affect the connection.
func TestHostile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		var frames [][]byte
		config := n.config("10.0.0.1")
		config.Ports[0] = tap{config.Ports[0], &frames}
		server, client := n.open(config), n.device("10.0.0.2")
		evil := newAttacker(n, server)
		ctx := within(t, time.Hour)
		l := ok(server.Listen(ctx, ":7471", roce.ListenConfig{}))(t)
		go func() {
			for {
				r, err := l.Accept(ctx)
				if err != nil {
					return
				}
				go r.Accept(ctx, roce.AcceptConfig{})
			}
		}()
		const size = 20_000
		a, b := newPeer(t, client, 2*size), newPeer(t, server, size)
		connect(t, a, b)
		work := func() {
			t.Helper()
			fill(a.buf[:size], 1)
			b.recv(0, size)
			a.post(roce.Send, 0, size, nil, 0)
			b.wait()
			a.wait()
			a.post(roce.Write, 0, size, b, 0)
			a.post(roce.Read, size, size, b, 0)
			wr := a.wr(roce.FetchAdd, size, 8, b, 0)
			check(t, a.qp.PostSend(wr))
			for range 3 {
				a.wait()
			}
			if !bytes.Equal(a.buf[size+8:], b.buf[8:]) || !bytes.Equal(a.buf[:size], b.buf) {
				t.Fatal("the data differs")
			}
		}
		for range 3 {
			work()
			c := ok(client.Dial(ctx, serverAddr, roce.DialConfig{}))(t)
			check(t, c.Disconnect(ctx))
			check(t, c.Close())
		}
		recorded := frames
		rng := rand.New(rand.NewPCG(1, 2))
		before := server.Counters()
		const attacks = 20_000
		for i := range attacks {
			f := bytes.Clone(recorded[rng.IntN(len(recorded))])
			mutate(rng, f)
			evil.raw(f)
			if i%100 == 0 {
				work()
			}
		}
		work()
		time.Sleep(time.Second)
		after := server.Counters()
		t.Logf("drops %+v, ICRC %d", after.Drops, after.ICRCErr)
		if n := after.ICRCErr - before.ICRCErr; n == 0 {
			t.Errorf("no wrong ICRC was counted")
		}
		if after.Drops.Malformed == 0 || after.Drops.NoQP == 0 || after.Drops.NotForUs == 0 {
			t.Errorf("drops are not counted: %+v", after.Drops)
		}
		// Connecting still works, too.
		c := ok(client.Dial(ctx, serverAddr, roce.DialConfig{}))(t)
		check(t, c.Disconnect(ctx))
		check(t, c.Close())
		check(t, l.Close())
	})
}

// mutate changes a recorded frame at some place behind the Ethernet header, with or without a right ICRC. The source
// address is never that of the connection's peer.
func mutate(rng *rand.Rand, f []byte) {
	const ip, udp, bthAt = 14, 34, 42
	f[ip+15] = 66 // source address 10.0.0.66
	switch rng.IntN(6) {
	case 0: // anything
		for range 1 + rng.IntN(20) {
			f[ip+rng.IntN(len(f)-ip)] = byte(rng.Uint32())
		}
		if f[ip+15] == 2 {
			f[ip+15] = 66
		}
		return
	case 1: // headers
		f[bthAt+rng.IntN(min(28, len(f)-bthAt))] ^= 1 << rng.IntN(8)
	case 2: // MADs
		f[bthAt+rng.IntN(len(f)-bthAt)] ^= 1 << rng.IntN(8)
	case 3: // another's QPN, a PSN nearby
		f[bthAt+11] += byte(rng.IntN(5))
	case 4: // another's address
		f[ip+19]++
	case 5: // a bit that only the ICRC covers
		seal(f)
		f[bthAt+8+rng.IntN(len(f)-bthAt-8)] ^= 1 << rng.IntN(8)
		return
	}
	seal(f)
}

// seal corrects checksum and ICRC.
func seal(f []byte) {
	const ip, bthAt = 14, 42
	h := f[ip : ip+20]
	h[10], h[11] = 0, 0
	var sum uint32
	for i := 0; i < 20; i += 2 {
		sum += uint32(h[i])<<8 | uint32(h[i+1])
	}
	sum = sum&0xFFFF + sum>>16
	sum = ^(sum&0xFFFF + sum>>16)
	h[10], h[11] = byte(sum>>8), byte(sum)
	masked := bytes.Clone(f[ip:bthAt])
	masked[1], masked[8], masked[10], masked[11] = 0xFF, 0xFF, 0xFF, 0xFF
	masked[26], masked[27] = 0xFF, 0xFF
	crc := bth.CRCSeed.Update(masked)
	at := len(f) - bth.ICRCLen
	bth.PutICRC(f[at:], crc.UpdateBTH(f[bthAt:bthAt+bth.BTHLen]).Update(f[bthAt+bth.BTHLen:at]))
}

// TestFlood: requests from thousands of forged addresses do not take resources from existing connections.
func TestFlood(t *testing.T) {
	bubble(t, func(t *testing.T) {
		n := newNetwork(t)
		server, client := n.device("10.0.0.1"), n.device("10.0.0.2")
		evil := newAttacker(n, client)
		l := ok(server.Listen(context.Background(), ":7471", roce.ListenConfig{}))(t)
		ctx := within(t, time.Hour)
		dialed := make(chan *roce.Conn)
		go func() {
			c, err := client.Dial(ctx, serverAddr, roce.DialConfig{})
			if err != nil {
				t.Error(err)
			}
			dialed <- c
		}()
		r := ok(l.Accept(ctx))(t)
		for i := range 10_000 {
			src := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
			evil.send(evil.path(src.String()), bth.BTHLen+bth.DETHLen+cm.MADLen+bth.ICRCLen, func(b []byte) {
				bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
				bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
			})
			if i%500 == 0 {
				time.Sleep(time.Millisecond)
			}
		}
		// An impostor on another Ethernet address does not get packets for the
		// server.
		evil.send(evil.path("10.0.0.1"), bth.BTHLen+bth.DETHLen+cm.MADLen+bth.ICRCLen, func(b []byte) {
			bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
			bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
		})
		time.Sleep(10 * time.Second) // the REQ is repeated meanwhile
		if rx, _ := evil.port.Recv(make([]link.Frame, 10)); rx > 0 {
			t.Errorf("the attacker got %d packets", rx)
		}
		sc := ok(r.Accept(ctx, roce.AcceptConfig{}))(t)
		c := <-dialed
		check(t, c.Disconnect(ctx))
		<-sc.Done()
	})
}

package qp_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// of40 are the parameters of the paper: a 40 Gb/s port.
var of40 = &qp.DCQCN{LineRate: 40 * qp.Gbps}

var cnp = packet{op: bth.CNP}

const us = time.Microsecond

// TestDCQCNRates walks through the algorithm with the numbers of the paper.
func TestDCQCNRates(t *testing.T) {
	b := newBench(t, pairConfig{cc: of40})
	start := b.net.now
	for i, s := range []struct {
		at           time.Duration
		cnp          bool
		rate, target qp.Rate
		alpha        float64
	}{
		{0, false, 40e9, 40e9, 0},
		{0, true, 20e9, 40e9, 1}, // half, as alpha begins with 1
		{54 * us, false, 20e9, 40e9, 1},
		{55 * us, false, 30e9, 40e9, 255. / 256}, // both timers: fast recovery, and alpha falls
		{110 * us, false, 35e9, 40e9, 0.99220},
		// Rt = 35, Rc = 35(1 - 0.9922/2), alpha = 0.9922·255/256 + 1/256
		{110 * us, true, 17_636_489_869, 35e9, 0.99223},
		{112 * us, true, 17_636_489_869, 35e9, 0.99223}, // sooner than ReduceInterval
		{164 * us, false, 17_636_489_869, 35e9, 0.99223},
		{165 * us, false, 26_318_244_935, 35e9, 0.98836},
		{220 * us, false, 30_659_122_468, 35e9, 0.98450},
		{275 * us, false, 32_829_561_234, 35e9, 0.98065},
		{330 * us, false, 33_914_780_617, 35e9, 0.97682},
		{385 * us, false, 34_477_390_309, 35.04e9, 0.97300}, // the fifth stage: additive increase
		{440 * us, false, 34_778_695_155, 35.08e9, 0.96920},
		{440 * us, true, 17_925_114_949, 34_778_695_155, 0.96932},
		{100 * time.Millisecond, false, 40e9, 40e9, 0}, // released
		{100 * time.Millisecond, true, 20e9, 40e9, 1},  // and begins anew
	} {
		b.net.now = start.Add(s.at)
		if s.cnp {
			b.inject(cnp)
		}
		got := b.Congestion(b.net.now)
		near := func(a, b qp.Rate) bool { return math.Abs(float64(a)-float64(b)) < 1e-5*float64(b) }
		if !got.On || !near(got.Rate, s.rate) || !near(got.Target, s.target) || math.Abs(got.Alpha-s.alpha) > 1e-5 || got.Limited != (s.rate != 40e9) {
			t.Errorf("step %d: %+v, want %+v", i, got, s)
		}
	}
	if b.cnt.CNPsHandled != 5 {
		t.Errorf("%d CNPs handled, want 5", b.cnt.CNPsHandled)
	}
}

// reference is the algorithm as the paper writes it: in floating point, with
// timers that fire.
type reference struct {
	p                        qp.DCQCN
	limited                  bool
	rate, target, alpha      float64
	alphaAt, timerAt, cutAt  mono.Time
	timer, bytesStage, bytes int
}

func (r *reference) tick(now mono.Time) {
	if r.limited && now.Sub(r.alphaAt) == r.p.AlphaInterval {
		r.alphaAt = now
		r.alpha *= 1 - float64(r.p.Gain)/1024
	}
	if r.limited && now.Sub(r.timerAt) == r.p.IncreaseInterval {
		r.timerAt = now
		r.timer++
		r.increase()
	}
}

func (r *reference) sent(n int) {
	if !r.limited {
		return
	}
	if r.bytes += n; r.bytes >= int(r.p.IncreaseBytes) {
		r.bytes -= int(r.p.IncreaseBytes)
		r.bytesStage++
		r.increase()
	}
}

func (r *reference) increase() {
	lo, hi, f := min(r.timer, r.bytesStage), max(r.timer, r.bytesStage), r.p.FastRecovery
	if hi >= f {
		if lo > f {
			r.target += float64(lo-f) * float64(r.p.HyperIncrease)
		} else {
			r.target += float64(r.p.AdditiveIncrease)
		}
	}
	r.target = min(r.target, float64(r.p.LineRate))
	r.rate = (r.rate + r.target) / 2
	if r.rate >= float64(r.p.LineRate)*1023/1024 {
		r.limited = false
	}
}

func (r *reference) cnp(now mono.Time) {
	if !r.limited {
		*r = reference{p: r.p, limited: true, rate: float64(r.p.LineRate), alpha: 1, cutAt: -1 << 40}
	}
	if now.Sub(r.cutAt) < r.p.ReduceInterval {
		return
	}
	g := float64(r.p.Gain) / 1024
	r.target = r.rate
	r.rate = max(r.rate*(1-r.alpha/2), float64(r.p.MinRate))
	r.alpha = (1-g)*r.alpha + g
	r.alphaAt, r.timerAt, r.cutAt = now, now, now
	r.timer, r.bytesStage, r.bytes = 0, 0, 0
}

// TestDCQCNReference drives the engine and the reference with the same CNPs and packets, at random. A second engine
// computes its rate at every step, the first one rarely. Both must have the same rate: an engine may make up for its
// timers late.
func TestDCQCNReference(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 7))
		p := qp.DCQCN{LineRate: qp.Rate(1+rng.IntN(100)) * qp.Gbps, IncreaseBytes: uint64(10_000 + rng.IntN(1_000_000)),
			FastRecovery: 1 + rng.IntN(6), Gain: uint16(1 + rng.IntN(100))}
		if seed%2 == 0 {
			p.AdditiveIncrease = p.LineRate / 10000
		}
		lazy := newBench(t, pairConfig{cc: &p, typ: qp.UC, mtu: bth.MTU4096})
		eager := newBench(t, pairConfig{cc: &p, typ: qp.UC, mtu: bth.MTU4096})
		_, m := lazy.region(t, 4096)
		_, m2 := eager.region(t, 4096)
		ref := &reference{p: p.WithDefaults()}
		quiet := 0
		for now := mono.Time(1); now < 60_000_000; now += 1000 {
			lazy.net.now, eager.net.now = now, now
			ref.tick(now)
			if quiet--; quiet < 0 {
				lazy.inject(cnp)
				eager.inject(cnp)
				ref.cnp(now)
				if quiet = rng.IntN(100); rng.IntN(20) == 0 {
					quiet = rng.IntN(20_000)
				}
			}
			if rng.IntN(8) == 0 && len(lazy.out) == 0 && lazy.NextTimeout() == mono.Never && eager.NextTimeout() == mono.Never {
				lazy.post(send(m, 4096))
				eager.post(send(m2, 4096))
				drain(lazy.send)
				drain(eager.send)
			}
			for _, b := range []*bench{lazy, eager} {
				if b.NextTimeout() <= now {
					b.HandleTimeout(now)
					b.collect()
				}
			}
			eager.sent()
			for range lazy.sent() {
				ref.sent(4096 + 14 + 20 + 8 + 12 + 4 + 24)
			}
			state := eager.Congestion(now)
			if state.Rate < p.WithDefaults().MinRate || state.Rate > p.LineRate || state.Target < state.Rate {
				t.Fatalf("seed %d, %v: %+v", seed, now, state)
			}
			if rng.IntN(1000) != 0 {
				continue
			}
			if got := lazy.Congestion(now); got != state {
				t.Fatalf("seed %d, %v: %+v, but %+v of the engine that computes it at every step", seed, now, got, state)
			}
			want := float64(p.LineRate)
			if ref.limited {
				want = ref.rate
			}
			if math.Abs(float64(state.Rate)-want) > want/500 || state.Limited && math.Abs(state.Alpha-ref.alpha) > 0.002 {
				t.Fatalf("seed %d, %v: %+v, the reference has %v (%+v)", seed, now, state, qp.Rate(want), ref)
			}
		}
	}
}

// TestDCQCNMarks: the first marked packet causes a CNP at once, later ones cause one per interval. Acknowledgements
// and packets without a mark cause none.
func TestDCQCNMarks(t *testing.T) {
	for _, typ := range []qp.Type{qp.RC, qp.UC} {
		b, _, _ := server(t, pairConfig{cc: of40, typ: typ})
		start := b.net.now
		op := bth.RCWriteOnly
		if typ == qp.UC {
			op = bth.UCWriteOnly
		}
		psn := e0
		for i, s := range []struct {
			at   time.Duration
			ce   bool
			want bool
		}{
			{0, false, false}, {0, true, true}, {1 * us, true, false}, {49 * us, true, false},
			{80 * us, true, true}, {129 * us, true, false}, {131 * us, false, false}, {132 * us, true, true},
		} {
			b.net.now = start.Add(s.at)
			b.inject(packet{op: op, psn: psn, ce: s.ce})
			psn = psn.Add(1)
			out := b.sent()
			if got := len(out) == 1 && out[0].Op == bth.CNP; got != s.want || len(out) > 1 {
				t.Errorf("%v, step %d: sent %v, want a CNP: %v", typ, i, summary(out), s.want)
			}
		}
		if b.cnt.ECNMarked != 6 || b.cnt.CNPsSent != 3 {
			t.Errorf("%v: %d marked, %d CNPs", typ, b.cnt.ECNMarked, b.cnt.CNPsSent)
		}
	}
	b, _, m := client(t, pairConfig{cc: of40})
	b.post(send(m, 4))
	b.sent()
	p := ack(s0)
	p.ce = true
	b.inject(p)
	b.wantSilence()
	if b.cnt.ECNMarked != 1 {
		t.Error("the mark of the acknowledgement is not counted")
	}
}

// TestDCQCNWire: packets are ECN-capable. A CNP looks like that of an adapter, and a CNP of an adapter is accepted.
func TestDCQCNWire(t *testing.T) {
	adapter := captured(t, "52540000000a52540000000b080045c2003c718c4000401191610a0011010a001201000012b7002800008100ffff40000118000000000000000000000000000000000000000082fd002a")
	for _, v6 := range []bool{false, true} {
		for _, ect1 := range []bool{false, true} {
			c := *of40
			c.ECT1 = ect1
			ecn := map[bool]uint8{false: 2, true: 1}[ect1]
			b, _, m := client(t, pairConfig{cc: &c, v6: v6})
			b.post(send(m, 4))
			if p := b.want(bth.RCSendOnly, s0); p.TrafficClass != ecn {
				t.Errorf("traffic class %#x", p.TrafficClass)
			}
			b.inject(packet{op: bth.RCWriteOnly, psn: b.attr().RQPSN, ce: true, ack: true})
			out := b.sent() // Commit has checked their ICRCs
			if len(out) != 2 || out[0].Op != bth.CNP || out[1].Op != bth.RCAck {
				t.Fatalf("sent %v", summary(out))
			}
			p := out[0]
			if p.TrafficClass != 48<<2|ecn || !p.BECN() || p.FECN() || p.DestQPN() != b.DestQPN() || p.Src != b.peerSees() {
				t.Errorf("CNP %+v", p)
			}
			same := slices.Clone(adapter.Data[:bth.BTHLen+bth.CNPReservedLen])
			copy(same[5:8], p.Data[5:8]) // the queue pair
			if !slices.Equal(p.Data[:len(same)], same) {
				t.Errorf("CNP % x, of an adapter % x", p.Data, adapter.Data)
			}
		}
	}
	b := newBench(t, pairConfig{cc: of40})
	p := *adapter
	p.Src, p.Dst = b.Path().Config().Dst, b.Path().Config().Src
	b.HandlePacket(b.net.now, &p)
	if b.cnt.CNPsHandled != 1 {
		t.Error("the CNP of an adapter is not taken")
	}
}

func (b *bench) attr() qp.Attr { a, _ := b.Query(); return a }

func (b *bench) peerSees() bth.GID { return b.Path().Config().Src }

// TestDCQCNRefused: CNPs that are not for a queue pair change nothing, and
// neither do marks while congestion control is off.
func TestDCQCNRefused(t *testing.T) {
	b := newBench(t, pairConfig{})
	b.inject(cnp)
	b.inject(packet{op: bth.RCSendOnly, ce: true})
	for _, p := range b.sent() {
		if p.Op == bth.CNP {
			t.Error("a CNP of a queue pair without congestion control")
		}
	}
	if b.cnt.CNPsIgnored != 1 || b.cnt.ECNMarked != 1 || b.Congestion(1) != (qp.CongestionState{}) || b.Path().Config().TrafficClass != 0 {
		t.Errorf("off: %+v, %+v", b.cnt, b.Congestion(1))
	}
	b = newBench(t, pairConfig{cc: of40})
	b.injectOver(over(b.peer, b.node, 9), cnp)
	if b.cnt.WrongPeer != 1 {
		t.Error("a CNP from elsewhere is not counted")
	}
	if err := b.Modify(&qp.Attr{State: qp.Err}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	b.inject(cnp)
	if b.cnt.WrongState != 1 || b.cnt.CNPsHandled != 0 || b.Congestion(b.net.now).Limited {
		t.Errorf("in ERR: %+v", b.cnt)
	}
	d := datagrams(t, false)
	d.HandlePacket(1, build(t, d.peer.path, d.Num(), cnp))
	if d.cnt.CNPsIgnored != 1 {
		t.Error("a CNP for a datagram queue pair is not counted")
	}
}

// TestDCQCNReset: a queue pair that is used again knows of no congestion.
func TestDCQCNReset(t *testing.T) {
	b := newBench(t, pairConfig{cc: of40})
	b.inject(cnp)
	if !b.Congestion(b.net.now).Limited {
		t.Fatal("the CNP did nothing")
	}
	if err := b.Modify(&qp.Attr{State: qp.Reset}, qp.AttrState); err != nil {
		t.Fatal(err)
	}
	if got := b.Congestion(b.net.now); got.Limited || !got.On {
		t.Errorf("after RESET: %+v", got)
	}
}

// TestDCQCNPace: in any time, a queue pair sends no more than the rate and two batches allow. This holds for RC and
// UC requests and for responses of READs. It also uses the rate.
func TestDCQCNPace(t *testing.T) {
	slow := &qp.DCQCN{LineRate: 10 * qp.Gbps, AlphaInterval: time.Hour, IncreaseInterval: time.Hour, IncreaseBytes: 1 << 40}
	const wire = 1024 + 14 + 20 + 8 + 12 + 4 + 24
	for _, c := range []struct {
		name  string
		start func() *bench
		ack   bool
		cnps  int
	}{
		{"SEND", func() *bench { b, _, m := client(t, pairConfig{cc: slow}); return b.slowed(1, send(m, 60<<10)) }, true, 1},
		{"SEND/slower", func() *bench { b, _, m := client(t, pairConfig{cc: slow}); return b.slowed(8, send(m, 60<<10)) }, true, 8},
		{"UC", func() *bench {
			b, _, m := client(t, pairConfig{cc: slow, typ: qp.UC})
			return b.slowed(2, send(m, 60<<10))
		}, false, 2},
		{"READ", func() *bench {
			b, _, _ := server(t, pairConfig{cc: slow})
			_, m := b.region(t, 60<<10)
			b.slowed(3)
			b.inject(packet{op: bth.RCReadRequest, psn: e0, va: m.Addr(), key: m.RKey(), length: 60 << 10})
			return b
		}, false, 3},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := c.start()
			rate := slow.LineRate >> c.cnps
			if got := b.Congestion(b.net.now).Rate; got != rate {
				t.Fatalf("rate %v, want %v", got, rate)
			}
			start, packets := b.net.now, 0
			for range 1000 {
				out := b.sent()
				packets += len(out)
				elapsed := b.net.now.Sub(start)
				allowed := int(uint64(elapsed+2*50*us)*uint64(rate)/8e9)/wire + 2
				if packets > allowed {
					t.Fatalf("%d packets after %v, at %v no more than %d", packets, elapsed, rate, allowed)
				}
				if c.ack && len(out) > 0 {
					last := out[len(out)-1]
					if !last.AckReq() {
						t.Fatalf("the last packet of a batch, PSN %v, asks for no acknowledgement", last.PSN())
					}
					b.inject(ack(last.PSN()))
				}
				if packets == 60 {
					break
				}
				b.net.now = b.NextTimeout()
				b.HandleTimeout(b.net.now)
				b.collect()
			}
			if least := time.Duration(uint64(packets) * wire * 8e9 / uint64(rate)); b.net.now.Sub(start) > least+50*us {
				t.Errorf("%d packets took %v, at %v it should be %v", packets, b.net.now.Sub(start), rate, least)
			}
			b.net.now += 1e6
			b.HandleTimeout(b.net.now)
			b.collect()
			b.wantSilence()
			if b.NextTimeout() != mono.Never {
				t.Errorf("a timer runs until %v with nothing to send", b.NextTimeout())
			}
		})
	}
}

// TestDCQCNRepair: congestion control paces a request or a part of a READ that a repair sends again, like any other
// request.
func TestDCQCNRepair(t *testing.T) {
	slow := &qp.DCQCN{LineRate: 10 * qp.Gbps, AlphaInterval: time.Hour, IncreaseInterval: time.Hour, IncreaseBytes: 1 << 40} // down to 10 Mb/s
	paced := func(b *bench, least time.Duration, want line) {
		b.t.Helper()
		b.wantSilence()
		start := b.net.now
		for i := 0; i < 100 && len(b.out) == 0; i++ {
			b.net.now = b.NextTimeout()
			b.HandleTimeout(b.net.now)
			b.collect()
		}
		b.wantSent(want)
		if took := b.net.now.Sub(start); took < least {
			b.t.Errorf("it was sent after %v, want at least %v", took, least)
		}
	}
	t.Run("single", func(t *testing.T) { // a packet takes 885 µs, and a batch of 50 µs is saved
		b, _, m := client(t, pairConfig{cc: slow, repair: true, repairB: true, timeout: 14})
		b.timed(send(m, 1), s0)
		b.post(qp.SendWR{Opcode: qp.Write, SG: []mr.SGE{m.SGE(0, 8192)}, RemoteAddr: 0x1000, RKey: 0x77})
		b.sent()
		b.slowed(12)
		b.inject(nak(bth.NAKSequence, s0.Add(2)))
		b.wantSent(line{bth.RCWriteMiddle, s0.Add(2)})
		b.after(20 * us)
		b.inject(nak(bth.NAKSequence, s0.Add(5)))
		paced(b, 800*us, line{bth.RCWriteMiddle, s0.Add(5)})
	})
	t.Run("READ", func(t *testing.T) { // a request takes 78 µs
		b, _, data, m := repairing(t, pairConfig{cc: slow, timeout: 14})
		for range 3 {
			b.post(read(m, 2048))
		}
		b.sent()
		b.slowed(12)
		b.inject(part(bth.RCReadResponseFirst, data, 6144, 0))
		b.inject(part(bth.RCReadResponseLast, data, 6144, 5))
		b.wantSent(line{bth.RCReadRequest, s0.Add(1)}, line{bth.RCReadRequest, s0.Add(2)})
		paced(b, 100*us, line{bth.RCReadRequest, s0.Add(4)})
	})
	t.Run("probe", func(t *testing.T) { // a packet takes 885 µs, and the batch is used up
		b, _, m := client(t, pairConfig{cc: slow, timeout: 14})
		b.timed(send(m, 1), s0)
		b.post(send(m, 1024))
		b.sent()
		b.slowed(12)
		b.after(700 * us)
		b.post(send(m, 1024))
		b.post(send(m, 1024))
		b.wantSent(line{bth.RCSendOnly, s0.Add(2)})
		b.net.now = b.NextTimeout()
		b.HandleTimeout(b.net.now)
		b.collect()
		paced(b, 100*us, line{bth.RCSendOnly, s0.Add(1)})
	})
}

// slowed halves the rate of an engine n times and posts.
func (b *bench) slowed(n int, wrs ...qp.SendWR) *bench {
	for range n {
		b.inject(cnp)
		b.net.now = b.net.now.Add(5 * us)
	}
	for _, wr := range wrs {
		b.post(wr)
	}
	return b
}

// TestDCQCNUrgent: acknowledgements, NAKs and CNPs do not wait for the pacer.
func TestDCQCNUrgent(t *testing.T) {
	b, _, m := client(t, pairConfig{cc: of40, psnB: e0})
	b.slowed(20, send(m, 60<<10))
	if n := len(b.sent()); n == 0 || n == 60 || b.NextTimeout() == mono.Never {
		t.Fatalf("%d packets left at once, timer %v", n, b.NextTimeout())
	}
	b.inject(packet{op: bth.RCWriteOnly, psn: e0, ack: true, ce: true})
	if got := b.sent(); len(got) != 2 || got[0].Op != bth.CNP || got[1].Op != bth.RCAck {
		t.Errorf("sent %v", summary(got))
	}
}

// TestDCQCNFlood: a million CNPs at once neither stop a queue pair nor keep it
// down.
func TestDCQCNFlood(t *testing.T) {
	b, _, m := client(t, pairConfig{cc: of40})
	p := build(t, b.peer.path, b.Num(), cnp)
	for range 1_000_000 {
		b.net.now += 10
		b.HandlePacket(b.net.now, p)
	}
	if got := b.Congestion(b.net.now).Rate; got != 40*qp.Mbps {
		t.Errorf("rate %v, want the least", got)
	}
	b.post(send(m, 3000))
	for len(b.out) < 3 {
		b.net.now = b.NextTimeout()
		b.HandlePacket(b.net.now, p)
		b.HandleTimeout(b.net.now)
		b.collect()
	}
	if b.net.now > 12_000_000 { // 3 of 1106 bytes at 40 Mb/s take 0.7 ms
		t.Errorf("three packets have left at %v", b.net.now)
	}
	if got := b.Congestion(b.net.now.Add(time.Second)); got.Limited {
		t.Errorf("a second later: %+v", got)
	}
}

// TestDCQCNErrors: parameters that make no sense are refused with EINVAL.
func TestDCQCNErrors(t *testing.T) {
	for i, c := range []qp.DCQCN{
		{}, {LineRate: 1 << 60}, {LineRate: 1, MinRate: 2}, {LineRate: qp.Gbps, CNPDSCP: 64}, {LineRate: qp.Gbps, Gain: 1024},
		{LineRate: qp.Gbps, CNPInterval: -1}, {LineRate: qp.Gbps, AlphaInterval: 1}, {LineRate: qp.Gbps, IncreaseInterval: 999},
		{LineRate: qp.Gbps, Batch: -1}, {LineRate: qp.Gbps, FastRecovery: -1}, {LineRate: qp.Gbps, FastRecovery: 1 << 30},
		{LineRate: qp.Gbps, AdditiveIncrease: 1}, {LineRate: qp.Gbps, HyperIncrease: 2 * qp.Gbps},
	} {
		if err := c.Validate(); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d: %+v: %v", i, c, err)
		}
		cfg := qp.Config{Type: qp.RC, Congestion: &c}
		if _, err := qp.New(cfg); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("%d: New: %v", i, err)
		}
	}
	for _, r := range []qp.Rate{10_000, qp.Mbps, 10 * qp.Gbps, 10_000 * qp.Gbps} {
		if err := (&qp.DCQCN{LineRate: r}).Validate(); err != nil {
			t.Errorf("line rate %v: %v", r, err)
		}
	}
	if got := fmt.Sprint(40*qp.Gbps, " ", 2500*qp.Mbps, " ", 40*qp.Mbps); got != "40 Gb/s 2.5 Gb/s 40 Mb/s" {
		t.Error(got)
	}
}

// TestDCQCNNoAllocations: neither marks, nor CNPs, nor the pacer, nor a change
// over to the alternate path allocate anything.
func TestDCQCNNoAllocations(t *testing.T) {
	na, nb, w := newPair(t, 1, impairment{}, pairConfig{cc: of40})
	wa, wb := newWire(na, true), newWire(nb, true)
	_, local := na.region(t, 30_000)
	_, remote := nb.region(t, 30_000)
	wr := write(local, remote)
	marked := build(t, na.path, nb.Num(), packet{op: bth.RCWriteOnly, psn: 0x7FFFFF, ce: true})
	wcs := make([]cq.WC, 4)
	if n := testing.AllocsPerRun(100, func() {
		nb.HandlePacket(w.now, marked) // a duplicate
		must(0, na.PostSend(&wr))
		for na.send.Poll(wcs) == 0 {
			w.now = min(w.now+1e6, na.NextTimeout())
			na.HandleTimeout(w.now)
			na.Emit(w.now, wa)
			wa.deliver(nb)
			nb.Emit(w.now, wb)
			wb.deliver(na)
		}
	}); n != 0 {
		t.Errorf("%v allocations per WRITE", n)
	}
	if na.cnt.CNPsHandled < 100 || nb.cnt.CNPsSent != na.cnt.CNPsHandled {
		t.Errorf("%d CNPs sent, %d handled", nb.cnt.CNPsSent, na.cnt.CNPsHandled)
	}
	var movers []*mover // one for warming up
	for range 2 {
		v := newMover(t, qp.Armed, pairConfig{retry: none, cc: of40})
		v.post(send(v.m, 1))
		v.events = make([]qp.EventType, 0, 1)
		movers = append(movers, v)
	}
	v := movers[0]
	if n := testing.AllocsPerRun(1, func() {
		movers[0].HandleTimeout(movers[0].NextTimeout())
		movers = movers[1:]
	}); n > 1 || v.MigState() != qp.Migrated { // one: it is the first incident of the queue pair
		t.Errorf("%v allocations, %v", n, v.MigState())
	}
	v.inject(packet{op: bth.RCWriteOnly, psn: v.attr().RQPSN, ce: true})
	if out := v.sent(); len(out) < 2 || out[1].Op != bth.CNP || out[1].Dst != v.Path().Config().Dst {
		t.Errorf("sent %v", summary(out))
	}
	if v.Path().Config().TrafficClass != 2 {
		t.Errorf("the alternate path has traffic class %#x", v.Path().Config().TrafficClass)
	}
}

func write(from, to *mr.MR) qp.SendWR {
	return qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, SG: []mr.SGE{from.SGE(0, from.Length())}, RemoteAddr: to.Addr(), RKey: to.RKey()}
}

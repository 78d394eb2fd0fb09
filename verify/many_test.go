package verify

import (
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link/pcap"
)

// crowd generates the packets of many connections between two hosts: SENDs of one packet, and their acknowledgements. One SEND in a
// hundred is lost before the place of the capture, and is repeated after a NAK.
type crowd struct {
	s       *scene
	rand    *rand.Rand
	conns   []crowdConn
	mute    bool // the capture has no responses
	packets int
	use     func(rec *pcap.Record) // called with each packet
}

// crowdConn is one of the connections.
type crowdConn struct {
	psn bth.PSN
	msn bth.MSN
}

func newCrowd(t testing.TB, n int, use func(*pcap.Record)) *crowd {
	c := &crowd{s: emptyScene(t), rand: rand.New(rand.NewPCG(1, 2)), conns: make([]crowdConn, n), use: use}
	for i := range c.conns {
		c.conns[i].psn = bth.PSN(c.rand.Uint32()) & bth.PSNMask
	}
	return c
}

// emit makes a packet.
func (c *crowd) emit(from, conn int, psn bth.PSN, op bth.Opcode, f bth.Fields) {
	c.packets++
	f.BTH = bth.BTHFields{Op: op, PSN: psn, PKey: bth.DefaultPKey, Flags: bth.MigReq, DestQPN: bth.QPN(0x1000 + 0x10000*from + conn)}
	p := &step{from: from, f: f, id: uint16(c.packets)}
	c.use(&pcap.Record{Time: time.Unix(1000, 0).Add(time.Duration(c.packets) * time.Microsecond), Data: c.s.frame(p, from), LinkType: pcap.Ethernet, Number: c.packets})
}

// round makes a SEND of each connection, and its acknowledgement.
func (c *crowd) round() {
	payload := bytesOf(64)
	for i := range c.conns {
		k := &c.conns[i]
		sent := k.psn
		lost := c.rand.IntN(100) == 0
		if !lost {
			c.emit(active, i, sent, bth.RCSendOnly, bth.Fields{Payload: payload})
		} else { // the next SEND shows the gap
			c.emit(active, i, sent.Add(1), bth.RCSendOnly, bth.Fields{Payload: payload})
			if !c.mute {
				c.emit(passive, i, sent, bth.RCAck, bth.Fields{AETH: &bth.AETHFields{Syndrome: bth.NAKSequence, MSN: k.msn}})
			}
			for n := range 2 {
				c.emit(active, i, sent.Add(n), bth.RCSendOnly, bth.Fields{Payload: payload})
			}
			k.psn, k.msn, sent = k.psn.Add(1), k.msn.Add(1), sent.Add(1)
		}
		k.psn, k.msn = k.psn.Add(1), k.msn.Add(1)
		if !c.mute {
			c.emit(passive, i, sent, bth.RCAck, bth.Fields{AETH: &bth.AETHFields{Syndrome: bth.AckNoCredits, MSN: k.msn}})
		}
	}
}

// TestManyConnections: the Verifier tells thousands of connections apart, with and without responses.
func TestManyConnections(t *testing.T) {
	for _, mute := range []bool{false, true} {
		v, _ := New(Config{})
		c := newCrowd(t, 2000, func(rec *pcap.Record) { v.Add(0, rec) })
		c.mute = mute
		for range 4 {
			c.round()
		}
		r := v.Done()
		complain(t, "many connections", r)
		want := len(c.conns)
		if mute {
			want = 0
		}
		paired := 0
		for _, h := range r.Halves {
			if h.Responses > 0 {
				paired++
			}
		}
		if len(r.Halves) != len(c.conns) || paired != want {
			t.Errorf("mute %v: %d connections, %d with responses, want %d and %d", mute, len(r.Halves), paired, len(c.conns), want)
		}
	}
}

// BenchmarkManyConnections judges a million packets of five thousand connections.
func BenchmarkManyConnections(b *testing.B) {
	for _, bb := range []struct {
		name string
		mute bool
	}{{"both ways", false}, {"one way", true}} {
		b.Run(bb.name, func(b *testing.B) {
			var recs []pcap.Record
			c := newCrowd(b, 5000, func(rec *pcap.Record) { recs = append(recs, *rec) })
			c.mute = bb.mute
			for c.packets < 1_000_000 {
				c.round()
			}
			runtime.GC()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			b.ResetTimer()
			for range b.N {
				v, _ := New(Config{})
				for i := range recs {
					v.Add(0, &recs[i])
				}
				runtime.GC()
				runtime.ReadMemStats(&after)
				b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/(1<<20), "MiB")
				v.Done()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(recs)), "ns/packet")
		})
	}
}

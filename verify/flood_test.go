package verify

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net/netip"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/pcap"
)

// flood judges packets of two hosts one by one. Their times are a microsecond apart.
type flood struct {
	*scene
	v *Verifier
	n int
}

func newFlood(t *testing.T, cfg Config) *flood {
	t.Helper()
	v, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &flood{scene: emptyScene(t), v: v}
}

// judge judges a packet, and removes it from the scene.
func (f *flood) judge(p *step) {
	f.steps = f.steps[:0]
	f.n++
	p.id = uint16(f.n)
	f.v.Add(0, &pcap.Record{Time: time.Unix(1000, 0).Add(time.Duration(f.n) * time.Microsecond), Data: f.frame(p, p.from), LinkType: pcap.Ethernet, Number: f.n})
}

// shake adds the handshake of connection n.
func (f *flood) shake(n int, a, b bth.QPN) {
	id, peer, tid := cm.CommID(2*n+1), cm.CommID(2*n+2), uint64(n+1)
	f.judge(f.datagram("req", active, f.connect(tid, id, a)))
	f.judge(f.datagram("rep", passive, &cm.REP{Header: cm.Header{TID: tid}, LocalID: peer, RemoteID: id, QPN: b, StartingPSN: start[active],
		ResponderResources: 4, InitiatorDepth: 4, TargetAckDelay: 3}))
	f.judge(f.datagram("rtu", active, &cm.RTU{Header: cm.Header{TID: tid}, LocalID: id, RemoteID: peer}))
}

// part adds the disconnect of connection n.
func (f *flood) part(n int, b bth.QPN) {
	id, peer, tid := cm.CommID(2*n+1), cm.CommID(2*n+2), 1<<32+uint64(n)
	f.judge(f.datagram("dreq", active, &cm.DREQ{Header: cm.Header{TID: tid}, LocalID: id, RemoteID: peer, RemoteQPN: b}))
	f.judge(f.datagram("drep", passive, &cm.DREP{Header: cm.Header{TID: tid}, LocalID: peer, RemoteID: id}))
}

// say adds a message and its acknowledgement in each direction of a connection.
func (f *flood) say(a, b bth.QPN) {
	for from, to := range []bth.QPN{b, a} {
		q := f.request("", from, 0, bth.RCSendOnly, bth.Fields{})
		q.f.BTH.DestQPN = to
		f.judge(q)
		r := f.response("", 1-from, 0, bth.RCAck, bth.AckNoCredits, 1, bth.Fields{})
		r.f.BTH.DestQPN = a + b - to
		f.judge(r)
	}
}

// TestManyHandshakes: a capture has very many successive connections, also with the same queue pair numbers. The state of an earlier
// connection causes no findings about a later one, and a broken rule in the last connection is found.
func TestManyHandshakes(t *testing.T) {
	const pairs = 100
	f := newFlood(t, Config{Complete: true})
	total := maxExchanges + 150
	for n := range total {
		a, b := bth.QPN(0x100+n%pairs), bth.QPN(0x1000+n%pairs)
		f.shake(n, a, b)
		f.say(a, b)
		f.part(n, b)
		if n == total-1 { // a request after the end
			f.n += 200_000
			q := f.request("", passive, 1, bth.RCSendOnly, bth.Fields{})
			q.f.BTH.DestQPN = a
			f.judge(q)
		}
	}
	if n := len(f.v.cm.exchanges); n > 2*maxExchanges {
		t.Errorf("%d ends of connections are kept", n)
	}
	all, byRule := unexplained(f.v.Done())
	if len(all) != 1 || byRule[cmOver] != 1 {
		t.Errorf("%v; found %v", byRule, all[:min(len(all), 3)])
	}
}

// TestManyReplies: very many REPs with different IDs take bounded memory.
func TestManyReplies(t *testing.T) {
	f := newFlood(t, Config{Complete: true})
	f.judge(f.datagram("req", active, f.connect(1, 1, 0x11)))
	for n := range 4 * maxExchanges {
		f.judge(f.datagram("rep", passive, &cm.REP{Header: cm.Header{TID: uint64(n + 1)}, LocalID: cm.CommID(n + 1), RemoteID: 1, QPN: 0x22, StartingPSN: start[active]}))
	}
	if n := len(f.v.cm.exchanges); n > 2*maxExchanges {
		t.Errorf("%d ends of connections are kept", n)
	}
}

// TestLongReads: READs without responses that span very many PSNs take bounded memory.
func TestLongReads(t *testing.T) {
	f := newFlood(t, Config{})
	for n := range 400 {
		q := f.request("", active, (n/2)<<22, bth.RCReadRequest, bth.Fields{RETH: reth(0, 1<<30)})
		q.f.BTH.DestQPN = bth.QPN(0x100 + n%2)
		f.judge(q)
	}
	entries := 0
	for _, all := range f.v.unpaired {
		entries += len(all)
	}
	if entries > 2*2*maxBlocks {
		t.Errorf("%d places are kept for the answers of two connections", entries)
	}
}

// TestOneNumberManyHosts: very many hosts have a queue pair with the same number. A packet to that number is compared with a bounded number of flows.
func TestOneNumberManyHosts(t *testing.T) {
	f := newFlood(t, Config{})
	for i := range maxFlows {
		src := bth.GIDFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}))
		path, err := frame.NewPath(frame.PathConfig{Src: src, Dst: addresses[passive], SrcPort: 0xC123})
		if err != nil {
			t.Fatal(err)
		}
		q := f.request("", active, i, bth.RCSendOnly, bth.Fields{})
		q.path = path
		f.judge(q)
	}
	if n := len(f.v.byQPN[numbers[passive]]); n > maxAlike {
		t.Errorf("%d connections are compared with each packet", n)
	}
}

// TestStrangeTimes: the report can be printed if the file has times that cannot be formatted.
func TestStrangeTimes(t *testing.T) {
	le := binary.LittleEndian
	for _, offset := range []uint64{0, 1 << 40, -1 << 40 & math.MaxUint64, 1 << 62, 1 << 63} {
		for _, ticks := range []uint32{0, 1 << 8, math.MaxUint32} {
			s := rightScene(t)
			s.step("send-middle").f.Payload = bytesOf(512)
			body := le.AppendUint32(nil, 0x1A2B3C4D)
			body = append(body, 1, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF)
			file := block(0x0A0D0D0A, body)
			body = []byte{1, 0, 0, 0, 0, 0, 0, 0, 9, 0, 1, 0, 0, 0, 0, 0, 14, 0, 8, 0} // in seconds, if_tsoffset
			file = append(file, block(1, le.AppendUint64(body, offset))...)
			for i, rec := range s.recorded(active) {
				body = le.AppendUint32(le.AppendUint32(make([]byte, 4), ticks), uint32(i))
				body = le.AppendUint32(le.AppendUint32(body, uint32(len(rec.Data))), uint32(len(rec.Data)))
				file = append(file, block(6, append(body, rec.Data...))...)
			}
			r, err := Read(bytes.NewReader(file), Config{})
			if err != nil || len(r.Findings) == 0 {
				t.Fatalf("%d findings, error %v", len(r.Findings), err)
			}
			_, err = json.Marshal(r)
			if err := errors.Join(err, r.WriteText(io.Discard), r.WriteJUnit(io.Discard)); err != nil {
				t.Errorf("offset %#x, seconds %#x: %v", offset, ticks, err)
			}
		}
	}
}

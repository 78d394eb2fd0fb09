package qp_test

import (
	"container/heap"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/qp"
)

// fabric is a network in simulated time whose links have a speed. A packet waits in a queue for the packets before
// it, and is dropped if the queue is full. Everything depends on the seed only, so the figures are exact.
type fabric struct {
	now    mono.Time
	rng    *rand.Rand
	flying hops
	seq    int
	free   [][]byte
	ends   []*end
}

func newFabric(seed uint64) *fabric { return &fabric{now: 1, rng: rand.New(rand.NewPCG(seed, 3))} }

// pipe is one direction of a link, with the queue in front of it.
type pipe struct {
	rate  qp.Rate
	delay time.Duration
	room  int // bytes that may wait; 0: no limit
	loss  float64

	// Packets take one of several lanes by chance: a switch sprays them over paths. A lane
	// adds its delay.
	lanes []time.Duration

	// Marks of ECN-capable packets, by the length of the queue: none up to
	// kmin, then up to pmax at kmax, beyond it all (RED).
	kmin, kmax int
	pmax       float64

	busy             mono.Time // until then
	passed           int       // bytes
	dropped, lost    int       // packets: because the queue was full, and by chance
	marked, most     int       // packets; bytes that waited, at most
	waited, lookedAt uint64    // sum of the bytes that waited, and packets
}

// waiting is how many bytes wait.
func (p *pipe) waiting(now mono.Time) int {
	if p.busy <= now {
		return 0
	}
	return int(uint64(p.busy.Sub(now)) * uint64(p.rate) / 8e9)
}

// hop is a packet that leaves the queue of a pipe, or reaches the next pipe of
// its route, or its end.
type hop struct {
	at     mono.Time
	seq    int   // keeps order among equal times
	leaves *pipe // nil: it reaches
	route  []*pipe
	to     *end
	b      []byte
}

type hops []hop

func (h hops) Len() int { return len(h) }
func (h hops) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].seq < h[j].seq
}
func (h hops) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *hops) Push(x any)   { *h = append(*h, x.(hop)) }
func (h *hops) Pop() any {
	o := *h
	x := o[len(o)-1]
	*h = o[:len(o)-1]
	return x
}

// enter puts a packet into the first pipe of a route.
func (f *fabric) enter(route []*pipe, to *end, b []byte) {
	p := route[0]
	size := len(b) + 24 // preamble, FCS and gap
	queue := p.waiting(f.now)
	p.waited += uint64(queue)
	p.lookedAt++
	if p.room > 0 && queue+size > p.room {
		p.dropped++
		f.free = append(f.free, b)
		return
	}
	p.most = max(p.most, queue+size)
	p.busy = max(p.busy, f.now).Add(time.Duration((uint64(size)*8e9 + uint64(p.rate) - 1) / uint64(p.rate)))
	p.passed += size
	if p.loss > 0 && f.rng.Float64() < p.loss {
		p.lost++
		f.free = append(f.free, b)
		return
	}
	f.fly(hop{at: p.busy, leaves: p, route: route[1:], to: to, b: b})
}

func (f *fabric) fly(h hop) {
	if h.leaves != nil && h.leaves.kmax == 0 { // this queue marks no packets
		if n := len(h.leaves.lanes); n > 0 {
			h.at = h.at.Add(h.leaves.lanes[f.rng.IntN(n)])
		}
		h.at, h.leaves = h.at.Add(h.leaves.delay), nil
	}
	f.seq++
	h.seq = f.seq
	heap.Push(&f.flying, h)
}

// leave marks a packet according to the length of the queue behind it.
func (f *fabric) leave(p *pipe, b []byte) {
	queue := p.waiting(f.now)
	if queue > p.kmin && b[15]&3 != 0 &&
		(queue >= p.kmax || f.rng.Float64() < p.pmax*float64(queue-p.kmin)/float64(p.kmax-p.kmin)) {
		p.marked++
		markIP(b[14:34])
	}
}

// markIP marks a packet by its IP header, as a switch does.
func markIP(ip []byte) {
	if ip[0]>>4 == 6 {
		ip[1] |= 0x30
		return
	}
	ip[1] |= 3
	ip[10], ip[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	sum = sum&0xFFFF + sum>>16
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum&0xFFFF+sum>>16))
}

// end is an engine on the fabric. What it sends takes a route to its peer, the
// first pipe of which is its own card.
type end struct {
	*node
	f       *fabric
	to      *end
	route   []*pipe
	backlog int       // bytes that may wait at the card
	retry   mono.Time // when there is room at the card again
	room    bool
	acts    func() // posts and polls
}

// connect puts two connected nodes on the fabric, with the routes in both directions.
func (f *fabric) connect(a, b *node, there, back []*pipe) (x, y *end) {
	x = &end{node: a, f: f, route: there, backlog: 16 << 10, retry: mono.Never}
	y = &end{node: b, f: f, route: back, backlog: 16 << 10, retry: mono.Never}
	x.to, y.to = y, x
	f.ends = append(f.ends, x, y)
	return x, y
}

func (e *end) Begin(p *frame.Path, n int) ([]byte, bth.CRC, bool) {
	card := e.route[0]
	if card.waiting(e.f.now) > e.backlog {
		e.room = false
		return nil, 0, false
	}
	e.buf = nil
	if k := len(e.f.free); k > 0 {
		e.buf, e.f.free = e.f.free[k-1][:0], e.f.free[:k-1]
	} else {
		e.buf = make([]byte, 0, 4400)
	}
	e.buf = e.buf[:p.HeaderLen(frame.LayoutEthernet)+n]
	e.id++
	body, crc := p.Put(e.buf, frame.LayoutEthernet, n, e.id)
	return body, crc, true
}

func (e *end) Commit() {
	e.f.enter(e.route, e.to, e.buf)
	e.buf = nil
}

// advance handles the deadlines of an end, lets it post and poll, and sends its packets.
func (e *end) advance() {
	if e.NextTimeout() <= e.f.now {
		e.HandleTimeout(e.f.now)
	}
	if e.acts != nil {
		e.acts()
	}
	e.room, e.retry = true, mono.Never
	for e.room && e.Emit(e.f.now, e) {
	}
	if !e.room {
		card := e.route[0]
		e.retry = max(card.busy.Add(-time.Duration(uint64(e.backlog)*8e9/uint64(card.rate))), e.f.now+1)
	}
}

// run simulates until a time, or until done returns true.
func (f *fabric) run(until mono.Time, done func() bool) {
	var p frame.Packet
	for _, e := range f.ends {
		e.advance()
	}
	for done == nil || !done() {
		next, who := mono.Never, (*end)(nil)
		for _, e := range f.ends {
			if at := min(e.NextTimeout(), e.retry); at < next {
				next, who = at, e
			}
		}
		if len(f.flying) > 0 && f.flying[0].at <= next {
			next, who = f.flying[0].at, nil
		}
		if next >= until {
			f.now = max(f.now, min(until, next))
			return
		}
		f.now = max(f.now, next)
		if who != nil {
			who.advance()
			continue
		}
		h := heap.Pop(&f.flying).(hop)
		if p := h.leaves; p != nil {
			f.leave(p, h.b)
			h.leaves, h.at = nil, h.at.Add(p.delay)
			f.fly(h)
			continue
		}
		if len(h.route) > 0 {
			f.enter(h.route, h.to, h.b)
			continue
		}
		if err := p.Parse(h.b, frame.LayoutEthernet); err != nil || !h.to.CheckICRC(&p) {
			panic(fmt.Sprintf("engine built a malformed packet: %v", err))
		}
		h.to.HandlePacket(f.now, &p)
		f.free = append(f.free, h.b)
		h.to.advance()
	}
}

var update = flag.Bool("update", false, "write the golden files in testdata anew")

// golden compares text with a file in testdata.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if string(want) != got {
		t.Errorf("%s differs; if the change is meant, run go test ./qp -run %s -update\ngot\n%s\nwant\n%s", file, t.Name(), got, want)
	}
}

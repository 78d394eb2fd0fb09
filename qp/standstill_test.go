package qp_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mono"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// standstill is for how long an end gets no processor.
const standstill = 100 * time.Millisecond

// machine drives two engines on a network. Either may stand still: until it continues, its packets wait in its
// socket, and its timers are not handled.
type machine struct {
	*network
	ends   [2]*node
	until  [2]mono.Time // when the end continues; 0: it does not stand still
	socket [2][]delivery
}

// stop makes an end stand still from now on.
func (m *machine) stop(end int) { m.until[end] = m.now.Add(standstill) }

// step advances the time to the next event and handles it. It reports whether there was one.
func (m *machine) step() bool {
	m.send()
	next := mono.Never
	if len(m.queue) > 0 {
		next = m.queue[0].at
	}
	for i, n := range m.ends {
		if m.until[i] != 0 {
			next = min(next, m.until[i])
		} else {
			next = min(next, n.NextTimeout())
		}
	}
	if next == mono.Never {
		return false
	}
	m.now = max(m.now, next)
	for len(m.queue) > 0 && m.queue[0].at <= m.now {
		d := m.next()
		if i := slices.Index(m.ends[:], d.to); m.until[i] != 0 {
			m.socket[i] = append(m.socket[i], d)
		} else {
			m.deliver(d)
		}
	}
	for i, n := range m.ends {
		if m.until[i] > m.now {
			continue
		}
		m.until[i] = 0
		const batch = 64 // what a shard receives before it sends
		for len(m.socket[i]) > 0 {
			k := min(batch, len(m.socket[i]))
			for _, d := range m.socket[i][:k] {
				m.deliver(d)
			}
			m.socket[i] = m.socket[i][k:]
			m.send()
		}
		if n.NextTimeout() <= m.now {
			n.HandleTimeout(m.now)
		}
	}
	m.send()
	return true
}

func (m *machine) send() {
	for i, n := range m.ends {
		if m.until[i] == 0 {
			m.pump(n)
		}
	}
}

// traffic is the load of the first end of a machine: work requests of all kinds, as many as its queue takes, whose
// data are checked.
type traffic struct {
	*machine
	t            *testing.T
	rng          *rand.Rand
	from, to     []byte
	local, there *mr.MR
	posted, done int
	want         []byte // the expected content of the peer's memory
}

const trafficRoom = 256 << 10

func newTraffic(t *testing.T, seed uint64, c pairConfig) *traffic {
	a, b, w := newPair(t, seed, impairment{}, c)
	x := &traffic{machine: &machine{network: w, ends: [2]*node{a, b}}, t: t, rng: rand.New(rand.NewPCG(seed, 2))}
	x.from, x.local = a.region(t, trafficRoom)
	x.to, x.there = b.region(t, trafficRoom)
	for i := range x.from {
		x.from[i] = byte(x.rng.Uint32())
	}
	x.want = bytes.Clone(x.to)
	return x
}

// post posts one work request.
func (x *traffic) post() bool {
	sizes := []int{0, 8, 500, 3000, 100 << 10}
	n := sizes[x.rng.IntN(len(sizes))]
	off := x.rng.IntN(trafficRoom/2 - n)
	wr := qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, SG: []mr.SGE{x.local.SGE(off, n)}, RemoteAddr: x.there.Addr() + uint64(off), RKey: x.there.RKey()}
	switch x.rng.IntN(4) {
	case 0: // READ into the half of the local memory that no WRITE takes data from
		wr.Opcode, wr.SG[0] = qp.Read, x.local.SGE(trafficRoom/2+off, n)
	case 1:
		wr.Opcode, wr.SG[0] = qp.FetchAdd, x.local.SGE(trafficRoom-8, 8)
		wr.RemoteAddr, wr.CompareAdd = x.there.Addr()+trafficRoom-8, 1
	}
	if x.ends[0].PostSend(&wr) != nil {
		return false
	}
	if wr.Opcode == qp.Write {
		copy(x.want[off:off+n], x.from[off:])
	}
	x.posted++
	return true
}

// take takes completions, which must be successes.
func (x *traffic) take() {
	x.t.Helper()
	for _, wc := range drain(x.ends[0].send) {
		if x.done++; wc.Status != cq.Success {
			x.t.Fatalf("work request %d of %d: %v at %v, with %d timeouts", x.done, x.posted, wc.Status, time.Duration(x.now), x.ends[0].cnt.LocalAckTimeout)
		}
	}
}

// TestStandstill: an end stands still for 100 ms, repeatedly and at any time. No work request fails, if the standard
// lets the requester wait for so long. The data are right.
func TestStandstill(t *testing.T) {
	stops := 20
	if testing.Short() {
		stops = 4
	}
	for code := uint8(8); code <= 18; code++ {
		for _, retries := range []uint8{none, 1, 2, 3, 7} {
			waits := time.Duration(retries) + 1
			if retries == none {
				waits = 1
			}
			if 4*bth.AckTimeout(code)*waits < standstill*11/10 {
				continue // the standard does not let the requester wait for so long
			}
			t.Run(fmt.Sprintf("timeout %d, retries %d", code, waits-1), func(t *testing.T) {
				for seed := range uint64(2) {
					repair := seed > 0
					x := newTraffic(t, seed, pairConfig{timeout: code, retry: retries, repair: repair, repairB: repair})
					for range stops {
						for range x.rng.IntN(200) {
							for x.post() && x.rng.IntN(8) > 0 {
							}
							if !x.step() {
								break
							}
							x.take()
						}
						end := x.rng.IntN(2)
						x.stop(end)
						for x.until[end] != 0 {
							x.step()
							x.take()
						}
						for goOn := x.now.Add(2 * time.Millisecond); x.now < goOn && x.step(); { // the other end may be next
							x.take()
						}
					}
					for x.done < x.posted && x.step() {
						x.take()
					}
					if x.done != x.posted {
						t.Fatalf("seed %d: %d of %d work requests are done", seed, x.done, x.posted)
					}
					if counter := trafficRoom - 8; !bytes.Equal(x.to[:counter], x.want[:counter]) {
						t.Fatalf("seed %d: the data differ", seed)
					}
				}
			})
		}
	}
}

// TestStandstillKeepsWindow: the window is as wide after a standstill as before it, because nothing was lost.
func TestStandstillKeepsWindow(t *testing.T) {
	for _, code := range []uint8{10, 12, 14} { // many timeouts, some, or one in a standstill
		for end, name := range []string{"requester", "responder"} {
			for _, size := range []int{100, 3000, 100 << 10} {
				t.Run(fmt.Sprintf("timeout %d, %s, %d bytes", code, name, size), func(t *testing.T) {
					x := newTraffic(t, 1, pairConfig{timeout: code, caps: qp.Caps{MaxSendWR: 1024, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}})
					fill := func() {
						for x.ends[0].PostSend(&qp.SendWR{Opcode: qp.Write, Flags: qp.Signaled, SG: []mr.SGE{x.local.SGE(0, size)}, RemoteAddr: x.there.Addr(), RKey: x.there.RKey()}) == nil {
							x.posted++
						}
						x.step()
						x.take()
					}
					for range 200 {
						fill()
					}
					window := x.ends[0].Observe().Window
					for range 3 {
						x.stop(end)
						for x.until[end] != 0 {
							fill()
						}
						for again := x.now.Add(50 * time.Microsecond); x.now < again; { // some round trips
							fill()
						}
						if got := x.ends[0].Observe().Window; got < window {
							t.Fatalf("the window is %d after a standstill, %d before; %d timeouts", got, window, x.ends[0].cnt.LocalAckTimeout)
						}
					}
					if end == 1 && x.ends[0].cnt.LocalAckTimeout == 0 {
						t.Error("no ACK timer has expired")
					}
				})
			}
		}
	}
}

// TestStandstillKeepsWidth: stalls have widened the window. After a timeout in which nothing was lost, it is as wide
// as before. If packets were lost, it has its usual width.
func TestStandstillKeepsWidth(t *testing.T) {
	const wide = 16 * qp.DefaultWindow
	for _, lost := range []bool{false, true} {
		s := newStaller(t, pairConfig{})
		for s.sending < wide {
			s.stalled(1)
		}
		oldest := s.last.Add(1 - wide)
		s.expire()
		s.sent()
		if lost { // the peer has received none of the first packets, and then the packets that were sent again
			s.inject(ack(oldest))
			s.note()
			s.after(10 * time.Millisecond)
			s.inject(nak(bth.NAKSequence, oldest.Add(2)))
			s.note()
		}
		s.answer(10 * time.Millisecond)
		if kept := s.sending == wide; kept == lost {
			t.Errorf("packets lost: %v, and %d in flight afterwards", lost, s.sending)
		}
	}
}

// TestTailLostIsNoStandstill: after a timeout, the peer answers copies of the first packets. The last packets may be
// lost all the same. An acknowledgement of packets that were sent again thus does not show that the window was not
// too wide.
func TestTailLostIsNoStandstill(t *testing.T) {
	const wide = 16 * qp.DefaultWindow
	s := newStaller(t, pairConfig{})
	for s.sending < wide {
		s.stalled(1)
	}
	end := s.last
	oldest := end.Add(1 - wide)
	s.expire() // the peer has received half of the packets, and its acknowledgements were lost
	s.sent()
	acked := oldest.Add(wide/2 - 1)
	for range 3 { // for each copy
		s.inject(ack(acked))
	}
	for acked.Less(end) { // the peer receives the rest when it is sent again
		list := s.sent()
		if len(list) == 0 {
			t.Fatal("the requester sends nothing")
		}
		acked = list[len(list)-1].PSN()
		s.after(time.Millisecond)
		s.inject(ack(acked))
	}
	s.note()
	if s.sending >= wide {
		t.Errorf("%d packets in flight after half of so many were lost", s.sending)
	}
}

package qp_test

import (
	"encoding/binary"
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

var damaged = flag.Int("damaged", 100_000, "damaged packets of TestDamagedPackets")

// socket is a queue pair whose packets come by a socket that hides the Identification.
type socket struct {
	*bench
	m      *mr.MR
	psn    bth.PSN
	packet frame.Packet
	body   []byte
	env    frame.Envelope
}

func newSocket(t testing.TB) *socket {
	b := newBench(t, pairConfig{psnB: e0})
	_, m := b.region(t, 64)
	s := &socket{bench: b, m: m, psn: e0}
	s.env = b.peer.path.Envelope()
	return s
}

// arrive hands the queue pair the next packet of its peer, with an Identification, changed
// by damage after it was made. It reports whether the packet passed the ICRC as the
// receiver of a single packet can check it, and whether it was taken.
func (s *socket) arrive(id uint16, damage func(body []byte)) (passed, taken bool) {
	path := s.peer.path
	const n = bth.BTHLen + bth.RETHLen + 64 + bth.ICRCLen
	if s.body == nil {
		s.body = make([]byte, path.HeaderLen(frame.LayoutUDP)+n)
	}
	body, crc := path.Put(s.body, frame.LayoutUDP, n, id)
	bth.PutBTH(body, bth.RCWriteOnly, 0, 0, bth.DefaultPKey, s.Num(), s.psn)
	bth.PutRETH(body[bth.BTHLen:], s.m.Addr(), s.m.RKey(), 64)
	bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:n-bth.ICRCLen]))
	if damage != nil {
		damage(body)
	}
	s.env.ID = 0 // no guess of the Identification
	if err := s.packet.ParseBody(body, &s.env, 0); err != nil {
		s.t.Fatal(err)
	}
	if !s.packet.CheckICRC() {
		return false, false
	}
	before := s.cnt.RcvdPkts
	s.HandlePacket(s.net.now, &s.packet)
	if taken = s.cnt.RcvdPkts != before; taken {
		s.psn = s.psn.Add(1)
	}
	return true, taken
}

// wait lets time pass.
func (s *socket) wait(d time.Duration) { s.net.now = s.net.now.Add(d) }

// senders are ways to number packets, and how long they take to send one.
var senders = []struct {
	name  string
	every time.Duration // 32 of which make a batch, if they are short
	full  bool          // so regular that the Identification is checked
	id    func(i int, rng *rand.Rand) uint16
}{
	{"zero", time.Microsecond, true, func(int, *rand.Rand) uint16 { return 0 }},
	{"another constant", time.Microsecond, true, func(int, *rand.Rand) uint16 { return 0xABCD }},
	{"counts", time.Microsecond, true, func(i int, _ *rand.Rand) uint16 { return uint16(0xFF00 + i) }},
	{"counts for others, too", time.Microsecond, true, func(i int, rng *rand.Rand) uint16 { return uint16(50*i + rng.IntN(50)) }},
	{"super-packets of 64 from zero", time.Microsecond, true, func(i int, _ *rand.Rand) uint16 { return uint16(i % 64) }},
	{"super-packets of 128 from zero", time.Microsecond, true, func(i int, _ *rand.Rand) uint16 { return uint16(i % 128) }},
	{"counts, overtaken", time.Microsecond, true, func(i int, rng *rand.Rand) uint16 { return uint16(i - rng.IntN(100)) }},
	{"a round trip each", 30 * time.Microsecond, true, func(i int, rng *rand.Rand) uint16 { return uint16(100*i + rng.IntN(100)) }},
	{"random", time.Microsecond, false, func(_ int, rng *rand.Rand) uint16 { return uint16(rng.Uint32()) }},
	{"counts low byte first", time.Microsecond, true, func(i int, _ *rand.Rand) uint16 { return uint16(i)<<8 | uint16(i)>>8 }},
	{"a kernel, at leisure", 20 * time.Millisecond, false, func(i int, rng *rand.Rand) uint16 { return uint16(20*i + rng.IntN(20)) }},
}

// TestIdentifications: no packet of a peer is refused, however the peer numbers its packets. WeakICRC counts those
// that were checked in part.
func TestIdentifications(t *testing.T) {
	for _, tt := range senders {
		t.Run(tt.name, func(t *testing.T) {
			s, rng := newSocket(t), rand.New(rand.NewPCG(1, 2))
			const n = 5000
			batch := 1
			if tt.every == time.Microsecond {
				batch = 32
			}
			for i := range n {
				if i%batch == 0 {
					s.wait(time.Duration(batch) * tt.every)
				}
				if i == n/2 {
					s.wait(time.Hour)
				}
				if _, taken := s.arrive(tt.id(i, rng), nil); !taken {
					t.Fatalf("packet %d is refused", i)
				}
			}
			if weak := int(s.cnt.WeakICRC); tt.full && weak > n/5 || !tt.full && weak < n/2 {
				t.Errorf("%d of %d packets were checked in part", weak, n)
			}
		})
	}
}

// TestIdentificationJumps: when a peer's Identifications jump, it loses a packet. Each further jump is less likely to
// cost one.
func TestIdentificationJumps(t *testing.T) {
	s, rng := newSocket(t), rand.New(rand.NewPCG(3, 4))
	id, lost := uint16(0), 0
	const n = 100_000
	for i := range n {
		if i%32 == 0 {
			s.wait(32 * time.Microsecond)
		}
		if id++; i%200 == 199 {
			id = uint16(rng.Uint32())
		}
		if _, taken := s.arrive(id, nil); !taken {
			if lost++; lost > 10 {
				t.Fatalf("%d packets lost of %d, with a jump in each 200", lost, i)
			}
			if _, taken = s.arrive(id+1, nil); !taken { // the requester repeats it
				t.Fatal("the repetition is refused, too")
			}
		}
	}
	if lost == 0 {
		t.Error("no jump was noticed")
	}
}

// TestIdentificationsForged: a host may forge packets from the peer, with right ICRCs but without the right PSN. Such
// packets may weaken the check of the ICRC, but cannot make the queue pair refuse packets of the peer. Packets from
// other addresses change nothing.
func TestIdentificationsForged(t *testing.T) {
	for _, tt := range []struct {
		name     string
		stranger bool
		runs     func(i int) int // forged packets after packet i of the peer
	}{
		{"now and then", false, func(i int) int { return i % 20 / 19 }},
		{"one for one", false, func(int) int { return 1 }},
		{"runs", false, func(i int) int { return i % 40 / 39 * 40 }},
		{"a run after each", false, func(int) int { return 20 }},
		{"a stranger", true, func(i int) int { return i % 40 / 39 * 40 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newSocket(t)
			forged := uint16(0)
			const n = 20_000
			for i := range n {
				s.wait(time.Microsecond)
				if _, taken := s.arrive(uint16(i), nil); !taken {
					t.Fatalf("packet %d of the peer is refused", i)
				}
				own, psn := s.env, s.psn
				if tt.stranger {
					s.env.Src[15] ^= 0x40
					s.env.Seal()
				}
				for range tt.runs(i) {
					s.psn = psn.Add(1000)
					forged++
					s.forge(uint16(i)+30_000+forged%64, tt.stranger)
				}
				s.env, s.psn = own, psn
			}
			if weak := int(s.cnt.WeakICRC); tt.stranger && weak > 20 {
				t.Errorf("%d packets were checked in part", weak)
			}
		})
	}
}

// forge hands the queue pair a packet with a right ICRC that its peer has not sent.
func (s *socket) forge(id uint16, stranger bool) {
	s.arrive(id, func(body []byte) {
		if !stranger {
			return
		}
		c := s.peer.path.Config()
		c.Src = s.env.Src
		path := must(frame.NewPath(c))
		other := make([]byte, len(s.body))
		to, crc := path.Put(other, frame.LayoutUDP, len(body), id)
		copy(to, body)
		end := len(body) - bth.ICRCLen
		bth.PutICRC(body[end:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:end]))
	})
}

// TestDamagedPackets measures what is left of the ICRC where the Identification is not
// seen: how many damaged packets pass it, alone and with what the queue pair knows of its
// peer's Identifications. Each good packet is followed by a damaged one.
//
//	go test ./qp -run TestDamagedPackets -v -damaged 10000000
func TestDamagedPackets(t *testing.T) {
	s, rng := newSocket(t), rand.New(rand.NewPCG(5, 6))
	passed, executed, refused := 0, 0, 0
	for i := range *damaged {
		if i%32 == 0 {
			s.wait(64 * time.Microsecond)
		}
		if _, taken := s.arrive(uint16(i), nil); !taken {
			refused++ // behind a damaged one that was taken
			if _, taken = s.arrive(uint16(i), nil); !taken {
				t.Fatalf("good packet %d is refused twice", i)
			}
		}
		p, x := s.arrive(uint16(i+1), func(body []byte) {
			at := bth.BTHLen + bth.RETHLen + rng.IntN(64-8)
			binary.LittleEndian.PutUint64(body[at:], rng.Uint64()|1)
		})
		if p {
			passed++
		}
		if x {
			executed++
		}
	}
	t.Logf("%d damaged packets: %d pass the ICRC for some Identification (1 in 65536: %d), %d are taken",
		*damaged, passed, *damaged>>16, executed)
	if most := 3 + *damaged/500_000; executed > most {
		t.Errorf("%d of %d damaged packets are taken, want %d at most", executed, *damaged, most)
	}
	if refused > executed {
		t.Errorf("%d good packets were refused because %d damaged ones were taken", refused, executed)
	}
	if got := int(s.cnt.StrangeID); got != passed-executed+refused {
		t.Errorf("%d counted, %d refused", got, passed-executed+refused)
	}
}

// TestIdentificationsReset: with a new path, the queue pair knows nothing about the Identifications.
func TestIdentificationsReset(t *testing.T) {
	s := newSocket(t)
	for i := range 100 {
		s.wait(time.Microsecond)
		s.arrive(uint16(i), nil)
	}
	before := s.cnt.WeakICRC
	must(0, s.Modify(&qp.Attr{State: qp.SQD}, qp.AttrState))
	must(0, s.Modify(&qp.Attr{AV: qp.NewAH(s.Path())}, qp.AttrAV))
	if _, taken := s.arrive(40_000, nil); !taken || s.cnt.WeakICRC != before+1 {
		t.Errorf("after a new path: taken %v, %d checked in part", taken, s.cnt.WeakICRC-before)
	}
}

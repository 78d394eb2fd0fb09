package raw

import (
	"bytes"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/linktest"
)

// superPair is onSocketPair with super-packets.
func superPair(t *testing.T) (*Port, int) {
	p, other := onSocketPair(t)
	p.tx.vnet, p.rx.vnet = true, true
	p.tx.gso = true
	p.rx.init(link.Batch)
	return p, other
}

// sentMessages reads the sent messages, and divides each into its packets.
func sentMessages(t *testing.T, fd int) (messages [][][]byte) {
	t.Helper()
	buf := make([]byte, 1<<17)
	for {
		n, err := unix.Read(fd, buf)
		if err != nil {
			return messages
		}
		var h gso.VnetHeader
		h.Get(buf)
		b := buf[gso.VnetLen:n]
		if h.Type == gso.None {
			messages = append(messages, [][]byte{bytes.Clone(b)})
			continue
		}
		e, ok := gso.Look(b)
		if !ok || h.Flags != gso.NeedsCsum || int(h.HeaderLen) != e.Body || int(h.CsumStart) != e.UDP {
			t.Fatalf("header %+v of % x", h, b[:60])
		}
		var env frame.Envelope
		if _, body := describe(&env, b); body == nil {
			t.Fatalf("bad headers of a super-packet: % x", b[:e.Body])
		}
		var packets [][]byte
		for at := e.Body; at < len(b); at += int(h.Size) {
			one := make([]byte, e.Body+min(int(h.Size), len(b)-at))
			gso.Segment(one, b, e, int(h.Size), len(packets))
			packets = append(packets, one)
		}
		messages = append(messages, packets)
	}
}

// put commits a packet of n bytes, BTH to ICRC.
func put(t *testing.T, p *Port, path *frame.Path, psn, n int) {
	t.Helper()
	linktest.Send(t, p, path, bth.PSN(psn), bytes.Repeat([]byte{byte(psn + 1)}, n-linktest.Overhead))
}

// TestParts: packets for different parts of the peer do not share a super-packet. Each packet on
// the wire is the same as if it were sent separately, also if the sender calls Lent ("looks").
func TestParts(t *testing.T) {
	const a, again, b, mad = 64 + 5, 5, 64 + 6, bth.QPNGSI
	numbers := []bth.QPN{a, again, b, b, b, a, mad, mad, a, a, b}
	for _, v6 := range []bool{false, true} {
		for _, looks := range []bool{false, true} {
			p, fd := superPair(t)
			path := linktest.Path(t, v6, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
			var want [][]byte
			send := func(i int, to bth.QPN) {
				const n = 64
				id := p.tx.id
				body, crc, ok := p.Begin(path, bth.BTHLen+n+bth.ICRCLen)
				if !ok {
					t.Fatal("no room")
				}
				for k := range n {
					body[bth.BTHLen+k] = byte(i + k)
				}
				bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, bth.PSN(i))
				bth.PutICRC(body[bth.BTHLen+n:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:bth.BTHLen+n]))
				plain := make([]byte, path.HeaderLen(frame.LayoutEthernet)+len(body))
				whole, _ := path.Put(plain, frame.LayoutEthernet, len(body), id)
				copy(whole, body)
				want = append(want, plain)
				if looks && !bytes.Equal(p.Lent(), plain) {
					t.Errorf("v6 %v: lent\n% x, want\n% x", v6, p.Lent(), plain)
				}
				p.Commit()
			}
			for i, to := range numbers {
				send(i, to)
			}
			check := func(counts []int) {
				t.Helper()
				if err := p.Flush(); err != nil {
					t.Fatal(err)
				}
				var got []int
				var packets [][]byte
				for _, m := range sentMessages(t, fd) {
					got = append(got, len(m))
					packets = append(packets, m...)
				}
				if !slices.Equal(got, counts) {
					t.Errorf("v6 %v, looks %v: messages of %v packets, want %v", v6, looks, got, counts)
				}
				for i, b := range packets {
					if e, ok := gso.Look(b); ok {
						b[e.UDP+6], b[e.UDP+7] = 0, 0
					}
					if i >= len(want) || !bytes.Equal(b, want[i]) {
						t.Fatalf("v6 %v, looks %v: packet %d is\n% x, want\n% x", v6, looks, i, b, want[i])
					}
					var q frame.Packet
					if err := q.Parse(b, frame.LayoutEthernet); err != nil || !q.CheckICRC() {
						t.Errorf("v6 %v, looks %v: packet %d: %v, or the ICRC is wrong", v6, looks, i, err)
					}
				}
				want = nil
			}
			check([]int{2, 3, 1, 1, 1, 2, 1})
			for i := range link.Batch {
				send(i, bth.QPN(2+i%2))
			}
			if n := p.tx.waiting(); n != link.Batch {
				t.Errorf("%d messages wait, want %d", n, link.Batch)
			}
			if !looks {
				send(1, 2)
				if n := p.tx.waiting(); n != 1 {
					t.Errorf("%d messages wait after those that filled the queue, want 1", n)
				}
				p.Flush()
				want = nil
				sentMessages(t, fd)
				if allocs := testing.AllocsPerRun(10, func() {
					for _, to := range numbers[:4] {
						body, crc, _ := p.Begin(path, 80)
						clear(body)
						bth.PutBTH(body, bth.RCSendOnly, 0, 0, bth.DefaultPKey, to, 0)
						bth.PutICRC(body[76:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:76]))
						p.Commit()
					}
				}); allocs > 0 {
					t.Errorf("v6 %v: %v allocations", v6, allocs)
				}
			}
		}
	}
}

// TestRuns: which packets share a super-packet. A call of Lent before Commit changes
// none of them.
func TestRuns(t *testing.T) {
	type step struct {
		size  int
		other bool           // on another path
		equal bool           // on another path with equal fields
		edit  func(b []byte) // of the headers
		late  bool           // Flush before Commit
	}
	ecn := func(b []byte) { b[15] ^= 0x30 }
	sum := func(b []byte) {
		e, _ := gso.Look(b)
		b[e.UDP+6] = 1
	}
	for _, v6 := range []bool{false, true} {
		for _, looks := range []bool{false, true} {
			for _, test := range []struct {
				name  string
				steps []step
				want  []int // packets by message
			}{
				{"one", []step{{size: 100}}, []int{1}},
				{"two", []step{{size: 100}, {size: 100}}, []int{2}},
				{"last is shorter", []step{{size: 100}, {size: 100}, {size: 16}, {size: 16}}, []int{3, 1}},
				{"next is longer", []step{{size: 100}, {size: 104}, {size: 104}}, []int{1, 2}},
				{"other path", []step{{size: 100}, {size: 100}, {size: 100, other: true}, {size: 100}}, []int{2, 1, 1}},
				{"equal path", []step{{size: 100}, {size: 100, equal: true}, {size: 100}}, []int{3}},
				{"ECN mark", []step{{size: 100}, {size: 100, edit: ecn}, {size: 100}, {size: 100}}, []int{1, 1, 2}},
				{"ECN mark first", []step{{size: 100, edit: ecn}, {size: 100}, {size: 100}}, []int{1, 2}},
				{"UDP checksum", []step{{size: 100}, {size: 100}, {size: 100, edit: sum}}, []int{2, 1}},
				{"flushed meanwhile", []step{{size: 100}, {size: 100, late: true}, {size: 100}}, []int{1, 1, 1}},
				{"first flushed", []step{{size: 100, late: true}, {size: 100}}, []int{1, 1}},
			} {
				p, fd := superPair(t)
				one := linktest.Path(t, v6, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
				two := linktest.Path(t, v6, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 3})
				var want [][]byte
				for i, s := range test.steps {
					path := one
					if s.other {
						path = two
					}
					if s.equal {
						path = linktest.Path(t, v6, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
					}
					if looks { // Lent, then abandon the packet
						linktest.Put(p, path, 77, bytes.Repeat([]byte{77}, s.size-linktest.Overhead))
						p.Lent()
					}
					linktest.Put(p, path, bth.PSN(i), bytes.Repeat([]byte{byte(i + 1)}, s.size-linktest.Overhead))
					if s.edit != nil {
						s.edit(p.Lent())
					}
					plain := make([]byte, path.HeaderLen(frame.LayoutEthernet)+s.size)
					body, _ := path.Put(plain, frame.LayoutEthernet, s.size, p.tx.id)
					copy(body, p.tx.lent[p.tx.header:])
					if s.edit != nil {
						s.edit(plain)
					}
					if looks && !bytes.Equal(p.Lent(), plain) {
						t.Errorf("v6=%v, %s: lent\n% x, want\n% x", v6, test.name, p.Lent(), plain)
					}
					want = append(want, plain)
					if s.late {
						p.Flush()
					}
					p.Commit()
				}
				if err := p.Flush(); err != nil {
					t.Fatal(err)
				}
				messages := sentMessages(t, fd)
				var got []int
				var packets [][]byte
				for _, m := range messages {
					got = append(got, len(m))
					packets = append(packets, m...)
				}
				if len(got) != len(test.want) || len(packets) != len(want) {
					t.Fatalf("v6=%v, %s: messages of %v packets, want %v", v6, test.name, got, test.want)
				}
				for i := range got {
					if got[i] != test.want[i] {
						t.Errorf("v6=%v, %s: messages of %v packets, want %v", v6, test.name, got, test.want)
						break
					}
				}
				for i := range want {
					if !bytes.Equal(packets[i], want[i]) {
						t.Errorf("v6=%v, looks=%v, %s: packet %d\n% x, want\n% x", v6, looks, test.name, i, packets[i], want[i])
					}
				}
			}
		}
	}
}

// TestRunLimits: a super-packet has at most 64 packets and 64 KiB.
func TestRunLimits(t *testing.T) {
	for _, size := range []int{64, 1044, 4116} {
		p, fd := superPair(t)
		p.tx.init(9000)
		path := linktest.Path(t, true, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
		n := min(200, 160<<10/size) // as many as the socket has room for
		for i := range n {
			put(t, p, path, i, size)
		}
		p.Flush()
		header := path.HeaderLen(frame.LayoutEthernet)
		full := min(gso.MaxSegments, (gso.MaxSuper-header)/size)
		total := 0
		for i, m := range sentMessages(t, fd) {
			for k := range m {
				if psn, _ := linktest.Check(t, frame.LayoutEthernet, link.Frame{Data: m[k]}); psn != bth.PSN(total+k) {
					t.Fatalf("%d bytes: packet %d has PSN %v", size, total+k, psn)
				}
			}
			// The room for all messages is limited, too.
			if total += len(m); len(m) > full || i == 0 && len(m) != full {
				t.Errorf("%d bytes: message %d has %d packets, want %d", size, i, len(m), full)
			}
		}
		if s := p.Stats(); total != n || s.TxPackets != uint64(n) || s.TxBytes != uint64(n*(header+size)) {
			t.Errorf("%d bytes: %d of %d packets sent, Stats() = %+v", size, total, n, s)
		}
	}
}

// TestRefused: if the kernel does not support super-packets, the Port divides the queued ones, and
// no packet is lost.
func TestRefused(t *testing.T) {
	p, fd := superPair(t)
	path := linktest.Path(t, false, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
	for i := range 50 {
		put(t, p, path, i, 500+i/20*4)
	}
	p.tx.gso = false
	p.tx.split(unix.EINVAL)
	for i := 50; i < 60; i++ {
		put(t, p, path, i, 200)
	}
	p.Flush()
	got := sentMessages(t, fd)
	for i, m := range got {
		if psn, _ := linktest.Check(t, frame.LayoutEthernet, link.Frame{Data: m[0]}); len(m) != 1 || psn != bth.PSN(i) {
			t.Fatalf("message %d has %d packets, PSN %v", i, len(m), psn)
		}
	}
	if len(got) != 60 {
		t.Errorf("%d of 60 packets sent", len(got))
	}
}

// TestTakeApart: Recv returns the packets of super-packets in place, for any size of its
// argument, and single packets between them unchanged.
func TestTakeApart(t *testing.T) {
	p, fd := superPair(t)
	path := linktest.Path(t, false, frame.MAC{2, 5: 1}, frame.MAC{2, 5: 2})
	const n = 150
	sizes := make([]int, n)
	for i := range sizes {
		sizes[i] = 300
		if i%31 == 30 {
			sizes[i] = 60
		}
		put(t, p, path, i, sizes[i])
	}
	// Send each message back to the Port.
	p.Flush()
	buf := make([]byte, 1<<17)
	for {
		k, err := unix.Read(fd, buf)
		if err != nil {
			break
		}
		if _, err := unix.Write(fd, buf[:k]); err != nil {
			t.Fatal(err)
		}
	}
	fr := make([]link.Frame, 7)
	got := 0
	for got < n {
		k, err := p.Recv(fr)
		if err != nil || k == 0 {
			t.Fatalf("%d of %d packets: %v", got, n, err)
		}
		for _, f := range fr[:k] {
			psn, payload := linktest.Check(t, frame.LayoutEthernet, f)
			if psn != bth.PSN(got) || len(payload) != sizes[got]-linktest.Overhead || f.Env == nil || payload[0] != byte(got+1) {
				t.Fatalf("packet %d: PSN %v, %d bytes of payload, %+v", got, psn, len(payload), f.Env)
			}
			got++
		}
		if p.Backlog.Load() != (p.rx.next < p.rx.count) {
			t.Errorf("backlog %v with messages %d to %d left", p.Backlog.Load(), p.rx.next, p.rx.count)
		}
	}
	if s := p.Stats(); s.RxPackets != n || s.RxBytes != s.TxBytes || s.RxErrors != 0 {
		t.Errorf("Stats() = %+v", s)
	}
	if k, err := p.Recv(fr); k != 0 || err != nil {
		t.Errorf("then Recv = %d, %v", k, err)
	}
}

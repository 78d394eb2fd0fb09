package conntrack_test

import (
	"io"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/internal/conntrack"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/mono"
)

var (
	alice = bth.GIDFrom(netip.MustParseAddr("10.0.0.1"))
	bob   = bth.GIDFrom(netip.MustParseAddr("10.0.0.2"))
	carol = bth.GIDFrom(netip.MustParseAddr("10.0.0.3"))
)

// wire is a table with a shorthand for packets.
type wire struct {
	t     *testing.T
	table *conntrack.Table
	now   mono.Time
}

func newWire(t *testing.T) *wire { return &wire{t: t, table: conntrack.New()} }

func (w *wire) packet(src, dst bth.GID, f bth.Fields) conntrack.Place {
	w.t.Helper()
	f.BTH.PKey = bth.DefaultPKey
	b := append(f.Append(nil), 0, 0, 0, 0)
	var p bth.Packet
	if err := p.Parse(b); err != nil {
		w.t.Fatal(err)
	}
	return w.table.Observe(w.now, src, dst, &p)
}

func (w *wire) want(src, dst bth.GID, op bth.Opcode, qpn bth.QPN, psn bth.PSN, want conntrack.Place) {
	w.t.Helper()
	if got := w.packet(src, dst, bth.Fields{BTH: bth.BTHFields{Op: op, DestQPN: qpn, PSN: psn}}); got != want {
		w.t.Errorf("%v qpn %v psn %v: %+v, want %+v", op, qpn, psn, got, want)
	}
}

// mad sends a message of the connection manager.
func (w *wire) mad(src, dst bth.GID, m interface{ Put(*[cm.MADLen]byte) }) {
	w.t.Helper()
	var mad [cm.MADLen]byte
	m.Put(&mad)
	w.packet(src, dst, bth.Fields{
		BTH:     bth.BTHFields{Op: bth.UDSendOnly, DestQPN: bth.QPNGSI},
		DETH:    &bth.DETHFields{QKey: bth.QKeyGSI, SrcQPN: bth.QPNGSI},
		Payload: mad[:],
	})
}

func place(conn, rel int) conntrack.Place { return conntrack.Place{Conn: conn, Rel: rel, Known: true} }

// The handshake has the queue pair numbers and PSNs of both directions before the first packet, and a repeated REP
// makes no second connection.
func TestHandshake(t *testing.T) {
	w := newWire(t)
	for id, qpn := range map[cm.CommID]bth.QPN{7: 0x70, 8: 0x80} {
		w.mad(alice, bob, &cm.REQ{LocalID: id, QPN: qpn, StartingPSN: 0xFFFFFE, MTU: bth.MTU1024})
	}
	w.mad(bob, alice, &cm.REP{LocalID: 1, RemoteID: 7, QPN: 0x71, StartingPSN: 500})
	w.mad(bob, alice, &cm.REP{LocalID: 1, RemoteID: 7, QPN: 0x71, StartingPSN: 500})
	w.mad(bob, alice, &cm.REP{LocalID: 2, RemoteID: 8, QPN: 0x81, StartingPSN: 900})
	w.mad(bob, alice, &cm.REP{LocalID: 3, RemoteID: 9, QPN: 0x91, StartingPSN: 900}) // no such REQ
	if n := w.table.Len(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	w.want(alice, bob, bth.RCSendMiddle, 0x71, 503, place(1, 3))
	w.want(alice, bob, bth.RCSendMiddle, 0x71, 501, place(1, 1))
	w.want(bob, alice, bth.RCAck, 0x70, 503, place(1, 3))
	w.want(bob, alice, bth.RCSendOnly, 0x70, 1, place(1, 3)) // the PSN wrapped
	w.want(alice, bob, bth.RCAck, 0x71, 0xFFFFFE, place(1, 0))
	w.want(alice, bob, bth.RCSendOnly, 0x81, 899, place(2, -1))
	w.want(bob, alice, bth.CNP, 0x80, 0, conntrack.Place{Conn: 2})
	w.want(bob, alice, bth.CNP, 0x99, 0, conntrack.Place{})
	// The number is used again.
	w.mad(alice, bob, &cm.REQ{LocalID: 17, QPN: 0x70, StartingPSN: 5, MTU: bth.MTU1024})
	w.mad(bob, alice, &cm.REP{LocalID: 4, RemoteID: 17, QPN: 0x71, StartingPSN: 6})
	w.want(alice, bob, bth.RCSendOnly, 0x71, 6, place(3, 0))
}

// Without a handshake the first request is packet 0, and responses find their requests.
func TestOutOfBand(t *testing.T) {
	w := newWire(t)
	w.want(alice, bob, bth.RCSendFirst, 0x10, 100, place(1, 0))
	w.want(alice, bob, bth.RCSendLast, 0x10, 101, place(1, 1))
	w.want(alice, carol, bth.RCSendOnly, 0x10, 100, place(2, 0))
	w.want(bob, alice, bth.RCAck, 0x11, 101, place(1, 1))
	w.want(carol, alice, bth.RCAck, 0x12, 100, place(2, 0))
	// The first request of the other end starts its own count.
	w.want(bob, alice, bth.RCSendOnly, 0x11, 7000, place(1, 0))
	w.want(alice, bob, bth.RCAck, 0x10, 7000, place(1, 0))
	// A READ takes the PSNs of its responses.
	read := bth.Fields{BTH: bth.BTHFields{Op: bth.RCReadRequest, DestQPN: 0x20, PSN: 40}, RETH: &bth.RETHFields{DMALen: 4096}}
	if got := w.packet(alice, bob, read); got.Rel != 0 || !got.Known {
		t.Errorf("READ request: %+v", got)
	}
	first := w.packet(bob, alice, bth.Fields{BTH: bth.BTHFields{Op: bth.RCReadResponseMiddle, DestQPN: 0x21, PSN: 42}, Payload: make([]byte, 1024)})
	if !first.Known || first.Rel != 2 {
		t.Errorf("READ response: %+v, want packet 2", first)
	}
	// A response that fits no request belongs to a connection whose count is unknown.
	w.want(bob, alice, bth.RCAck, 0x30, 9, conntrack.Place{Conn: w.table.Len() + 1})
}

// connect makes a connection by a REQ with the identifier id, between queue pair qpn and queue pair qpn+1.
func (w *wire) connect(id cm.CommID, qpn bth.QPN) {
	w.t.Helper()
	w.mad(alice, bob, &cm.REQ{LocalID: id, QPN: qpn, StartingPSN: 100, MTU: bth.MTU1024})
	w.mad(bob, alice, &cm.REP{LocalID: id + 0x1000, RemoteID: id, QPN: qpn + 1, StartingPSN: 200})
}

// An ended connection keeps its number for some time, for late packets. After that, a packet to one of its queue
// pairs begins a new connection.
func TestEnd(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(w *wire)
		over time.Duration // when the table forgets the connection
	}{
		{"DREQ of the active end", func(w *wire) { w.mad(alice, bob, &cm.DREQ{LocalID: 7, RemoteID: 0x1007, RemoteQPN: 0x71}) }, time.Minute},
		{"DREQ of the passive end", func(w *wire) { w.mad(bob, alice, &cm.DREQ{LocalID: 0x1007, RemoteID: 7, RemoteQPN: 0x70}) }, time.Minute},
		{"REJ of the REP", func(w *wire) { w.mad(alice, bob, &cm.REJ{LocalID: 7, RemoteID: 0x1007, Of: cm.OfREP}) }, time.Minute},
		{"REJ of the passive end", func(w *wire) { w.mad(bob, alice, &cm.REJ{LocalID: 0x1007, RemoteID: 7, Of: cm.OfREQ}) }, time.Minute},
		{"a stranger's REJ", func(w *wire) { w.mad(carol, alice, &cm.REJ{LocalID: 0x1007, RemoteID: 7, Of: cm.OfREQ}) }, time.Hour},
		{"a stranger's REJ of the REP", func(w *wire) { w.mad(alice, carol, &cm.REJ{LocalID: 7, RemoteID: 0x1007, Of: cm.OfREP}) }, time.Hour},
		{"a stranger's REP", func(w *wire) { w.mad(carol, alice, &cm.REP{LocalID: 0x1007, RemoteID: 7, QPN: 0x71, StartingPSN: 9}) }, time.Hour},
		{"a stranger's DREQ", func(w *wire) { w.mad(carol, bob, &cm.DREQ{LocalID: 7, RemoteID: 0x1007, RemoteQPN: 0x71}) }, time.Hour},
		{"silence", func(w *wire) {}, time.Hour},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWire(t)
			w.connect(7, 0x70)
			tt.end(w)
			tt.end(w)
			w.now = w.now.Add(tt.over - time.Second)
			w.want(bob, alice, bth.RCAck, 0x70, 203, place(1, 3))
			if tt.over == time.Hour { // the packet keeps the connection in the table
				w.now = w.now.Add(tt.over - 2*time.Second)
				w.want(alice, bob, bth.RCSendOnly, 0x71, 203, place(1, 3))
			}
			w.now = w.now.Add(tt.over + time.Second)
			w.want(alice, bob, bth.RCSendOnly, 0x71, 203, place(2, 0))
			if n := w.table.Forgotten(); n != 0 {
				t.Errorf("%d connections were forgotten in use", n)
			}
		})
	}
}

// A REQ that was rejected becomes no connection.
func TestRejected(t *testing.T) {
	w := newWire(t)
	w.mad(alice, bob, &cm.REQ{LocalID: 7, QPN: 0x70, StartingPSN: 100, MTU: bth.MTU1024})
	w.mad(bob, alice, &cm.REJ{RemoteID: 7, Of: cm.OfREQ})
	w.mad(bob, alice, &cm.REP{LocalID: 8, RemoteID: 7, QPN: 0x71, StartingPSN: 200})
	if n := w.table.Len(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// A full table first forgets ended connections, then those without packets for the longest time. It counts the
// forgotten connections that were in use.
func TestFull(t *testing.T) {
	const most = 1 << 16 // connections of two directions
	w := newWire(t)
	for i := range most {
		w.connect(cm.CommID(i+1), bth.QPN(0x100+2*i))
	}
	w.mad(alice, bob, &cm.DREQ{RemoteQPN: 0x10D}) // the seventh
	w.connect(0x200001, 0x300000)                 // takes its place
	w.want(alice, bob, bth.RCSendOnly, 0x10B, 205, place(6, 5))
	w.now = w.now.Add(2 * time.Minute)
	w.want(alice, bob, bth.RCSendOnly, 0x101, 205, place(1, 5))
	w.connect(0x200002, 0x300010) // takes the place of the second, which is now the oldest and idle
	w.want(alice, bob, bth.RCSendOnly, 0x105, 205, place(3, 5))
	if n := w.table.Forgotten(); n != 0 {
		t.Fatalf("%d connections were forgotten in use", n)
	}
	for i := range most {
		w.connect(cm.CommID(0x300000+i), bth.QPN(0x400000+2*i))
	}
	if n := w.table.Forgotten(); n != 3 { // the first, the third and the last one were in use
		t.Errorf("%d connections were forgotten in use, want 3", n)
	}
	if n := w.table.Len(); n != 2*most+2 {
		t.Errorf("%d connections were seen, want %d", n, 2*most+2)
	}
	w.want(alice, bob, bth.RCSendOnly, 0x105, 205, place(2*most+3, 0))
}

// A flood of requests to connect, and one of packets to strangers, does not hide the connection that was made last.
func TestFlood(t *testing.T) {
	w := newWire(t)
	for i := range 1 << 13 {
		w.mad(carol, bob, &cm.REQ{LocalID: cm.CommID(i + 1), QPN: 0x50, StartingPSN: 1, MTU: bth.MTU1024})
	}
	w.connect(7, 0x70)
	w.want(alice, bob, bth.RCSendOnly, 0x71, 203, place(1, 3))
	for i := range 1 << 18 {
		w.packet(carol, bob, bth.Fields{BTH: bth.BTHFields{Op: bth.RCSendOnly, DestQPN: bth.QPN(0x1000 + i)}})
		if i%1000 == 0 {
			w.now = w.now.Add(2 * time.Second)
			w.want(alice, bob, bth.RCSendOnly, 0x71, 203, place(1, 3))
		}
	}
}

// TestCaptures: every packet of captures of Linux belongs to a connection, and the first one that
// goes to a queue pair is number 0.
func TestCaptures(t *testing.T) {
	for name, conns := range map[string]int{"rping": 1, "rping6": 1, "rc_pingpong": 1, "write_bw": 1, "read_bw": 1, "rdma_client": 1} {
		t.Run(name, func(t *testing.T) {
			f, err := os.Open("../../testdata/pcaps/" + name + ".pcap")
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			r, err := pcap.NewReader(f)
			if err != nil {
				t.Fatal(err)
			}
			table := conntrack.New()
			started := map[bth.QPN]bool{}
			var p frame.Packet
			for {
				rec, err := r.Next()
				if err == io.EOF {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				data, layout, ok := rec.Frame()
				if !ok || p.Parse(data, layout) != nil {
					continue
				}
				at := table.Observe(0, p.Src, p.Dst, &p.Packet)
				if p.DestQPN() == bth.QPNGSI {
					continue
				}
				if at.Conn < 1 || !at.Known || at.Rel < 0 {
					t.Fatalf("frame %d, %v: %+v", rec.Number, p.Op, at)
				}
				if p.Info.Flags&bth.Request != 0 && !started[p.DestQPN()] {
					started[p.DestQPN()] = true
					if at.Rel != 0 {
						t.Errorf("frame %d: the first request to %v is packet %d", rec.Number, p.DestQPN(), at.Rel)
					}
				}
			}
			if table.Len() < conns || len(started) == 0 {
				t.Errorf("%d connections, %d queue pairs with requests", table.Len(), len(started))
			}
		})
	}
}

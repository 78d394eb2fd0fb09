package rsocket

import (
	"bytes"
	"context"
	"encoding/hex"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func FuzzHello(f *testing.F) {
	for _, c := range []string{captured, capturedPlain} {
		b, _ := hex.DecodeString(c)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if h.maps < 0 || h.maps > maxMaps || h.table.length < 1 {
			t.Fatalf("%x is %+v", b, h)
		}
		again, err := parseHello(h.append(nil))
		if err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzMapping(f *testing.F) {
	f.Add(make([]byte, mappingLen), true)
	f.Fuzz(func(t *testing.T, b []byte, big bool) {
		if len(b) < mappingLen {
			return
		}
		o := order(big)
		if got := parseMapping(b, o).append(nil, o); !bytes.Equal(got, b[:mappingLen]) {
			t.Fatalf("%x became %x", b, got)
		}
	})
}

// FuzzFlow drives sender and receiver with arbitrary values of a peer: their places and lengths always
// stay inside the buffers.
func FuzzFlow(f *testing.F) {
	f.Add([]byte{0, 5, 1, 3, 2, 0, 3, 1, 4, 9, 200, 7})
	f.Fuzz(func(t *testing.T, b []byte) {
		s := tooltest.Script(b)
		const buffer, early, depth = 64, 10, 4
		tx := sender{buffer: buffer, free: buffer, wrs: 8, slot: 1, allowed: uint16(s.Number()), halves: [halves]extent{{length: s.Number()}}}
		rx := receiver{buffer: buffer, depth: depth, early: early, granted: early, ready: buffer / halves, renew: depth / 2, slots: 2, slot: 1}
		var sent []int
		for len(s) > 0 {
			switch s.Next() % 6 {
			case 0:
				rx.arrived(s.Number())
			case 1:
				n := rx.next(int(s.Next()))
				if n < 0 || rx.early == 0 && rx.at+n > buffer || rx.early > 0 && n > rx.early {
					t.Fatalf("%d bytes to read at %d with %d early", n, rx.at, rx.early)
				}
				rx.consume(n)
			case 2:
				if rx.due() {
					if _, half, offset, slot := rx.grant(); half && (offset < 0 || offset+buffer/halves > buffer || slot > 1) {
						t.Fatalf("the half at %d is announced in entry %d", offset, slot)
					}
				}
			case 3:
				tx.announced(extent{length: s.Number()})
				tx.allowed = uint16(s.Number())
			case 4:
				want := int(s.Number() & 0xFFFF)
				n := tx.room(want)
				if n < 0 || n > want || n > tx.free || tx.at+n > buffer {
					t.Fatalf("room for %d of %d at %d with %d free", n, want, tx.at, tx.free)
				}
				if n > 0 {
					tx.take(n)
					sent = append(sent, n)
				}
			case 5:
				if len(sent) > 0 {
					tx.sent(sent[0], 1)
					sent = sent[1:]
				}
			}
			if rx.granted < 0 || rx.inbox.bytes < 0 || rx.inbox.lengths.Len() > depth+1 || rx.granted+rx.inbox.bytes+rx.ready > buffer || tx.free < 0 || tx.wrs < 0 {
				t.Fatalf("receiver %+v, sender %+v", rx, tx)
			}
		}
	})
}

// FuzzPeer makes a peer that uses verbs follow a script, while the program uses the stream: the
// peer sends messages of the protocol and mutations of them, exceeds its credits, uses mappings
// and lengths out of range, and posts any other operation. With every script no call hangs,
// nothing panics, memory is bounded, and memory beside the mapping does not change.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{64, 200, 2, 136, 0, 5, 0, 5, 1, 0, 130, 2, 6, 7, 8, 3, 9, 10, 11, 12})
	f.Add([]byte{64, 3, 1, 0, 0, 136, 0, 136, 1, 1, 144, 1, 2, 142, 136, 7, 100, 0, 143, 3, 137, 3, 1, 3, 0, 4, 255, 255, 255, 255, 255})
	f.Add(bytes.Repeat([]byte{32, 0, 0, 7, 136, 3, 200, 2, 1, 5, 0, 4, 1, 6, 1}, 12))
	tooltest.Fuzz(f, fuzzPeer)
}

// The same with random scripts.
func TestHostilePeers(t *testing.T) { tooltest.Random(t, fuzzPeer) }

func fuzzPeer(t *testing.T, script tooltest.Script) {
	if raceEnabled {
		t.Skip("a hostile peer writes where the program reads: a data race by design, see docs/memory.md")
	}
	a, b := tooltest.Pair(t, fault.Config{})
	cfg := Config{SendBuffer: 8 << 10, RecvBuffer: 8 << 10, SendDepth: 32, RecvDepth: 32, Maps: 2, Linger: time.Second}
	l, err := Listen(a, tooltest.Server4+":0", cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tooltest.Bounded(t, 8<<20, func() {
		peer, err := tooltest.Connect(t, b, l.Addr().String(), int(script.Next()), func(mr *roce.MR) []byte {
			h := hello{bigEndian: script.Next()%2 == 0, maps: int(script.Number() % 200), credits: uint16(script.Number()),
				table: extent{mr.Addr(), mr.RKey(), 1 + script.Number()%(1<<16)},
				data:  extent{mr.Addr() + 8192, mr.RKey(), script.Number()}}
			return h.append(nil)
		})
		if err != nil {
			return
		}
		defer peer.Close()
		victim, err := l.AcceptContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		abuse(t, &script, victim, peer)
	})
}

// abuse plays the script.
func abuse(t *testing.T, s *tooltest.Script, victim *Conn, peer *tooltest.Peer) {
	h, err := parseHello(peer.Conn.PrivateData())
	if err != nil {
		t.Fatal(err)
	}
	table := tooltest.Area{Addr: h.table.addr, Key: h.table.key, Len: halves*extentLen + uint32(h.maps)*mappingLen}
	data := tooltest.Area{Addr: h.data.addr, Key: h.data.key, Len: h.data.length}
	guarded := bytes.Repeat([]byte{0xA5}, 300)
	mapped := tooltest.Area{}
	buf := make([]byte, 16<<10)
	written := 0
	for len(*s) > 0 {
		switch s.Next() % 10 {
		case 0: // anything
			peer.Post(s, uint32(s.Next()%8)<<29|s.Number()&valueMask, table, data, mapped)
		case 1: // data as the protocol wants it, until the early buffer is full
			n := min(int(s.Next()), int(data.Len)-written)
			peer.Write(data, written, make([]byte, n), immediate(opData, uint32(n)))
			written += n
		case 2: // an entry of the table of halves
			e := extent{peer.MR.Addr() + uint64(s.Number()), peer.MR.RKey(), s.Number()}
			peer.Write(table, int(s.Next()%2)*extentLen, e.append(nil, order(hostBigEndian)), immediate(opTable, s.Number()&valueMask))
		case 3: // a mapping
			i := s.Number() & 0xFFFF
			m := mapping{uint64(s.Number()), extent{peer.MR.Addr(), peer.MR.RKey(), s.Number()}}
			peer.Write(table, halves*extentLen+int(i%3)*mappingLen, m.append(nil, order(hostBigEndian)), immediate(opMap, i))
		case 4: // control
			peer.Write(data, 0, nil, immediate(opCtrl, s.Number()&valueMask))
		case 5:
			victim.SetReadDeadline(time.Now().Add(time.Millisecond))
			victim.Read(buf[:min(s.Number(), uint32(len(buf)))])
		case 6:
			victim.SetWriteDeadline(time.Now().Add(time.Millisecond))
			victim.Write(buf[:min(s.Number(), uint32(len(buf)))])
		case 7:
			victim.SetWriteDeadline(time.Now().Add(time.Millisecond))
			victim.WriteAt(buf[:min(s.Number(), uint32(len(buf)))], int64(s.Number()))
		case 8:
			victim.SetWriteDeadline(time.Now().Add(time.Millisecond))
			if m, err := victim.Map(guarded[100:200], int64(s.Number())); err == nil {
				mapped = tooltest.Area{Addr: m.mr.Addr(), Key: m.mr.RKey(), Len: 100}
			}
		case 9:
			switch s.Next() % 8 {
			case 0:
				victim.CloseRead()
			case 1:
				victim.CloseWrite()
			case 2:
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				peer.Conn.Disconnect(ctx)
				cancel()
			default:
				time.Sleep(time.Duration(s.Next()) * time.Millisecond)
			}
		}
	}
	start := time.Now()
	victim.Close()
	if took := time.Since(start); took > victim.linger {
		t.Errorf("Close took %v", took)
	}
	if guard := bytes.Repeat([]byte{0xA5}, 100); !bytes.Equal(guarded[:100], guard) || !bytes.Equal(guarded[200:], guard) {
		t.Error("memory beside the mapping was written")
	}
}

package message

import (
	"bytes"
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func FuzzHello(f *testing.F) {
	f.Add(hello{32, 64 << 10}.append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := parseHello(b)
		if err != nil {
			return
		}
		if h.depth < 1 || h.depth > maxDepth || h.limit < 0 || h.limit > maxMessage {
			t.Fatalf("%x is %+v", b, h)
		}
		if !bytes.Equal(h.append(nil), b[:helloLen]) {
			t.Fatalf("%x became %+v", b, h)
		}
	})
}

func FuzzToken(f *testing.F) {
	good, _ := Token{1 << 40, 4096, 7, ReadWrite}.MarshalBinary()
	f.Add(good, 0, 8)
	f.Fuzz(func(t *testing.T, b []byte, off, n int) {
		var token Token
		if token.UnmarshalBinary(b) != nil {
			return
		}
		if again, _ := token.MarshalBinary(); !bytes.Equal(again, b) || token.Len() < 0 {
			t.Fatalf("%x became %+v", b, token)
		}
		if token.check(token.access&ReadWrite, off, n) == nil && (off < 0 || n < 0 || off+n > token.Len() || off+n < off) {
			t.Fatalf("%d bytes at %d of %d are allowed", n, off, token.Len())
		}
	})
}

// FuzzPeer makes a peer that uses verbs follow a script, while the program uses the connection:
// the peer sends messages without credits, with any immediates and lengths, and posts any other
// operation on the exported memory. With every script no call hangs, nothing panics, memory is
// bounded, and memory that is not exported does not change.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{64, 4, 64, 0, 5, 0, 1, 4, 1, 0, 0, 130, 2, 6, 7, 8, 3, 9, 10, 11, 12})
	f.Add([]byte{64, 4, 64, 3, 0, 0, 1, 142, 0, 1, 9, 1, 2, 2, 2, 1})
	f.Add(bytes.Repeat([]byte{32, 1, 7, 3, 0, 1, 136, 3, 200, 2, 1, 5, 4, 1, 6, 1}, 12))
	tooltest.Fuzz(f, fuzzPeer)
}

// The same with random scripts.
func TestHostilePeers(t *testing.T) { tooltest.Random(t, fuzzPeer) }

func fuzzPeer(t *testing.T, script tooltest.Script) {
	a, b := tooltest.Pair(t, fault.Config{})
	l, err := Listen(a, tooltest.Server4+":0", Config{MaxMessage: 256, Depth: 4, Transfers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	tooltest.Bounded(t, 8<<20, func() {
		peer, err := tooltest.Connect(t, b, l.Addr().String(), int(script.Next()), func(*roce.MR) []byte {
			return hello{1 + int(script.Number()%maxDepth), int(script.Number() % (maxMessage + 1))}.append(nil)
		})
		if err != nil {
			return
		}
		defer peer.Close()
		victim, err := l.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		abuse(t, &script, victim, peer)
	})
}

// abuse plays the script.
func abuse(t *testing.T, s *tooltest.Script, victim *Conn, peer *tooltest.Peer) {
	guarded := bytes.Repeat([]byte{0xA5}, 8200)
	e, err := victim.Export(guarded[100:8100], ReadWrite|Atomic) // more than the receive buffer
	if err != nil {
		t.Fatal(err)
	}
	exported := tooltest.Area{Addr: e.token.addr, Key: e.token.key, Len: uint32(e.token.length)}
	inside := tooltest.Area{Addr: victim.rmr.Addr(), Key: victim.rmr.RKey(), Len: uint32(len(victim.rbuf))} // the receive buffer, which is not exported
	buf := make([]byte, 4096)
	for len(*s) > 0 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		switch s.Next() % 8 {
		case 0: // anything
			peer.Post(s, s.Number(), exported, inside)
		case 1, 2: // a message
			peer.Send(min(int(s.Next()), 256), s.Number()%3)
		case 3: // credits
			peer.Send(0, s.Number()&creditMask|creditOnly)
		case 4:
			n, err := victim.Recv(ctx, buf[:min(int(s.Number()&0xFFFF), len(buf))])
			if n > victim.MaxRecv() || errors.Is(err, syscall.EMSGSIZE) && n == 0 {
				t.Errorf("received %d bytes, %v", n, err)
			}
		case 5:
			victim.Send(ctx, buf[:min(s.Number(), uint32(len(buf)))])
		case 6:
			token := Token{peer.MR.Addr() + uint64(s.Number()), uint64(s.Number()), peer.MR.RKey() ^ roce.RKey(s.Next()&1), ReadWrite | Atomic}
			switch off := int(s.Number() & 0xFFFF); s.Next() % 3 {
			case 0:
				victim.Read(ctx, token, off, buf[:s.Next()])
			case 1:
				victim.Write(ctx, token, off, buf[:s.Next()])
			case 2:
				victim.FetchAdd(ctx, token, off, 1)
			}
		case 7:
			switch s.Next() % 16 {
			case 0:
				e.Close()
			case 1:
				peer.Conn.Disconnect(ctx)
			default:
				time.Sleep(time.Duration(s.Next()) * time.Millisecond)
			}
		}
		cancel()
	}
	start := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	victim.Disconnect(ctx)
	victim.Close()
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v", took)
	}
	if guard := bytes.Repeat([]byte{0xA5}, 100); !bytes.Equal(guarded[:100], guard) || !bytes.Equal(guarded[8100:], guard) {
		t.Error("memory beside the export was written")
	}
}

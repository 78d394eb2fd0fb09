package ofi

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func FuzzPrivateData(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x05hello and more"))
	f.Add([]byte{255, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		got := unwrapPrivate(b)
		if len(b) > 0 && !bytes.Equal(got, b[1:1+len(got)]) || len(got) > 255 {
			t.Fatalf("%x became %x", b, got)
		}
		wrapped, err := wrapPrivate("fuzz", got)
		if err != nil {
			if len(got) <= MaxPrivateData {
				t.Fatal(err)
			}
			return
		}
		if again := unwrapPrivate(append(wrapped, make([]byte, 100)...)); !bytes.Equal(again, got) {
			t.Fatalf("%x became %x", got, again)
		}
	})
}

// FuzzPeer makes a peer that uses verbs follow a script, while the program uses the endpoint. With every
// script no call hangs, nothing panics, memory is bounded, each receive completes at most once, and memory
// beside the region does not change.
func FuzzPeer(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{64, 5, 1, 0, 5, 0, 1, 4, 1, 3, 3, 0, 130, 2, 6, 7, 8, 3, 9, 10, 11, 12})
	f.Add(bytes.Repeat([]byte{32, 2, 7, 3, 0, 1, 136, 3, 200, 2, 1, 5, 4, 1, 6, 1}, 12))
	tooltest.Fuzz(f, fuzzPeer)
}

// The same with random scripts.
func TestHostilePeers(t *testing.T) { tooltest.Random(t, fuzzPeer) }

// victim is an endpoint with everything it needs.
type victim struct {
	eq *EQ
	cq *CQ
	ep *Endpoint
	mr *MR
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func fuzzPeer(t *testing.T, script tooltest.Script) {
	a, b := tooltest.Pair(t, fault.Config{})
	info, err := GetInfo(a, tooltest.Server4, "0", Source, nil)
	check(t, err)
	fabric, err := OpenFabric(info)
	check(t, err)
	domain, err := fabric.OpenDomain(info)
	check(t, err)
	v := &victim{eq: fabric.OpenEQ()}
	pep, err := fabric.OpenPassive(info, v.eq, nil)
	check(t, err)
	check(t, pep.Listen())
	defer pep.Close()
	guarded := bytes.Repeat([]byte{0xA5}, 4296)
	v.mr, err = domain.RegMR(guarded[100:4196], SendAccess|RecvAccess|RemoteRead|RemoteWrite)
	check(t, err)
	v.cq, err = domain.OpenCQ(0, FormatData)
	check(t, err)
	tooltest.Bounded(t, 8<<20, func() {
		accepted := make(chan error, 1)
		go func() { accepted <- v.accept(domain) }()
		private := bytes.Repeat([]byte{script.Next()}, int(script.Next())%57)
		peer, err := tooltest.Connect(t, b, pep.Name().String(), int(script.Next()), func(*roce.MR) []byte { return private })
		check(t, err)
		defer peer.Close()
		check(t, <-accepted)
		v.abuse(t, &script, peer, guarded[100:4196])
	})
	if guard := bytes.Repeat([]byte{0xA5}, 100); !bytes.Equal(guarded[:100], guard) || !bytes.Equal(guarded[4196:], guard) {
		t.Error("memory beside the region was written")
	}
	check(t, v.mr.Close())
	check(t, v.cq.Close())
	check(t, domain.Close())
}

// accept takes the first request.
func (v *victim) accept(d *Domain) error {
	ev, err := v.eq.Read(context.Background())
	if err != nil {
		return err
	}
	if v.ep, err = d.OpenEndpoint(ev.Info, nil); err != nil {
		return err
	}
	v.ep.BindEQ(v.eq)
	v.ep.BindCQ(v.cq, true, true)
	if err := v.ep.Enable(); err != nil {
		return err
	}
	if err := v.ep.Accept(nil); err != nil {
		return err
	}
	_, err = v.eq.Read(context.Background())
	return err
}

// abuse plays the script.
func (v *victim) abuse(t *testing.T, s *tooltest.Script, peer *tooltest.Peer, mem []byte) {
	area := tooltest.Area{Addr: v.mr.Addr(), Key: roce.RKey(v.mr.Key()), Len: uint32(len(mem))}
	posted, received := 0, 0
	read := func() {
		var entries [4]Entry
		n, err := v.cq.Read(entries[:])
		for _, e := range entries[:n] {
			if e.Context == "receive" {
				received++
			}
			if e.Flags&OpRecv != 0 && e.Len > len(e.Buf) {
				t.Errorf("a message of %d bytes in a buffer of %d", e.Len, len(e.Buf))
			}
		}
		if e, ok := err.(*CQError); ok && e.Context == "receive" {
			received++
		}
	}
	for len(*s) > 0 {
		switch s.Next() % 8 {
		case 0, 1: // anything
			peer.Post(s, s.Number(), area)
		case 2:
			peer.Send(int(s.Next()), s.Number())
		case 3:
			if v.ep.Recv(mem[:s.Next()], v.mr, "receive") == nil {
				posted++
			}
		case 4:
			read()
		case 5:
			v.ep.Send(mem[:s.Next()], v.mr, "send")
		case 6:
			n := s.Next()
			v.ep.Read(mem[:n], v.mr, peer.MR.Addr()+uint64(s.Number()), uint64(peer.MR.RKey())^uint64(n&1), "read")
		case 7:
			switch s.Next() % 16 {
			case 0:
				v.ep.Cancel("receive")
			case 1:
				ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
				peer.Conn.Disconnect(ctx)
				cancel()
			case 2:
				v.eq.TryRead()
			default:
				time.Sleep(time.Duration(s.Next()) * time.Millisecond)
			}
		}
	}
	for range 3 * posted {
		read()
	}
	if received > posted {
		t.Errorf("%d receives completed, %d were posted", received, posted)
	}
	start := time.Now()
	v.ep.Close()
	if took := time.Since(start); took > time.Second {
		t.Errorf("Close took %v", took)
	}
}

package tooltest

import (
	"context"
	"math/rand/v2"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/objects"
)

// Script is the input of a fuzzer: its bytes choose what a hostile peer does.
type Script []byte

// Fuzz calls play with the inputs of a fuzzer, in simulated time.
func Fuzz(f *testing.F, play func(*testing.T, Script)) {
	f.Fuzz(func(t *testing.T, script []byte) {
		synctest.Test(t, func(t *testing.T) { play(t, script[:min(len(script), 400)]) })
	})
}

// Random calls play with random scripts, in simulated time.
func Random(t *testing.T, play func(*testing.T, Script)) {
	rng := rand.NewChaCha8([32]byte{1})
	for range 50 {
		script := make([]byte, 300)
		rng.Read(script)
		synctest.Test(t, func(t *testing.T) { play(t, script) })
	}
}

// Next removes and returns the next byte, 0 after the end.
func (s *Script) Next() (b byte) {
	if len(*s) > 0 {
		b, *s = (*s)[0], (*s)[1:]
	}
	return b
}

// Number removes and returns the next number. Numbers at limits of the protocols are likely.
func (s *Script) Number() uint32 {
	limits := [...]uint32{0, 1, 2, 7, 16, 24, 64, 384, 4096, 4097, 0xFFFF, 0x1_0000, 0x1FFF_FFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF}
	switch b := s.Next(); {
	case b < 128:
		return uint32(b)
	case b < 224:
		return limits[b%16]
	case b < 240:
		return uint32(s.Next())<<8 | uint32(s.Next())
	default:
		return uint32(s.Next())<<24 | uint32(s.Next())<<16 | uint32(s.Next())<<8 | uint32(s.Next())
	}
}

// Area is memory of the victim that a hostile peer knows.
type Area struct {
	Addr uint64
	Key  roce.RKey
	Len  uint32
}

// Peer is the hostile end of a connection: it posts any work request.
type Peer struct {
	Conn *roce.Conn
	MR   *roce.MR // of 128 KiB, which the victim may read and write
	made *objects.Set
}

// Connect connects a hostile peer to addr. It sends private data, and posts receives of 4096 bytes before.
func Connect(t testing.TB, d *roce.Device, addr string, receives int, private func(*roce.MR) []byte) (*Peer, error) {
	t.Helper()
	p := &Peer{made: objects.New(d)}
	p.MR = p.made.MR(128<<10, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead|roce.RemoteAtomic)
	if err := p.made.Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	conn, err := p.made.Conn(d.Dial(ctx, addr, roce.DialConfig{PD: p.made.PD, Param: roce.ConnParam{PrivateData: private(p.MR)},
		QPConfig: roce.QPConfig{Caps: roce.Caps{MaxSendWR: 512, MaxRecvWR: 512, MaxSendSGE: 1, MaxRecvSGE: 1, MaxInlineData: 256}},
		Setup: func(q *roce.QP) error {
			for range receives {
				if err := q.PostRecv(&roce.RecvWR{SG: []roce.SGE{p.MR.SGE(0, 4096)}}); err != nil {
					return err
				}
			}
			return nil
		}}))
	if err != nil {
		return nil, err
	}
	p.Conn = conn
	return p, nil
}

// Close closes everything.
func (p *Peer) Close() { p.made.Close() }

// Post posts a work request that the script chooses: any operation, to any address in or near one of the areas,
// with immediate data. It polls and drops completions.
func (p *Peer) Post(s *Script, imm uint32, areas ...Area) {
	at := areas[int(s.Next())%len(areas)]
	n := min(s.Number(), 64<<10)
	offset := uint64(s.Number())
	if s.Next()%4 != 0 && at.Len > 0 { // mostly within the area
		offset %= uint64(at.Len)
		n = min(n, at.Len-uint32(offset))
	}
	wr := roce.SendWR{RemoteAddr: at.Addr + offset, RKey: at.Key, Imm: imm, SG: []roce.SGE{p.MR.SGE(0, int(n))}}
	switch s.Next() % 10 {
	case 0:
		wr.Opcode = roce.Send
	case 1, 2, 3:
		wr.Opcode = roce.SendImm
	case 4:
		wr.Opcode = roce.Write
	case 5:
		wr.Opcode = roce.Read
	case 6:
		wr.Opcode, wr.SG = roce.FetchAdd, []roce.SGE{p.MR.SGE(0, 8)}
	default:
		wr.Opcode = roce.WriteImm
	}
	p.post(&wr)
}

// Send posts a SEND of n bytes with immediate data.
func (p *Peer) Send(n int, imm uint32) {
	p.post(&roce.SendWR{Opcode: roce.SendImm, Imm: imm, SG: []roce.SGE{p.MR.SGE(0, n)}})
}

// Write posts a WRITE with immediate data. data has at most 256 bytes.
func (p *Peer) Write(to Area, offset int, data []byte, imm uint32) {
	p.post(&roce.SendWR{Opcode: roce.WriteImm, Imm: imm, RemoteAddr: to.Addr + uint64(offset), RKey: to.Key, Inline: data})
}

func (p *Peer) post(wr *roce.SendWR) {
	q := p.Conn.QP()
	q.PostSend(wr) // errors of a failed queue pair and of a full queue are expected
	var wcs [16]roce.WC
	for _, c := range []*roce.CQ{q.SendCQ(), q.RecvCQ()} {
		for c.Poll(wcs[:]) > 0 {
		}
	}
}

// Bounded fails if f allocates more than limit bytes.
func Bounded(t testing.TB, limit uint64, f func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > limit {
		t.Errorf("%d KiB were allocated, the bound is %d KiB", n>>10, limit>>10)
	}
}

package demo

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/goroce/roce"
)

// operation is one line of the demonstration.
type operation struct {
	name  string
	bytes int
	wr    func(p *pair, n int) roce.SendWR
	recv  bool // the server gets a completion
	imm   bool // with the number of the round as immediate data

	// check compares the data and returns an error if it is wrong.
	check func(p *pair, n int) error
}

const (
	inlineSize = 32
	readName   = "RDMA_READ"
)

// operations are the operations of a reliable connection.
var operations = []operation{
	{name: "SEND", bytes: size, recv: true, wr: out(roce.Send, 1), check: arrived(received, size)},
	{name: "SEND_WITH_IMM", bytes: size, recv: true, imm: true, wr: out(roce.SendImm, 1), check: arrived(received, size)},
	{name: "SEND, 4 SGEs", bytes: size, recv: true, wr: out(roce.Send, 4), check: arrived(received, size)},
	{name: "SEND, inline", bytes: inlineSize, recv: true, wr: inline, check: arrived(received, inlineSize)},
	{name: "RDMA_WRITE", bytes: size, wr: out(roce.Write, 1), check: arrived(written, size)},
	{name: "RDMA_WRITE_WITH_IMM", bytes: size, recv: true, imm: true, wr: out(roce.WriteImm, 1), check: arrived(written, size)},
	{name: readName, bytes: size, wr: read, check: fetched},
	{name: "CMP_AND_SWP", bytes: 8, wr: compareSwap, check: swapped},
	{name: "FETCH_AND_ADD", bytes: 8, wr: fetchAdd, check: added},
}

// do does an operation for the n-th time, checks the data and returns the time until its completion.
func (p *pair) do(ctx context.Context, op *operation, n int) (time.Duration, error) {
	wr := op.wr(p, n)
	wr.ID, wr.Flags = uint64(n), roce.Signaled
	start := time.Now()
	if err := p.conn.QP().PostSend(&wr); err != nil {
		return 0, err
	}
	wc, err := p.sendCQ.Next(ctx)
	took := time.Since(start)
	if err == nil {
		err = wc.Status.Err()
	}
	if err == nil && wc.ID != wr.ID {
		err = fmt.Errorf("completion of work request %d, want %d", wc.ID, wr.ID)
	}
	if err == nil && op.recv {
		err = p.receive(ctx, op, n)
	}
	if err != nil {
		return 0, err
	}
	return took, op.check(p, n)
}

// receive waits for the completion at the server and posts the next receive.
func (p *pair) receive(ctx context.Context, op *operation, n int) error {
	wc, err := p.recvCQ.Next(ctx)
	if err == nil {
		err = wc.Status.Err()
	}
	switch {
	case err != nil:
		return fmt.Errorf("server: %w", err)
	case int(wc.ByteLen) != op.bytes:
		return fmt.Errorf("server received %d bytes, want %d", wc.ByteLen, op.bytes)
	case op.imm && wc.Imm != uint32(n):
		return fmt.Errorf("server received immediate %d, want %d", wc.Imm, n)
	}
	return p.postReceive(p.peer.QP())
}

var errWrong = errors.New("wrong data")

// fill writes the message of a round.
func fill(b []byte, n int) {
	x := uint32(n)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = byte(x >> 24)
	}
}

// out returns a function that makes a SEND or WRITE of a message in a number of pieces.
func out(op roce.Opcode, pieces int) func(*pair, int) roce.SendWR {
	return func(p *pair, n int) roce.SendWR {
		fill(p.near.Bytes()[written:][:size], n)
		wr := roce.SendWR{Opcode: op, Imm: uint32(n), RemoteAddr: p.far.Addr() + written, RKey: p.far.RKey()}
		for at, left := 0, pieces; left > 0; left-- {
			length := (size - at) / left
			if left > 1 {
				length = length*2/3 + 1 // the pieces have different lengths
			}
			wr.SG = append(wr.SG, p.near.SGE(written+at, length))
			at += length
		}
		return wr
	}
}

func inline(_ *pair, n int) roce.SendWR {
	b := make([]byte, inlineSize)
	fill(b, n)
	return roce.SendWR{Opcode: roce.Send, Inline: b}
}

// arrived checks the message of a round in the server's memory and clears it.
func arrived(at, length int) func(*pair, int) error {
	return func(p *pair, n int) error {
		want := make([]byte, length)
		fill(want, n)
		got := p.far.Bytes()[at:][:length]
		if !bytes.Equal(got, want) {
			return errWrong
		}
		clear(got)
		return nil
	}
}

// source returns the offset of the READ of a round. Nothing writes to that memory: the responder
// may answer a repeated request after the completion, and a write would be a data race.
func source(n int) int { return readable + n%places }

func read(p *pair, n int) roce.SendWR {
	clear(p.near.Bytes()[readable:])
	return roce.SendWR{Opcode: roce.Read, SG: []roce.SGE{p.near.SGE(readable, size)}, RemoteAddr: p.far.Addr() + uint64(source(n)), RKey: p.far.RKey()}
}

func fetched(p *pair, n int) error {
	if !bytes.Equal(p.near.Bytes()[readable:][:size], p.far.Bytes()[source(n):][:size]) {
		return errWrong
	}
	return nil
}

// atomic returns an operation on the word in the server's memory. Its old value is returned to the
// client's word.
func atomic(p *pair, op roce.Opcode) roce.SendWR {
	return roce.SendWR{Opcode: op, SG: []roce.SGE{p.near.SGE(word, 8)}, RemoteAddr: p.far.Addr() + word, RKey: p.far.RKey()}
}

// compareSwap compares with the right value in even rounds and with a wrong one in odd rounds.
func compareSwap(p *pair, n int) roce.SendWR {
	wr := atomic(p, roce.CompareSwap)
	wr.CompareAdd, wr.Swap = p.value+uint64(n&1), swapValue(n)
	return wr
}

func swapValue(n int) uint64 { return uint64(n+1) * 0x9E3779B97F4A7C15 }

func swapped(p *pair, n int) error {
	if n&1 == 0 {
		return p.checkWord(swapValue(n))
	}
	return p.checkWord(p.value)
}

func fetchAdd(p *pair, n int) roce.SendWR {
	wr := atomic(p, roce.FetchAdd)
	wr.CompareAdd = uint64(n) + 1
	return wr
}

func added(p *pair, n int) error { return p.checkWord(p.value + uint64(n) + 1) }

// checkWord checks that an atomic found the expected value and left next.
func (p *pair) checkWord(next uint64) error {
	was := binary.NativeEndian.Uint64(p.near.Bytes()[word:])
	is := wordValue(p)
	if was != p.value || is != next {
		return fmt.Errorf("%w: found %#x and left %#x, want %#x and %#x", errWrong, was, is, p.value, next)
	}
	p.value = next
	return nil
}

// wordValue returns the word in the server's memory.
func wordValue(p *pair) uint64 { return binary.NativeEndian.Uint64(p.far.Bytes()[word:]) }

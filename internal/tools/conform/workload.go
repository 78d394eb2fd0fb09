package conform

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// The layout of the memory of an end: what is sent lies in the first half, and what is received in the second.
const (
	memory = 512 << 10
	half   = memory / 2
	depth  = 64
)

// messages are Count messages of Size bytes each.
type messages struct{ count, size int }

// stride is the distance between two messages in memory. Between them are bytes that nobody may write.
func (m messages) stride(head int) int { return (m.size+head+7)&^7 + 8 }

const grhLen = 40

// transfer has one end request an operation of the other, and compares the data.
func transfer(ctx context.Context, requester, responder actor, op string, m messages, service string) error {
	if op == "fetch_add" || op == "compare_swap" {
		return atomics(ctx, requester, responder, op, m.count)
	}
	head := 0
	if service == "ud" {
		head = grhLen
	}
	step := m.stride(head)
	source, target := requester, responder
	w := work{Op: op, Size: m.size, Step: step, Far: half, FarStep: step, Count: m.count, Imm: immediate}
	if op == "read" {
		source, target = responder, requester
		w.At, w.Far = half, 0
	}
	if err := source.fill(uint64(m.size)+1, 0, step*m.count); err != nil {
		return err
	}
	if err := target.fill(uint64(m.size)+2, half, step*m.count); err != nil {
		return err
	}
	takes := op == "send" || op == "send_imm" || op == "write_imm"
	if takes {
		size, at := m.size+head, half
		if op == "write_imm" {
			size = 0
		}
		if err := responder.receive(at, size, step, m.count); err != nil {
			return err
		}
	}
	if err := requester.post(w); err != nil {
		return err
	}
	if err := completed(ctx, requester, sends, m, nil); err != nil {
		return err
	}
	if takes {
		var imm *uint32
		if op != "send" {
			imm = &w.Imm
		}
		if err := completed(ctx, responder, receives, messages{m.count, m.size + head}, imm); err != nil {
			return err
		}
	}
	if service == "uc" && op == "write" { // nothing says that it has arrived
		return eventually(ctx, func() error { return compare(source, target, op, m, head) })
	}
	return compare(source, target, op, m, head)
}

// What an unreliable service sends is on its way for so long at most.
const (
	arriveTime = 2 * time.Second
	arriveStep = 20 * time.Millisecond
)

// eventually calls f until it succeeds, for a while.
func eventually(ctx context.Context, f func() error) error {
	for until := time.Now().Add(arriveTime); ; {
		err := f()
		if err == nil || time.Now().After(until) {
			return err
		}
		pause := time.NewTimer(arriveStep)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
	}
}

// immediate is the immediate data of messages that have some.
const immediate = 0x5EED1234

// completed waits for completions, which must be good. With receives it compares lengths, and immediate data if there is some.
func completed(ctx context.Context, a actor, queue queueName, m messages, imm *uint32) error {
	list, err := a.wait(ctx, queue, m.count)
	if err != nil {
		return err
	}
	for i, d := range list {
		switch {
		case d.Status != success:
			return fmt.Errorf("%s %d of %d ends with %q", queue, i+1, m.count, d.Status)
		case queue == sends:
		case d.Bytes != m.size:
			return fmt.Errorf("message %d of %d has %d bytes, want %d", i+1, m.count, d.Bytes, m.size)
		case imm != nil && (!d.HasImm || d.Imm != *imm):
			return fmt.Errorf("message %d of %d has immediate data %#x, want %#x", i+1, m.count, d.Imm, *imm)
		}
	}
	return nil
}

// compare compares what was sent with what has arrived.
func compare(source, target actor, op string, m messages, head int) error {
	step := m.stride(head)
	for i := range m.count {
		want, err := source.sum(i*step, m.size)
		if err != nil {
			return err
		}
		got, err := target.sum(half+i*step+head, m.size)
		if err != nil {
			return err
		}
		if got != want {
			return fmt.Errorf("data mismatch: %s %d of %d, %d bytes, has other data at its target than at its source", op, i+1, m.count, m.size)
		}
	}
	return nil
}

// word is the number in a word of memory. Both ends are taken to have the byte order of this host.
func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// atomics has one end do atomics on a word of the other, and compares what they return and what they leave.
func atomics(ctx context.Context, requester, responder actor, op string, count int) error {
	if err := responder.fill(uint64(count), 0, 8); err != nil {
		return err
	}
	b, err := responder.peek(0, 8)
	if err != nil {
		return err
	}
	before := word(b)
	w := work{Op: op, At: half, Size: 8, Step: 8, Count: count, Add: 1}
	value := func(i int) uint64 { return before + uint64(i) } // before atomic i
	if op == "compare_swap" {
		w.Add, w.Swap = before, before+0x0123_4567_89AB_CDEF
		value = func(i int) uint64 {
			if i == 0 {
				return before
			}
			return w.Swap
		}
	}
	if err := requester.post(w); err != nil {
		return err
	}
	if err := completed(ctx, requester, sends, messages{count, 8}, nil); err != nil {
		return err
	}
	results, err := requester.peek(half, 8*count)
	if err != nil {
		return err
	}
	for i := range count {
		if got := word(results[8*i:]); got != value(i) {
			return fmt.Errorf("data mismatch: %s %d of %d returns %#x, want %#x", op, i+1, count, got, value(i))
		}
	}
	if b, err = responder.peek(0, 8); err != nil {
		return err
	}
	if got := word(b); got != value(count) {
		return fmt.Errorf("data mismatch: %d atomics of the kind %s leave %#x, want %#x", count, op, got, value(count))
	}
	return nil
}

// unready has the requester send before the responder has receives, and posts these once seen says that the responder has said so.
func unready(ctx context.Context, requester, responder actor, m messages, seen func() error) error {
	step := m.stride(0)
	if err := requester.fill(1, 0, step*m.count); err != nil {
		return err
	}
	if err := requester.post(work{Op: "send", Size: m.size, Step: step, Count: m.count}); err != nil {
		return err
	}
	if err := seen(); err != nil {
		return fmt.Errorf("no RNR NAK for a SEND without a receive: %w", err)
	}
	if err := responder.receive(half, m.size, step, m.count); err != nil {
		return err
	}
	if err := completed(ctx, requester, sends, m, nil); err != nil {
		return err
	}
	if err := completed(ctx, responder, receives, m, nil); err != nil {
		return err
	}
	return compare(requester, responder, "send", m, 0)
}

// denied has the requester write where the responder has no memory. The request must fail.
func denied(ctx context.Context, requester actor) error {
	if err := requester.post(work{Op: "write", Size: 8, Far: memory, Count: 1}); err != nil {
		return err
	}
	list, err := requester.wait(ctx, sends, 1)
	if err != nil {
		return err
	}
	if got := list[0].Status; got != refused {
		return fmt.Errorf("a WRITE beyond the memory of the responder ends with %q, want %q", got, refused)
	}
	return nil
}

package conform

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// The memory of an end: the first half is the source of data, the second half is the target.
const (
	memory = 512 << 10
	half   = memory / 2
	depth  = 64
)

// messages are count messages of size bytes each.
type messages struct{ count, size int }

// stride returns the distance between two messages in memory. Between two messages there is a gap of at least 8 bytes.
func (m messages) stride(head int) int { return (m.size+head+7)&^7 + 8 }

const grhLen = 40

// transfer does count operations of one kind from the requester to the responder, and compares the data.
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
	if service == "uc" && op == "write" { // there is no completion when it arrives
		return eventually(ctx, func() error { return compare(source, target, op, m, head) })
	}
	return compare(source, target, op, m, head)
}

const (
	arriveTime = 2 * time.Second       // how long eventually waits for a message of an unreliable service
	arriveStep = 20 * time.Millisecond // how often it checks
)

// eventually calls f until it succeeds or arriveTime has passed. It returns the last error of f.
func eventually(ctx context.Context, f func() error) (err error) {
	ended := again(ctx, arriveTime, arriveStep, func() bool {
		err = f()
		return err == nil
	})
	return cmp.Or(ended, err)
}

// immediate is the immediate data of messages that have immediate data.
const immediate = 0x5EED1234

// completed waits for completions, and returns an error unless all are successful. For receives it also compares the lengths and, unless imm
// is nil, the immediate data.
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

// compare compares the data at the target with that at the source.
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

// word returns the number in a word of memory. It assumes that both ends have the byte order of this host.
func word(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

// atomics does count atomics on a word of the responder. It checks the values that they return, and the value at the end.
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
	value := func(i int) uint64 { return before + uint64(i) } // the value of the word before atomic i
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

// unready tests SENDs that find no receive. The requester sends, seen waits for the RNR NAK, and then the responder posts receives.
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

// denied tests a WRITE behind the end of the responder's memory. The WRITE must fail.
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

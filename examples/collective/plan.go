package main

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/goroce/roce"
)

// plan is a node's part of an operation: the channels from which it receives one message each, and the messages
// that it sends.
type plan struct {
	recvs []int
	sends []step
}

// step is a message that a node sends after it has received from the channels in after. The message is an area of
// its memory, the sum of several, or empty.
type step struct {
	link  int
	after []int
	data  []int
}

// recvTasks are the receives of a plan.
func (n *node) recvTasks(p plan) (tasks []roce.Task) {
	for _, l := range p.recvs {
		tasks = append(tasks, roce.Task{QP: n.links[l].qp, Recvs: []roce.RecvWR{{SG: []roce.SGE{n.at(arrived + l)}}}})
	}
	return tasks
}

// message is the work request of a step.
func (n *node) message(data []int) roce.SendWR {
	wr := roce.SendWR{Opcode: roce.Send, Flags: roce.Signaled}
	for _, area := range data {
		wr.SG = append(wr.SG, n.at(area))
	}
	if len(data) > 1 {
		wr.Flags |= roce.WithCalc
		wr.Calc = roce.Calc{Op: roce.CalcAdd, Type: roce.CalcInt}
	}
	return wr
}

// runList posts a plan as one list of tasks and waits for its end.
//
// The queue pair of each step waits for the receives before it. The end of the list waits for all receives and
// for the acknowledgements of all messages to others: only then may the program change its numbers. The end is on
// the channel to the node itself, after the messages of that channel.
func (n *node) runList(ctx context.Context, p plan) error {
	tasks := n.recvTasks(p)
	others, toSelf := 0, 0
	for _, s := range p.sends {
		var wrs []roce.SendWR
		for _, l := range s.after {
			wrs = append(wrs, n.links[l].recv.WaitWR(0, 1, 0))
		}
		tasks = append(tasks, roce.Task{QP: n.links[s.link].qp, Sends: append(wrs, n.message(s.data))})
		if s.link == dims {
			toSelf++
		} else {
			others++
		}
	}
	var end []roce.SendWR
	for _, l := range p.recvs {
		end = append(end, n.links[l].recv.WaitWR(0, 1, roce.WaitEnLast))
	}
	if others > 0 {
		end = append(end, n.sent.WaitWR(0, uint32(others), roce.WaitEnLast))
	}
	end[len(end)-1].Flags |= roce.Signaled
	tasks = append(tasks, roce.Task{QP: n.links[dims].qp, Sends: end})
	if bad, err := n.dev.PostTask(tasks); err != nil {
		return fmt.Errorf("task %d: %w", bad, err)
	}
	if err := take(ctx, n.done, toSelf+1); err != nil {
		return err
	}
	return n.connected()
}

// connected returns an error if a channel has failed. A failed channel does not end a list: the list also counts the
// completions of failed work requests, and the program does not poll them.
func (n *node) connected() error {
	for l, c := range n.links {
		if s := c.qp.State(); s != roce.StateRTS {
			return fmt.Errorf("the queue pair of channel %d is in %v", l, s)
		}
	}
	return nil
}

// runSteps runs a plan without lists: the program waits for each message, adds, and posts the next.
func (n *node) runSteps(ctx context.Context, p plan) error {
	if bad, err := n.dev.PostTask(n.recvTasks(p)); err != nil {
		return fmt.Errorf("task %d: %w", bad, err)
	}
	received := map[int]bool{}
	receive := func(channels []int) error {
		for _, l := range channels {
			if received[l] {
				continue
			}
			if err := take(ctx, n.links[l].recv, 1); err != nil {
				return err
			}
			received[l] = true
		}
		return nil
	}
	for _, s := range p.sends {
		if err := receive(s.after); err != nil {
			return err
		}
		data := s.data
		if len(data) > 1 {
			n.add(data)
			data = []int{sum}
		}
		wr := n.message(data)
		if err := n.links[s.link].qp.PostSend(&wr); err != nil {
			return err
		}
		completions := n.sent
		if s.link == dims {
			completions = n.done
		}
		if err := take(ctx, completions, 1); err != nil { // the area of the sum is free again
			return err
		}
	}
	return receive(p.recvs)
}

// add sums areas.
func (n *node) add(data []int) {
	b := n.mr.Bytes()[sum*n.numbers*8:]
	for i := range n.numbers {
		var total int64
		for _, area := range data {
			total += n.number(area, i)
		}
		binary.BigEndian.PutUint64(b[i*8:], uint64(total))
	}
}

// take takes count completions from a queue. All must be successes.
func take(ctx context.Context, c *roce.CQ, count int) error {
	for range count {
		wc, err := c.Next(ctx)
		if err != nil {
			return err
		}
		if err := wc.Err(); err != nil {
			return err
		}
	}
	return nil
}

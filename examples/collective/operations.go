package main

import (
	"fmt"
	"math/bits"
)

// operation is a collective operation: the plan of each node, and the result that it must leave.
type operation struct {
	name         string
	synchronizes bool // no node leaves before all have entered
	plan         func(n *node) plan
	check        func(n *node, round int) error
}

var operations = []operation{
	{"barrier", true, barrier, func(*node, int) error { return nil }},
	{"broadcast", false, broadcast, checkBroadcast},
	{"all-reduce", true, allReduce, checkAllReduce},
}

// barrier sends a message to the neighbour of each bit in turn. The message means that all nodes whose numbers differ
// from the sender's only in the bits before have entered.
func barrier(*node) (p plan) {
	for l := range dims {
		p.recvs = append(p.recvs, l)
		p.sends = append(p.sends, step{link: l, after: p.recvs[:l]})
	}
	return p
}

// broadcast sends the numbers of node 0 along a binomial tree: a node receives them on the channel of its highest
// bit and sends them on the channels above.
func broadcast(n *node) (p plan) {
	first := bits.Len(uint(n.rank))
	from := own
	if n.rank != 0 {
		p.recvs = []int{first - 1}
		from = arrived + first - 1
	}
	for l := first; l < dims; l++ {
		p.sends = append(p.sends, step{link: l, after: p.recvs, data: []int{from}})
	}
	return p
}

func checkBroadcast(n *node, round int) error {
	area := own
	if n.rank != 0 {
		area = arrived + bits.Len(uint(n.rank)) - 1
	}
	for i := range n.numbers {
		if got, want := n.number(area, i), value(0, round, i); got != want {
			return fmt.Errorf("number %d is %d, want %d", i, got, want)
		}
	}
	return nil
}

// allReduce exchanges sums with the neighbour of each bit in turn. Each step doubles the number of nodes in a
// node's sum, which adds its own numbers and all that have arrived. A node sends the last sum to itself.
func allReduce(*node) (p plan) {
	data := []int{own}
	for l := range dims + 1 {
		p.recvs = append(p.recvs, l)
		p.sends = append(p.sends, step{link: l, after: p.recvs[:l], data: data[:l+1]})
		data = append(data, arrived+l)
	}
	return p
}

func checkAllReduce(n *node, round int) error {
	for i := range n.numbers {
		var want int64
		for rank := range size {
			want += value(rank, round, i)
		}
		if got := n.number(arrived+dims, i); got != want {
			return fmt.Errorf("sum %d is %d, want %d", i, got, want)
		}
	}
	return nil
}

// Package nic is the core of a device: it moves packets between the ports of a network
// card and the engines of queue pairs. The public objects of package roce use it; the
// protocol is in the lower packages qp and cm.
//
// # What it owns
//
// A [NIC] has one [Shard] for each port. A shard owns its port, the queue pairs that send
// through it, their deadlines, and the packets that the device sends to itself. One mutex
// guards all of that; a goroutine that enters a shard takes it once for a batch of packets, not once
// for a packet.
//
// # How work gets done
//
// Every entry into a shard does its own work and ends with finish: queue pairs that have
// something to send build packets, the port's driver gets the packets in one batch, the
// loopback runs, and then the goroutine makes the waiting calls without the lock. There
// are four kinds of callers:
//
//   - the background goroutine of the shard ([Shard.run]), which waits at the port for
//     packets and for the next deadline;
//   - a program that posts ([QP.Post]): it transmits on its own goroutine, so that a post
//     costs no switch;
//   - a program that polls an empty completion queue in a loop ([Shard.PollEmpty]): the background
//     goroutine pauses meanwhile. A goroutine that waits for completions, and usually waits again
//     soon, also polls before it blocks ([Shard.SpinFor]);
//   - a program that polls or waits on a polled device ([NIC.Wait], [Shard.Poll]), which has no
//     background goroutine.
//
// # Where to look
//
//	nic.go        the NIC: opening, closing, stopping all shards
//	qp.go         a queue pair in this package: its engine, its sink, its lists
//	receive.go    the path of a packet from the port to its queue pair, and every check on it
//	transmit.go   queue pairs build packets, the driver sends them
//	shard.go      a shard, and the end of an entry
//	background.go the goroutine of a shard: when it polls, yields and sleeps
//	polling.go    programs that poll, for which the background goroutine pauses
//	eager.go      goroutines that poll before they block, because they usually wait again soon
//	vain.go       polls without success on a shared processor
//	gather.go     posts of goroutines that one batch has woken
//	wait.go       callers that wait, which drive a polled NIC
//	demux.go      queue pair numbers
//	filter.go     the queue pairs in the filter of a driver that drops packets early
//	groups.go     multicast groups
//	loopback.go   packets of the device to itself
//	sharing.go    packets from and to other processes on the address
//	inbox.go      packets from one shard to another
//	calls.go      calls that are made without the lock
//	port.go       the state of the port, and its reports
//	follow.go     follows the network interface: its addresses, MTU and removal
//	qp1.go        QP 1, the management queue pair, as this package sees it
//	trace.go      regions in traces of the Go runtime
package nic

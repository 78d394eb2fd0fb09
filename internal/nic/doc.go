// Package nic is the machine room of a device: it moves packets between the ports of a
// network card and the engines of queue pairs. The public objects of package roce stand on
// it; the protocol is below it, in packages qp and cm.
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
// something to send build packets, the port's driver gets them in one batch, the loopback
// runs, and then, without the lock, the calls that wait are made. Three kinds of
// callers enter:
//
//   - the background goroutine of the shard ([Shard.run]), which waits at the port for
//     packets and for the next deadline;
//   - a program that posts ([QP.Post]): it transmits on its own goroutine, so that a post
//     costs no switch;
//   - a program that polls an empty completion queue in a loop ([Shard.PollEmpty]): the background
//     goroutine pauses meanwhile;
//   - a program that polls or waits on a polled device ([NIC.Wait], [Shard.Poll]), which has no
//     background goroutine.
//
// # Where to look
//
//	nic.go        the NIC: opening, closing, stopping all shards
//	qp.go         a queue pair as the machine room sees it
//	receive.go    a packet on its way from the port to its queue pair, and every check on it
//	transmit.go   queue pairs build packets, the driver sends them
//	shard.go      what a shard is, and how an entry ends
//	background.go the goroutine of a shard: when it looks for packets, yields and sleeps
//	polling.go    programs that poll, for which the background goroutine pauses
//	wait.go       callers that wait, which drive a polled NIC
//	demux.go      queue pair numbers
//	filter.go     which queue pairs a driver that drops packets early knows
//	groups.go     multicast groups
//	loopback.go   packets of the device to itself
//	inbox.go      packets from one shard to another
//	calls.go      calls that are made without the lock
//	port.go       whether the port works, and what is reported of it
//	follow.go     follows the network interface: its addresses, MTU and removal
//	qp1.go        what QP 1, the management queue pair, has to do for the machine room
package nic

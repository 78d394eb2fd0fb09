// Package share lets several processes use one network address as one network card would
// serve them: each has queue pairs, connections and listeners of its own, and the kernel hands
// each packet to the process that it is for.
//
// # Slots
//
// An address has [Slots] slots. A queue pair number modulo Slots is a slot, and so is a
// communication ID. A process takes one slot for each queue of its device, and draws its
// numbers from them. So a packet says by itself which process it is for, and so do all
// management datagrams but requests, which name a service: the board has who listens.
//
// # The keeper
//
// One of the processes is the keeper: it hands out slots, grants services, and cleans up
// behind processes that died. It keeps nothing that the others lack. All hold the sockets of
// all slots, so a socket outlives its process, and all map the board, the memory that says who
// has which slot, who listens, and who is connected to whom. When the keeper dies the kernel
// frees its name, an abstract Unix socket, and the first of the others that binds it is the
// next keeper. Data and requests to connect never pass through the keeper.
//
// Nothing of this is in the file system, so nothing stays behind.
//
// # Where to look
//
//	place.go          what a process has on an address: the interface to the rest of the stack
//	steer.go          which slot a packet is for, in Go and as a program for the kernel
//	join_linux.go     entering, and finding the next keeper
//	keeper_linux.go   what the keeper does
//	message_linux.go  what keeper and processes say to each other
//	board_linux.go    the memory that all processes map
//	pass_linux.go     packets from one process of the host to another
//	courier_linux.go  those for which the other process had no room
//	bag_linux.go      descriptors that all processes hold
//	conns_linux.go    connections whose peers are told when the process dies
//	list_linux.go     who is on which address
//	stranger_linux.go  other users who take the names of slots
//	access_linux.go   which users share
//	namespace_linux.go  the network namespace of an address
package share

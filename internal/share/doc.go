// Package share lets several processes use one network address, as they can use one network
// card: each has its own queue pairs, connections and listeners, and the kernel delivers each
// packet to its process.
//
// # Slots
//
// An address has [Slots] slots. The slot of a queue pair number or communication ID is
// the number modulo Slots. A process has one slot for each queue of its device, and
// chooses its numbers from these slots. So each packet identifies its process, and so do
// management datagrams except requests. A request names a service, and the board has the
// listener of each service.
//
// # The keeper
//
// One of the processes is the keeper: it gives out slots, grants services, and cleans up after
// processes that died. It has no state that the others lack. All processes hold the sockets of
// all slots, so a socket outlives its process, and all map the board: the memory with the
// owners of slots, the listeners and the connections. When the keeper dies, the kernel frees
// its name, an abstract Unix socket, and the first of the others that binds the name is the
// next keeper. Data and connection requests with a listener never pass through the keeper.
//
// Sharing uses no files, so nothing stays behind.
//
// # Where to look
//
//	place.go          what a process has on an address: the interface to the rest of the stack
//	steer.go          which slot a packet is for, in Go and as a program for the kernel
//	join_linux.go     entering, and finding the next keeper
//	keeper_linux.go   what the keeper does
//	message_linux.go  the messages between keeper and processes
//	board_linux.go    the memory that all processes map
//	pass_linux.go     packets from one process of the host to another
//	courier_linux.go packets for which the other process had no room
//	bag_linux.go      descriptors that all processes hold
//	conns_linux.go    connections whose peers are told when the process dies
//	list_linux.go lists the processes on all addresses
//	stranger_linux.go  other users who take the names of slots
//	access_linux.go   which users share
//	namespace_linux.go  the network namespace of an address
package share

// Package roce is an RDMA NIC in software, in pure Go: RoCEv2 queue pairs, memory regions,
// completion queues and the connection manager. It speaks the protocol of hardware adapters and
// of Linux rxe over any [link.Port]: a switch in the process, an Ethernet interface through a
// packet socket or AF_XDP, or UDP sockets.
//
// # Objects
//
// A [Device] is a NIC with addresses. It has protection domains ([PD]), memory regions ([MR]),
// completion queues ([CQ]), queue pairs ([QP]) and shared receive queues ([SRQ]), with the meaning
// that they have in the verbs. Doc comments name the ibv_* or rdma_* call that corresponds to a
// function. [Device.Listen] and [Device.Dial] connect queue pairs through the RDMA connection
// manager. [QP.Connect] connects a queue pair without it, which is the only way for XRC ([XRCD]).
// UD queue pairs need no connection: an [AH] in each work request names the destination, which may
// be a multicast group ([QP.AttachMulticast]). [Device.ListenUD] and [Device.ResolveUD] exchange
// the numbers of UD queue pairs between two programs.
//
// # Errors
//
// A refused call returns an error that unwraps to the errno of the verbs: errors.Is(err,
// syscall.EINVAL). A refused call changes nothing. If a work request fails later, its completion
// has a Status. Close of an object that is in use fails with EBUSY. A closed object returns
// [ErrClosed], also from a second Close.
//
// # Waiting
//
// [CQ.Next] and [CQ.Wait] wait for completions of one queue; on a [CompChannel] a program waits for
// several queues. [CQ.Poll] does not wait. [Device.NextEvent] waits for asynchronous events: errors
// of a queue pair that no completion reports, lost completions, and changes of the port, its
// addresses and the device.
//
// # Memory
//
// Besides [PD.RegMR] there are memory windows, which open a part of a region to peers for some time
// ([MW]); fast registrations, for memory that a program registers for every command ([FastMR],
// [FastRegPool]); indirect regions, which put scattered memory behind one key ([IndirectMR]); and
// null regions, which skip bytes of a message ([NullMR]).
//
// The program owns the memory that it registers. The engine reads and writes this memory while a
// work request is in progress; a peer that has the key may do so at any time. When the program has
// polled a completion, the data of its message is visible. For data that a peer writes without a
// completion, use [MR.Load64] and [MR.Flushes]. docs/memory.md has the rules.
//
// # Congestion
//
// With Options.Congestion queue pairs reduce their rate when the network marks their packets, as
// hardware adapters do (DCQCN): see docs/congestion-control.md.
//
// # Goroutines
//
// A device runs one goroutine for each of its ports, unless it is opened Polled. A device of
// [OpenInterface] runs another one, which sleeps until the interface changes. While the device
// decides on an alternate path that a peer proposes, it runs one more goroutine for that connection.
// A post sends packets on the caller's goroutine. Any goroutine may call any method at any time.
// docs/memory.md says which methods may read and write memory while a peer does.
package roce

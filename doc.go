// Package roce is an RDMA NIC in software: RoCEv2 queue pairs, memory regions
// and completion queues, and the connection manager, in pure Go. It speaks the
// protocol of hardware adapters and of Linux rxe over any [link.Port]: an
// in-process switch, an Ethernet interface through a packet socket or AF_XDP, or UDP
// sockets.
//
// # Objects
//
// A [Device] is a NIC with addresses. On it live protection domains ([PD]),
// memory regions ([MR]), completion queues ([CQ]), queue pairs ([QP]) and shared
// receive queues ([SRQ]), with the meaning the verbs give them; doc comments
// name the ibv_* and rdma_* calls they stand for. [Device.Listen] and
// [Device.Dial] connect queue pairs through the RDMA connection manager;
// [QP.Connect] connects them by hand, and those of XRC ([XRCD]) only by hand. UD
// queue pairs need no connection: an [AH] in each work request says where it goes,
// also to multicast groups ([QP.AttachMulticast]); [Device.ListenUD] and
// [Device.ResolveUD] tell them of each other.
//
// # Errors
//
// A call that is refused returns an error that unwraps to the errno of the
// verbs: errors.Is(err, syscall.EINVAL). A refused call changes nothing and leaves nothing
// behind. What goes wrong later is the Status of
// a completion. Objects that are still in use refuse to close with EBUSY; what is used
// after its Close says [ErrClosed], and so does a second Close.
//
// # Waiting
//
// [CQ.Next] and [CQ.Wait] wait for completions of one queue, a [CompChannel] for
// those of several, [CQ.Poll] for none. [Device.NextEvent] waits for what nobody
// asked for: errors of a queue pair that no completion reports, lost
// completions, and what becomes of the port, its addresses and the device.
//
// # Memory
//
// Besides [PD.RegMR] there are memory windows, which open a part of a region to
// peers for a while ([MW]); fast registrations, for memory that is registered
// for every command ([FastMR], [FastRegPool]); and indirect regions, which put
// scattered memory behind one key ([IndirectMR]).
//
// Registered memory stays the program's. The engine copies into and out of it
// while a work request is in progress, and a peer with the key at any time. A
// completion that was polled makes the data of its message visible. What a peer
// writes without one can be seen by [MR.Load64] and [MR.Flushes]; docs/memory.md
// has the rules.
//
// # Congestion
//
// With Config.Congestion queue pairs slow down when the network says so, as
// hardware adapters do (DCQCN): see docs/congestion-control.md.
//
// # Goroutines
//
// A device runs one goroutine for each of its ports, unless it is opened
// Polled; one of [OpenInterface] runs another, which sleeps until something
// becomes of the interface. While a peer's offer of an alternate path is decided about, one
// more runs for that connection. Posting sends on the caller's goroutine. All methods
// may be called from any goroutine, side by side. Of memory this is true of the methods that
// look at it, as far as docs/memory.md says: bytes are only bytes.
package roce

// Package rdmacm is the RDMA connection manager, librdmacm, for devices of this
// module: identifiers, event channels and the synchronous mode, for the port
// spaces TCP (RC), UDP (UD) and IB (RC, UC). It interoperates with librdmacm of
// Linux.
//
// Programs that only need a connection use [roce.Device.Dial] and
// [roce.Device.Listen]. Programs that were written for librdmacm, and
// programs that make thousands of connections at once, use this package.
//
// # Modes
//
// An [ID] with a [Channel] is asynchronous: calls start an operation and
// return, and an [Event] of the channel has the outcome. An ID without a
// channel is synchronous: calls wait for their event, and [ID.Event] returns
// it. If the context of such a call ends first, the operation continues;
// destroy the ID.
//
// The calls and [Channel.Next] move the queue pair of an ID through its states,
// and to ERR when either side ends the connection.
//
// # Queue pairs of the program
//
// An ID need not have its own queue pair: Connect and Accept can instead name the number of a queue pair
// that the program has made. The program moves this queue pair to RTR and RTS with the attributes of
// [ID.InitQPAttr]: before Accept and, on the other side, after ConnectResponse, which it answers by
// [ID.Establish]. At the end it moves the queue pair to ERR itself. [ID.SetQPType] sets types that CreateQP
// does not make. librdmacm.so.1 (cverbs) is such a program. It takes its events with [Channel.TryNext] after
// calls of its [Channel.NotifyFunc], and polls its completions before it gets Disconnected: [Host.UnreadFunc].
//
// # Destroying
//
// Events need no acknowledgement. [ID.Destroy] does not wait: it drops pending events of
// the ID, and rejects connection requests among them. Events that the program has taken
// stay valid; operations on their ID fail with EINVAL.
//
// # Errors
//
// Errors wrap the errno that the C call returns: for instance errors.Is(err,
// syscall.EADDRINUSE). A call that does not fit the state of its ID fails with
// EINVAL. If the peer refuses, the error is a *[roce.RejectError] or a
// *[roce.ResolveError]; both wrap ECONNREFUSED. Ports below 1024 need no
// privilege.
//
// An [*Error] names its ID: "id 3", or "listener 7471" once the ID listens.
//
// # What it owns
//
// A [Host] owns the ports of a machine and the protection domains that its IDs share; its lock
// guards these. An ID owns its connection, listeners and groups, and the queue pair that
// [ID.CreateQP] made. An ID has two locks: one serializes calls that start an operation of the
// connection manager, the other guards the fields. Event handlers take only the second one.
// Package internal/gsi calls handlers without a lock.
//
// # Names
//
//	C                            Go
//	rdma_create_event_channel    Host.NewChannel
//	rdma_destroy_event_channel   Channel.Close
//	rdma_get_cm_event            Channel.Next
//	rdma_ack_cm_event            not needed
//	rdma_event_str               EventType.String
//	rdma_create_id               Host.CreateID
//	rdma_destroy_id              ID.Destroy
//	rdma_migrate_id              ID.Migrate
//	rdma_set_option              ID.SetTOS, SetReuseAddr, SetAFOnly, SetAckTimeout
//	rdma_create_ep               Host.CreateEP
//	rdma_destroy_ep              ID.DestroyEP
//	rdma_getaddrinfo             Host.GetAddrInfo
//	rdma_freeaddrinfo            not needed
//	rdma_get_devices             Host.Devices
//	rdma_free_devices            not needed
//	rdma_bind_addr               ID.Bind
//	rdma_resolve_addr            ID.ResolveAddr
//	rdma_resolve_route           ID.ResolveRoute
//	rdma_listen                  ID.Listen
//	rdma_get_request             ID.GetRequest
//	rdma_connect                 ID.Connect
//	rdma_establish               ID.Establish
//	rdma_accept                  ID.Accept
//	rdma_reject                  ID.Reject
//	rdma_reject_ece              ID.RejectFor
//	rdma_notify                  ID.Notify
//	rdma_disconnect              ID.Disconnect
//	rdma_create_qp               ID.CreateQP
//	rdma_destroy_qp              ID.DestroyQP
//	rdma_create_srq              ID.CreateSRQ
//	rdma_destroy_srq             ID.DestroySRQ
//	rdma_init_qp_attr            ID.InitQPAttr
//	rdma_join_multicast(_ex)     ID.JoinMulticast
//	rdma_leave_multicast         ID.LeaveMulticast
//	rdma_get_src_port            ID.SrcPort
//	rdma_get_dst_port            ID.DstPort
//	rdma_get_local_addr          ID.LocalAddr
//	rdma_get_peer_addr           ID.PeerAddr
//	rdma_reg_msgs                ID.RegMsgs
//	rdma_reg_read                ID.RegRead
//	rdma_reg_write               ID.RegWrite
//	rdma_dereg_mr                MR.Close
//	rdma_post_recv(v)            ID.PostRecv
//	rdma_post_send(v)            ID.PostSend
//	rdma_post_read(v)            ID.PostRead
//	rdma_post_write(v)           ID.PostWrite
//	rdma_post_ud_send            ID.PostUDSend
//	rdma_get_send_comp           ID.SendComp
//	rdma_get_recv_comp           ID.RecvComp
//	(ib_send_cm_lap)             ID.LoadAlternate, ConnParam.Alternate
//	(ib_send_cm_apr)             ID.OnAlternate
//
// The package does not have AF_IB addresses, enhanced connection establishment
// (rdma_set_local_ece) and the option of level IB: these belong to InfiniBand's
// subnet manager or to vendors.
package rdmacm

// Package cm is the InfiniBand communication manager as RoCEv2 uses it: the
// management datagrams (MADs) that set up and tear down RC connections and that
// look up UD services, and the state machines behind them. It follows IBTA
// volume 1 chapter 12 and annex A11 (RDMA IP CM service), and where the two
// leave room, it does what Linux's ib_cm and rdma_cm do.
//
// # Contract
//
// The package does no I/O. It has no goroutine, lock, clock or random source of
// its own: time and randomness are arguments. One [Manager] serves one device
// and is used by one goroutine at a time.
//
//   - In: [Manager.HandleMAD] for each datagram that arrives for QP 1,
//     [Manager.HandleTimeout] when the instant of [Manager.NextTimeout] has come,
//     and the operations ([Manager.Listen], [Manager.Connect], [Conn.Accept], …).
//   - Out: after any of them, poll [Manager.NextMAD] until it has no more, then
//     [Manager.NextEvent] until it has no more, then read [Manager.NextTimeout].
//     Events may lead to further operations, so poll again afterwards.
//
// Time never goes back. Spurious calls are no-ops. Nothing of a received MAD is
// kept by reference. Hostile MADs are counted and dropped, or rejected.
//
// # Connections
//
// The active side calls Connect, gets [ConnectResponse], moves its QP to RTS
// with [Conn.QPAttr] and calls [Conn.ReadyToUse]. The passive side gets
// [ConnectRequest], moves its QP to RTS with [Conn.AcceptAttr], calls Accept and
// gets [Established]. Either side ends with [Conn.Disconnect]; the other gets
// [DisconnectRequest] and answers with its own Disconnect. [TimewaitExit] says
// that the QPN may be used again towards the same peer.
//
// A connection may have an alternate path, for its QP to change over to: by
// ConnectParam.Alternate, or later by [Conn.LoadAlternate], which the peer answers
// by [Conn.AnswerAlternate]. [Conn.Migrated] says that it has changed over. Linux
// has none of this on RoCE: it ignores LAP and APR.
//
// XRC connections are made by transport Extended, to listeners that ask for them.
//
// Every Conn ends in exactly one of: [Conn.Destroy], or an event after which its
// state is [StateIdle]. The Manager forgets it then; there is nothing to free.
//
// # What it owns
//
// A Manager owns its connections, listeners, queries and inquiries, their timers, and the MADs and
// events that wait. It bounds all of them ([Config]), since peers cause most of them. It knows
// queue pairs by number only. The caller's lock guards it: in this module that of the first shard,
// by package internal/gsi.
//
// # Not here
//
// Reliable datagram, redirection, and the address and route resolution of
// rdma_cm.
package cm

// Package cm is the InfiniBand communication manager as RoCEv2 uses it: the
// management datagrams (MADs) that set up and tear down RC connections and that
// look up UD services, and the state machines behind them. It follows IBTA
// volume 1 chapter 12 and annex A11 (RDMA IP CM service). Where these leave a
// choice, it follows Linux's ib_cm and rdma_cm.
//
// # Contract
//
// The package does no I/O. It has no goroutine, lock, clock or random source of
// its own: time and randomness are arguments. One [Manager] serves one device
// and is used by one goroutine at a time.
//
//   - In: [Manager.HandleMAD] for each datagram that arrives for QP 1,
//     [Manager.HandleTimeout] at the time of [Manager.NextTimeout], and the
//     operations ([Manager.Listen], [Manager.Connect], [Conn.Accept], …).
//   - Out: after any of them, poll [Manager.NextMAD] until it has no more, then
//     [Manager.NextEvent] until it has no more, then read [Manager.NextTimeout].
//     Events may lead to further operations, so poll again afterwards.
//
// Time never goes back. Spurious calls do nothing. The Manager keeps no
// reference to a received MAD. It counts hostile MADs, and drops or rejects
// them.
//
// # Connections
//
// The active side calls Connect, gets [ConnectResponse], moves its QP to RTS
// with [Conn.QPAttr] and calls [Conn.ReadyToUse]. The passive side gets
// [ConnectRequest], moves its QP to RTS with [Conn.AcceptAttr], calls Accept and
// gets [Established]. Either side ends with [Conn.Disconnect]; the other gets
// [DisconnectRequest] and answers with its own Disconnect. After [TimewaitExit]
// the QPN may be used again with the same peer.
//
// A connection may have an alternate path, to which its QP can migrate: by
// ConnectParam.Alternate, or later by [Conn.LoadAlternate], which the peer answers
// by [Conn.AnswerAlternate]. The owner reports a migration by [Conn.Migrated].
// Linux does not support this on RoCE: it ignores LAP and APR.
//
// XRC connections use transport Extended, and listeners with ListenParam.XRC.
//
// A Conn ends by [Conn.Destroy] or by an event after which its state is
// [StateIdle]. The Manager then drops the Conn; the owner need not free
// anything.
//
// # What it owns
//
// A Manager owns its connections, listeners, queries and inquiries, their timers, and the MADs and
// events that wait. It bounds all of them ([Config]), because peers cause most of them. It knows
// queue pairs by number only. The caller's lock guards it: in this module the lock of the first
// shard, in package internal/gsi.
//
// # Not here
//
// Reliable datagram, redirection, and the address and route resolution of
// rdma_cm.
package cm

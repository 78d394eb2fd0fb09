// Package gsi is QP 1 of a device, the general services interface. It sends and receives
// the datagrams of the connection manager (package cm), and provides a lock, a clock,
// paths and queue pairs for it.
//
// Each device has an [Agent]. Dial, Listen, ListenUD and ResolveUD of package roce use
// it, and so does package rdmacm. It belongs to the first shard of the NIC, whose lock
// guards everything in it.
//
// # A request from arrival to REP
//
// When a REQ arrives, the shard passes the packet to [Agent.Receive], and the manager makes
// a connection and an event. [Agent.Collect] turns the event into a [Conn] and a call, and
// a goroutine makes the call of the [Listener]'s handler without the lock. The program
// answers by [Conn.Accept], which enters the shard and calls the manager; at its end the
// REP leaves through QP 1 ([Agent.Post]).
//
// # What it owns
//
// An Agent owns the connection manager, QP 1, the paths of QP 1 to peers, and the objects of this
// package. It changes queue pairs by the functions of package nic only, and paths by those of
// package route. A [Conn] and an [Inquiry] also have a mutex, for the fields that handlers read;
// it is taken last.
//
// # Handlers
//
// Handlers are called without a lock, one at a time and in order, on a goroutine with
// other work: a handler must not wait. It may call any function of this package.
package gsi

// Package gsi is QP 1 of a device, the general services interface: it carries the
// datagrams of the connection manager, package cm, and gives that a lock, a clock, paths
// and queue pairs.
//
// [Agent] is one device's. Dial, Listen, ListenUD and ResolveUD of package roce stand on
// it, and so does package rdmacm. It lives on the first shard of the NIC, whose lock
// guards everything in it.
//
// # A request from arrival to REP
//
// A REQ arrives: the shard hands the packet to [Agent.Receive], the manager makes a
// connection of it and an event, [Agent.Collect] makes a [Conn] and a call of the event,
// and without the lock the call reaches the handler of the [Listener]. The program answers
// by [Conn.Accept], which enters the shard, calls the manager and ends with the REP leaving
// through QP 1 ([Agent.Post]).
//
// # What it owns
//
// An Agent owns the connection manager, QP 1, the paths to the peers that QP 1 writes to, and the
// objects of this package. It may touch queue pairs, by the functions of package nic, and paths,
// by those of package route. A [Conn] and an [Inquiry] have a mutex besides, for the fields that
// handlers read; it is taken last.
//
// # Handlers
//
// Handlers are called without a lock, one at a time and in order, on a goroutine that has
// other work to do: a handler must not wait. It may call anything here.
package gsi

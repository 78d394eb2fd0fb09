// Package gsi is QP 1 of a device, the general services interface: it carries the
// datagrams of the connection manager, package cm, and gives that a lock, a clock, paths
// and queue pairs.
//
// [Agent] is one device's. Dial, Listen, ListenUD and ResolveUD of package roce stand on
// it, and so does package rdmacm. It lives on the first shard of the NIC, whose lock
// guards everything in it.
//
// # The way of a request
//
// A REQ arrives: the shard hands the packet to [Agent.Receive], the manager makes a
// connection of it and an event, [Agent.Collect] makes a [Conn] and a call of the event,
// and without the lock the call reaches the handler of the [Listener]. The program answers
// by [Conn.Accept], which enters the shard, calls the manager and ends with the REP leaving
// through QP 1 ([Agent.Post]).
//
// # Handlers
//
// Handlers are called without a lock, one at a time and in order, on a goroutine that has
// other work to do: a handler must not wait. It may call anything here.
package gsi

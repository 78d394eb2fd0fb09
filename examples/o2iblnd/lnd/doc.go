// Package lnd is the protocol of o2iblnd as state machines without I/O: [Conn] is an established
// connection, [NI] decides who may connect. Time is an argument, no goroutine is started, and one
// goroutine at a time may call the methods of an object.
//
// # A connection
//
// The driver calls a method for everything that happens: [Conn.Receive] for a SEND of the peer,
// [Conn.Sent] for the completion of a SEND, [Conn.Timeout] when [Conn.NextTimeout] has come,
// [Conn.Submit] and the Accept and Refuse methods for what the layer above wants. After each of
// them it takes all results of [Conn.Poll] and acts on them in order: it posts a [Transmit], hands an
// [Arrival] or a [Finished] to the layer above, ends the connection for a [Closed].
//
// # Flow control
//
// Each side posts 2·depth+2 receives. A message of type IMMEDIATE, PUT_REQ or GET_REQ spends a
// credit, of which there are depth; the receiver gives it back in the next message, once it has
// posted the receive again. A request also spends a reservation: the receive that is kept for its
// answer. If a side owes many credits and has nothing to send, it sends a NOOP.
package lnd

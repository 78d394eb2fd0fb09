// Package lnd is the protocol of o2iblnd as state machines without I/O: a [Conn] is an established
// connection, and an [NI] decides on connection requests. Methods take the time as an argument. The package starts
// no goroutine, and one goroutine at a time may call the methods of an object.
//
// # A connection
//
// The driver calls a method for everything that happens: [Conn.Receive] for a SEND of the peer,
// [Conn.Sent] for the completion of a SEND, [Conn.Timeout] at the time of [Conn.NextTimeout], and
// [Conn.Submit] and the Accept, Refuse and Serve methods for the layer above. After each call the driver takes
// all results of [Conn.Poll] and acts on them in order: it posts a [Transmit], hands an
// [Arrival] or a [Finished] to the layer above, and ends the connection for a [Closed].
//
// # Flow control
//
// Each side posts 2·depth+2 receives, and begins with depth credits. A message of type IMMEDIATE, PUT_REQ or GET_REQ
// spends a credit. When the receiver has posted the receive again, it returns the credit in its
// next message. A PUT_REQ or GET_REQ also spends a reservation: a receive that its sender reserves for the
// answer. If a side owes many credits and has nothing to send, it sends a NOOP.
package lnd

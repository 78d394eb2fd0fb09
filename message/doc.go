// Package message is RDMA for Go services: messages that arrive whole and in
// order, and memory that each side can export to the other. It uses only the
// public verbs of package roce.
//
//	conn, err := message.Dial(ctx, nic, "10.0.0.1:9000", message.Config{})
//	err = conn.Send(ctx, []byte("hello"))
//	n, err := conn.Recv(ctx, buf)
//
//	token, err := conn.Export(buf, message.ReadWrite) // here; send the token to the peer
//	err = conn.Write(ctx, token, 0, data)             // there
//
// # Backpressure
//
// The peer's Config.Depth bounds the messages that a sender has sent and the peer has
// not received by Recv. The next Send waits until one is received, or until its
// context ends. No message is dropped, and every queue is bounded.
//
// # Peers
//
// Only this side's [Config] determines the memory of a connection, never the peer. A
// [Listener] does at most Config.Backlog handshakes at a time, makes the buffers of a
// connection when the peer has confirmed it, and delays further requests while
// Config.Backlog connections wait for Accept. A peer that violates the protocol ends
// its own connection (EPROTO) and has no other effect.
//
// # Cancellation
//
// Every call that waits has a context. When the context ends, the call returns at
// once, and the caller may reuse its memory, because transfers use buffers of the
// connection. The peer may or may not have received a canceled Send, Write or
// atomic. The connection stays usable.
//
// # Memory
//
// [Conn.Export] gives only the peer of this connection access to memory, until
// the export is closed. The peer's accesses cause no event on this side, so
// the programs must agree by messages on the use of the memory. If the peer
// sends a message after its Write has returned, the message arrives after the
// data.
package message

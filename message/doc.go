// Package message is RDMA for Go services: messages that arrive whole and in
// order, and memory that each side may let the other use. It is built on the
// public verbs of package roce alone.
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
// A sender may have as many messages with the peer that nobody has received as the
// peer's Config.Depth says. The next Send waits until one is received, or its context
// ends. No message is dropped, and no queue is without bound.
//
// # Peers
//
// The memory of a connection follows from this side's [Config], never from what the
// peer says. A [Listener] does at most Config.Backlog handshakes at a time, makes the
// buffers of a connection when the peer has confirmed it, and holds back further
// requests while Config.Backlog connections wait for Accept. A peer that breaks the
// protocol ends its connection (EPROTO), and harms nothing else.
//
// # Cancellation
//
// Every call that waits takes a context. When it ends the call returns at once
// and the memory it was given is the caller's again: transfers go through
// buffers of the connection. A canceled Send, Write or atomic may or may not have
// happened. The connection stays usable.
//
// # Memory
//
// [Conn.Export] makes memory usable by the peer of this connection, and by
// nobody else, until the export is closed. The peer uses it without this side
// taking part: what it writes appears without notice, so agree by messages who
// uses what when. A message sent after a Write has returned arrives after the
// data.
package message

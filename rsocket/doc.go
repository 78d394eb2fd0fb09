// Package rsocket is a byte stream over RDMA with the wire protocol of
// librdmacm's rsockets: a net.Conn and a net.Listener for programs that use
// RDMA without verbs. It interoperates with rstream, riostream and programs
// under librspreload.
//
//	l, err := rsocket.Listen(dev, "10.0.0.1:7471", rsocket.Config{}) // rsocket, rbind, rlisten
//	c, err := rsocket.Dial(ctx, dev, "10.0.0.1:7471", rsocket.Config{}) // rsocket, rconnect
//
// # How it works
//
// A stream is one reliable connection. Each side owns a receive buffer, of which
// the peer may fill one half at a time, and a small table in which the peer
// announces the halves that it may fill next. The sender writes data into the
// peer's buffer by RDMA WRITE with immediate; the immediate has the length. When
// a receiver has read half a buffer, or half of the messages that it can hold, it
// writes a new entry into the sender's table, or only a new limit of messages. So
// a sender never overruns its peer. Write copies the data into the send buffer,
// and Read copies it out of the receive buffer; the devices of both sides copy,
// too, as a NIC does by DMA.
//
// Any host can request a stream from a [Listener]. It therefore bounds the number
// of simultaneous handshakes, and offers a small buffer for the first data. It
// makes the buffers of [Config] when the peer has confirmed the connection.
//
// [Conn.Map] lets the peer write to memory of this side by offset ([Conn.WriteAt]
// of the peer), without the stream's buffers. Such writes are in order with the
// stream: when this side has read data that the peer sent after a write, the
// write is done.
//
// # Closing
//
// [Conn.Close] waits until the peer has all written data and has confirmed the
// end, at most Config.Linger, like close(2) with SO_LINGER. [Conn.CloseWrite] ends
// one direction; the peer reads io.EOF after the data. CloseWrite ends waiting
// Writes, Close ends all waiting calls. They wait neither for the reader or writer
// of an io.Copy, nor until the peer has read the data.
package rsocket

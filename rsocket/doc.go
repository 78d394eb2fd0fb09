// Package rsocket is a byte stream over RDMA that speaks the protocol of
// librdmacm's rsockets: a net.Conn and a net.Listener for programs that want
// RDMA without verbs, compatible on the wire with rstream, riostream and every
// program run under librspreload.
//
//	l, err := rsocket.Listen(dev, "10.0.0.1:7471", rsocket.Config{}) // rsocket, rbind, rlisten
//	c, err := rsocket.Dial(ctx, dev, "10.0.0.1:7471", rsocket.Config{}) // rsocket, rconnect
//
// # How it works
//
// A stream is one reliable connection. Each side owns a receive buffer, of which
// the peer may fill one half at a time, and a small table in which the peer
// announces the halves that it may fill next. Data goes by RDMA WRITE with
// immediate into the peer's buffer; the immediate says how much. A receiver that
// has read half a buffer, or half of the messages it can take, writes a new entry
// into the sender's table, or just a new limit. So a sender never overruns its
// peer. Write copies the data into the send buffer, and Read copies it out of the
// receive buffer; the device copies on either side, too, as a NIC would by DMA.
//
// Everybody can ask a [Listener] for a stream. It therefore does a bounded number
// of handshakes at a time, and offers a small buffer for the first data. It makes
// the buffers of [Config] when the peer has confirmed the connection.
//
// [Conn.Map] lets the peer write to memory of this side by offset ([Conn.WriteAt]
// there), past the stream and its buffers. Such writes are in order with the
// stream: who has read what was sent after them finds them done.
//
// # Closing
//
// [Conn.Close] waits until the peer has everything that was written and has
// confirmed the end, at most Config.Linger, as close(2) with SO_LINGER.
// [Conn.CloseWrite] ends one direction; the peer reads io.EOF after the data. Both
// end the calls that wait: a Write in CloseWrite, every call in Close. They do not
// wait for the reader or writer at the other side of an io.Copy, nor for the peer
// to read.
package rsocket

// Package pingpong is the protocol of rdma-core's ibv_rc_pingpong and its
// siblings for other services, either role: the two sides tell each other their
// queue pairs over TCP, then bounce a message to and fro.
//
// The exchange over TCP: the client writes its [Addr] as a record of text,
// reads the server's, and writes "done". Nothing follows on that connection.
// The message is bytes of 0x7b, the client sends first, and either side sends
// again once it has received.
package pingpong

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

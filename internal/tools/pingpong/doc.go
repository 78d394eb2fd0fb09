// Package pingpong is the protocol of rdma-core's ibv_rc_pingpong and its
// siblings for other services, either role: the two sides exchange the addresses of
// their queue pairs over TCP, then send a message to and fro.
//
// The exchange over TCP: the client writes its [Addr] as a record of text, reads the
// server's, and writes "done". The connection carries nothing else. The message is bytes of
// 0x7b. The client sends first, and either side sends again once it has received.
package pingpong

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

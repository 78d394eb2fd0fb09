// Package perftest is the protocol of linux-rdma/perftest's ib_*_bw programs, either
// role, over the queue pairs of a device.
//
// The two ends meet by TCP. In every step the client writes first and the server
// answers in kind:
//
//   - the version, 16 bytes of text ([Version]); from 6.28 on both, which this
//     package avoids, parameters are negotiated in binary,
//   - the size of the buffer that small messages go round in, the cache line that
//     they are apart in it, four bytes big endian each; the larger counts,
//   - the path MTU, a digit of enum ibv_mtu and a NUL; the smaller counts,
//   - a [Dest], three times: the queue pair, "I am connected", "go",
//   - then the client does its work, which the server does not see,
//   - a [Dest] again, and the five numbers of a [Report],
//   - a [Dest], and both write "done" and hang up.
//
// A server of SENDs has a part in the work: it asks for a [Dest] more before, when its
// receives are posted, and measures itself, so there is no report.
//
// perftest reads each of these with one read(2), so each leaves in one write.
package perftest

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

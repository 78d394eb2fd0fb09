// Package perftest is the protocol of linux-rdma/perftest's programs ib_*_bw and
// ib_*_lat, either role, over the queue pairs of a device.
//
// The two ends meet by TCP. In every step the client writes first and the server
// answers in kind:
//
//   - the version, 16 bytes of text ([Version]); from 6.28 on both, which this
//     package avoids, parameters are negotiated in binary,
//   - the size of the buffer that small messages go round in, the cache line that
//     they are apart in it, four bytes big endian each; the larger counts,
//   - the path MTU, a digit of enum ibv_mtu and a NUL; the smaller counts,
//   - then nothing but a [Dest] again and again, and reports.
//
// "One" is the [Dest] of the first queue pair, "all" are those of all, one by one:
//
//	send_*       all, one, all | before each size: one
//	*_bw         all, all, one | each size, if both ends send: one before it
//	*_lat        one, all, all, one
//
// The first "all" is what the queue pairs are connected by; what follows says that they
// are, and that memory is as it shall be. Then there is work, of which the server of
// *_bw, read_lat and atomic_lat sees nothing. When it is done:
//
//	send_bw      if both ends send and for no duration: reports | of all sizes: one behind each
//	*_bw         both ends send: of all sizes one, then reports | otherwise, behind the last size: one, reports
//	             and in the end of all but write_lat: one, and both write "done" and hang up
//
// A report is five numbers of [Report], one by one. write_lat has no end: each program
// just leaves when it has what it wants.
//
// With -R all this goes over a connection of the connection manager, each step one SEND,
// with addresses in binary. Behind the MTU there is a Dest full of zeros, then each
// queue pair is connected at the same port by the connection manager, and another such
// Dest follows. Nobody writes "done".
//
// perftest reads each of these with one read(2), so each leaves in one write.
package perftest

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

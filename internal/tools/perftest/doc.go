// Package perftest is the protocol of linux-rdma/perftest's programs ib_*_bw and
// ib_*_lat, either role, over the queue pairs of a device.
//
// The two ends connect by TCP. In every step the client writes first, and the server answers with a
// record of the same kind:
//
//   - the version, 16 bytes of text ([Version]); two ends of 6.28 or later, which this package
//     avoids, negotiate parameters in binary,
//   - the size of the buffer through which small messages cycle, then the cache line, the least
//     distance of two messages, four bytes big endian each; the larger one is used,
//   - the path MTU, a digit of enum ibv_mtu and a NUL; the smaller one is used,
//   - then only [Dest] records, and reports.
//
// "One" is the [Dest] of the first queue pair, "all" are those of all, one by one:
//
//	send_*       all, one, all | before each size: one
//	*_bw         all, all, one | each size, if both ends send: one before it
//	*_lat        one, all, all, one
//
// The first "all" has the addresses to which the queue pairs connect. The next records say that the queue pairs
// are connected and the memory is initialised. Then the test runs; the server of one-sided tests
// does nothing. After the test:
//
//	send_bw      if both ends send and for no duration: reports | of all sizes: one after each
//	*_bw         both ends send: of all sizes one, then reports | otherwise, after the last size: one, reports
//	             and in the end of all but write_lat: one, and both write "done" and hang up
//
// A report is five numbers of [Report], one by one. write_lat has no end: each program exits when it
// has received everything.
//
// With -R all this goes over a connection of the connection manager, each step one SEND,
// with addresses in binary. Behind the MTU there is a Dest full of zeros, then each
// queue pair is connected at the same port by the connection manager, and another such
// Dest follows. The ends do not write "done".
//
// perftest reads each of these with one read(2), so each is sent with one write(2).
package perftest

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

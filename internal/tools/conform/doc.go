// Package conform tests a live peer: it runs operations of all kinds with it, without and with faults in the path and by scripts, judges
// every packet of the peer by package verify, and makes a report card of it.
//
//	           this process                                the peer
//	workload - device - faults - tap - driver ==== network ==== the tested device
//	                              |
//	                              +- verify: the peer's packets as it sends them, ours as they arrive there
//
// The tap is between the faults and the network. So for the rules the place of the capture is the peer: what the peer sends is seen before a
// fault can lose it, and what a fault has lost on the way to the peer is not seen at all.
//
// A peer is one of three. [Serve] makes one of any device of this stack: a control connection makes its queue pairs, posts and
// reports, so each operation goes both ways ([docs/conform.md] has the protocol). perftest's servers and rping are peers as they are.
//
// Every step opens the local device anew, and closes it. So nothing of a step is left to the next, and nothing at all
// to the host.
//
// [docs/conform.md]: https://github.com/goroce/roce/blob/main/docs/conform.md
package conform

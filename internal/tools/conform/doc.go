// Package conform tests a live peer. It runs operations of all kinds with the peer, without and with faults in the path, and plays
// scripts. It judges every packet of the peer with package verify, and writes a report card.
//
//	           this process                                the peer
//	workload - device - faults - tap - driver ==== network ==== the tested device
//	                              |
//	                              +- verify: the peer's packets as it sends them, ours as they arrive there
//
// The tap is between the faults and the network. Therefore the capture is like one that was made at the peer: the tap sees the packets of
// the peer before a fault can drop them, and does not see packets to the peer that a fault has dropped.
//
// There are three kinds of peers. [Serve] is a peer on any device of this stack. The tester tells it over a control connection which
// queue pairs to create and what to post, so each operation is tested in both directions ([docs/conform.md] has the protocol). perftest's
// servers and rping are the other kinds.
//
// Every step opens the local device and closes it again. Therefore no state is left for the next step, or on the host.
//
// [docs/conform.md]: https://github.com/goroce/roce/blob/main/docs/conform.md
package conform

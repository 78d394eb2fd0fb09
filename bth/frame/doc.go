// Package frame encodes and parses the headers around a RoCEv2 packet, its
// envelope: Ethernet, an optional 802.1Q tag, IPv4 or IPv6, and UDP.
//
//	+----------+--------+----------------+-----+-----------------------------+-----+
//	| Ethernet | 802.1Q | IPv4 or IPv6   | UDP | BTH … payload, pad, ICRC    | FCS |
//	| 14       | 4, or  | 20       40    | 8   | package bth                 |     |
//	|          | absent |                |     |                             |     |
//	+----------+--------+----------------+-----+-----------------------------+-----+
//	^ LayoutEthernet    ^ LayoutIP             ^ LayoutUDP
//
// A [Path] is one way to a peer, with prepared headers; its Put writes them and returns
// the CRC register after them. A [Packet] is the reverse: its Parse checks and strips
// the envelope and parses the packet inside. A protocol engine writes packets to a
// [Sink] without knowing which driver sends them.
//
// Nothing here allocates per packet, and no received bytes can make it panic.
package frame

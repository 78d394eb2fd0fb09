// Package frame is what surrounds a RoCEv2 packet on the way: Ethernet, an
// optional 802.1Q tag, IPv4 or IPv6, and UDP.
//
//	+----------+--------+----------------+-----+-----------------------------+-----+
//	| Ethernet | 802.1Q | IPv4 or IPv6   | UDP | BTH … payload, pad, ICRC    | FCS |
//	| 14       | 4, or  | 20       40    | 8   | package bth                 |     |
//	|          | absent |                |     |                             |     |
//	+----------+--------+----------------+-----+-----------------------------+-----+
//	^ LayoutEthernet    ^ LayoutIP             ^ LayoutUDP
//
// A [Path] is one way to a peer with its headers made up in advance; its Put
// writes them and hands back the CRC register after them. A [Packet] is the
// reverse: its Parse checks and strips the envelope and parses what is inside.
// A [Sink] is where a protocol engine writes packets without knowing which driver sends
// them.
//
// Nothing here allocates per packet, and no received bytes can make it panic.
package frame

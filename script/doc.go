// Package script plays a RoCE peer that a script describes packet by packet: which packets it sends, with which fields, and
// which it expects. Such a peer can break the protocol in a precise way, the same in each run. docs/script.md describes the language.
//
//	# The responder answers a packet behind a gap with a NAK that has the PSN of the first missing packet.
//	rule "9.7.5.2.8"
//	connect verbs rc recv=1
//	send SEND_ONLY psn=+1 ackreq len=100
//	expect NAK_SEQUENCE psn=+0 msn=0
//
// [Parse] reads a script and reports errors with line and column. [Run] plays it against a peer. The peer is a program, to which the
// script connects by the connection manager or by perftest's exchange over TCP, or it is a [Target], a device that the script controls.
// With a [Session] a Go program does the same statement by statement.
//
// Package library has scripts with expected results for this stack and Linux rxe.
package script

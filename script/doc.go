// Package script plays a RoCE peer that a text describes packet by packet: which packets it sends, with which fields, and
// which it expects. Such a peer misbehaves exactly, and always in the same way. docs/script.md describes the text.
//
//	# A packet behind a gap is answered by a NAK that names the first missing packet.
//	rule "9.7.5.2.8"
//	connect verbs rc recv=1
//	send SEND_ONLY psn=+1 ackreq len=100
//	expect NAK_SEQUENCE psn=+0 msn=0
//
// [Parse] reads a script and reports errors with line and column. [Run] plays it against a peer: a program behind a
// connection of the connection manager or of perftest's exchange over TCP, or a device that the script controls, a
// [Target]. A [Session] is the same for Go: its methods are the verbs of the text.
//
// Package library has scripts with expected results for this stack and Linux rxe.
package script

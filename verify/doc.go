// Package verify judges captures of RoCEv2 traffic: it says which end of which connection broke which
// rule of the InfiniBand Architecture Specification, in which frames, and why.
//
// [Files] and [Read] judge captures, [Capture] fails a test that has one, and [Tap] fails a test as
// soon as a packet breaks a rule. [Rules] lists the rules. Beneath all of these is a [Verifier]: packets
// go in with their times, findings come out. It reads no clock and does no I/O.
//
// # What a finding is worth
//
// A capture shows packets at one place. What was lost before that place is not in it, and what was lost behind it
// is, although it never arrived. Every rule here holds wherever the capture was made, or is applied only where the capture says
// which host it was made on: by [Config.At], or by [Config.Directions] if the file has the direction of each packet.
// What a capture cannot tell is a [Limit] of the report, with the frame where it begins: PSNs that are
// missing, connections whose beginning or whose other direction is not there, packets cut short.
//
// # What is known already
//
// Some implementations depart from the standard in known ways, and this stack has extensions. A finding of that kind has a [Departure],
// which says whose it is and where it is described; it is listed, and is no failure unless [Config.Strict]
// is set. [Departures] lists them.
package verify

// Package verify judges captures of RoCEv2 traffic: it says which end of which connection broke which
// rule of the InfiniBand Architecture Specification, in which frames, and why.
//
// [Files] and [Read] judge captures. [Capture] fails a test if a capture breaks a rule, and [Tap] fails a test as
// soon as a packet breaks a rule. [Rules] lists the rules. Beneath all of these is a [Verifier]: packets
// go in with their times, findings come out. It reads no clock and does no I/O.
//
// # What a finding is worth
//
// A capture shows packets at one place. A packet that was lost before that place is not in the capture. A packet that was lost
// behind it is in the capture, although it never arrived. Some rules hold wherever the capture was made. The others are applied only
// if the host of the capture is known: from [Config.At], or from [Config.Directions] if the file has the direction of each packet.
// If a capture cannot answer a question, the report has a [Limit] with the frame where this begins. Examples are missing PSNs,
// connections without their beginning or one direction, and packets that are cut short.
//
// # Known departures
//
// Some implementations depart from the standard in known ways, and this stack has extensions. A finding of that kind has a [Departure],
// which names the implementation and the page that describes it. The report lists such a finding, but it is a failure only if
// [Config.Strict] is set. [Departures] returns all departures.
package verify

// Package scenario tests whole devices: its tests open devices, connect them and watch what
// the public objects of package roce do. It has no other purpose, and no program imports it.
//
// The first word of a file name is the concern:
//
//	api        what every call refuses, leaves behind and allows from several goroutines
//	bench      benchmarks
//	conn       connections: dialling, refusing, migrating, ending
//	device     opening, querying, events, shards, loopback, closing
//	host       devices on interfaces of the kernel, in network namespaces
//	hostile    strangers and floods
//	memory     regions, windows, atomics, FLUSH, polled memory
//	packets    the same packets, received in batches and one by one
//	rig        what the scenarios are made of
//	transfer   data on every kind of queue pair
//	wait       completion queues, channels, sleeping, waking
//
// # How a scenario is written
//
// bubble gives the test a time of its own, in which only waiting takes time. newNetwork is a
// switch in memory, its device method plugs a device in, newPair connects two queue pairs
// with memory (peer). newAttacker is somebody else on the switch, who sends any packet under
// any address. A feeder is a port that hands a device the frames of the test.
//
// A test on interfaces makes its network by internal/netlab. It needs root and skips without,
// except under make netns. Its file ends in _linux_test.go.
//
// With the flag -earlydrop the ports of all devices drop early, by a model of what a driver's
// program in the kernel does (linktest.Filtered): no scenario may notice.
//
// What no public call tells, a test reaches through internal/inside: rig_inside_test.go.
//
// A test closes what it opens: the package fails if a goroutine is left at the end ([Run]).
package scenario

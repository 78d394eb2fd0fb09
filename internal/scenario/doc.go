// Package scenario tests whole devices: its tests open devices, connect them and watch what
// the public objects of package roce do. It has no other purpose, and no program imports it.
//
// The first word of a file name is the concern:
//
//	api        every call: errors, leaks, and use from several goroutines
//	bench      benchmarks
//	conn       connections: dialling, refusing, migrating, ending
//	device     opening, querying, events, shards, loopback, closing
//	host       devices on interfaces of the kernel, in network namespaces
//	hostile    strangers and floods
//	memory     regions, windows, atomics, FLUSH, polled memory
//	packets    the same packets, received in batches and one by one
//	rig        shared parts of the scenarios
//	transfer   data on every kind of queue pair
//	wait       completion queues, channels, sleeping, waking
//
// # How a scenario is written
//
// bubble gives the test a simulated time, in which only waiting takes time. newNetwork is a switch in memory, its device
// method plugs a device in, newPair connects two queue pairs with memory (peer). newAttacker is another host on the
// switch, which sends any packet under any address. A feeder is a port that gives a device the frames of the test.
//
// A test on interfaces makes its network with internal/netlab. It needs root. Without root it is skipped, and fails under
// make netns. Its file name ends in _linux_test.go.
//
// With the flag -earlydrop the ports of all devices drop early, with a model of a driver's program in the kernel
// (linktest.Filtered). It must not change the result of any scenario.
//
// Tests read internal state, which no public call returns, through internal/inside: see rig_inside_test.go.
//
// A test closes all objects that it opens: the package fails if a goroutine is left at the end ([Run]).
package scenario

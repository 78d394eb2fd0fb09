// Package hostilepeer plays a whole hostile peer against a device. It makes packets
// that are well-formed most of the time, changes some of them, and hands them to the
// device in each form in which a driver hands out packets. Each packet says it comes
// from a peer that has connections of its own, or from a stranger that has none.
//
//	go test ./interop/hostilepeer -run TestHostilePeer -hostile.packets 1e8 -hostile.seed 7 -timeout 0 -v
//
// After each batch the test looks at what the device made of it:
//
//   - each packet is counted exactly once;
//   - nothing of a stranger is executed, and no receive is taken by it;
//   - memory that nobody was given the key of, or that its key does not open for
//     writing, stays as it was;
//   - the honest connection beside it transfers right data, in order, each message once;
//   - goroutines, memory and what the connection manager remembers are bounded.
//
// Time is that of a testing/synctest bubble, so a seed repeats a run exactly.
package hostilepeer

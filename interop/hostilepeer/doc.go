// Package hostilepeer tests a device with the packets of a hostile peer. It makes mostly
// well-formed packets, changes some of them, and passes them to the device in each form in which a
// driver returns packets. The source address of each packet is that of a peer that has connections
// with the device, or of a stranger that has none.
//
//	go test ./interop/hostilepeer -run TestHostilePeer -hostile.packets 1e8 -hostile.seed 7 -timeout 0 -v
//
// After each batch the test checks the device:
//
//   - it has counted each packet exactly once;
//   - it has executed no packet of a stranger, and no such packet has taken a receive;
//   - memory whose key the peer does not have, or whose key does not allow
//     writing, has not changed;
//   - an honest connection of the device transfers right data, in order, each message once;
//   - goroutines, memory and the state of the connection manager are bounded.
//
// Time is that of a testing/synctest bubble, so a seed repeats a run exactly.
package hostilepeer

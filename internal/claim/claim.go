// Package claim reserves UDP port 4791 of a network interface for a device that bypasses the kernel's UDP sockets
// with packet sockets or AF_XDP. While the device is open no other device or program can bind the port there, and
// the kernel does not answer RoCE packets with ICMP "port unreachable". The kernel ends a claim when the process
// ends, even after a crash.
package claim

// Hint says what to do when the port is taken.
const Hint = "another device of this or another program has UDP port 4791, or the kernel's rxe: " +
	"`ss -ulpn sport = :4791` shows the program, and none for rxe (`rdma link` lists it, `rmmod rdma_rxe` removes it)"

// HintShare is Hint for drivers whose Config has the field SharePort.
const HintShare = Hint + "; with Config.SharePort both get every packet, and both answer"

// Package bth is RoCEv2 on the wire: the Base Transport Header and every
// extended transport header behind it, the table of operation codes that says
// which headers a packet has, the invariant CRC (ICRC) at its end, and the
// small numbers they carry (PSN, QPN, R_Key, …) as types of their own.
//
// A packet here runs from the BTH to the ICRC, that is, it is the payload of
// one UDP datagram. The Ethernet, IP and UDP headers around it are package
// [github.com/goroce/roce/bth/frame].
//
// There are two layers. The data path uses views and put functions:
// [Packet.Parse] checks all lengths of a packet once and its accessors then
// read the fields in place; [PutBTH] and the other put functions each write
// one header at the front of a slice. Neither allocates. Tests, traces and
// tools use [Fields], the same packet as a struct that can be printed,
// compared and encoded.
//
// The contract of Parse: it does not panic for any bytes. After it
// returned nil no accessor of that Packet panics, and the accessor of a header
// that the packet does not have returns zero. Parse checks structure only.
// Package qp checks whether a field is acceptable by the protocol (P_Key, PSN,
// payload against the path MTU, opcode against the type of the queue pair).
//
// As the InfiniBand architecture (IBTA) requires, the package sends reserved
// bits as zero and ignores them on receipt. The ICRC covers them, except those
// of byte 4 of the BTH.
//
// All integers are big-endian on the wire, with one exception: the ICRC is
// stored least significant byte first.
//
// Sources cited in the comments: "IBTA" is the InfiniBand Architecture
// Specification volume 1 with annex A17 (RoCEv2); "rxe" is the Linux soft RoCE
// driver as of 6.12, read and observed on the wire; "rdmavt" is the Linux
// software verbs library of the same kernel.
package bth

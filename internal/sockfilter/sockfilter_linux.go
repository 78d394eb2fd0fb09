// Package sockfilter attaches classic BPF programs to sockets.
package sockfilter

import (
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Attach makes a program the filter of a socket. The program returns how many bytes of a packet the socket gets; 0
// drops the packet.
func Attach(fd int, program []bpf.Instruction) error {
	return Set(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, program)
}

// RejectAll is the filter of a socket that receives nothing.
var RejectAll = []bpf.Instruction{bpf.RetConstant{Val: 0}}

// Set passes a program to a socket option that takes one.
func Set(fd, level, option int, program []bpf.Instruction) error {
	p, err := Assemble(program)
	if err != nil {
		return err
	}
	return unix.SetsockoptSockFprog(fd, level, option, p)
}

// Assemble returns a program in the form that the kernel takes.
func Assemble(program []bpf.Instruction) (*unix.SockFprog, error) {
	code, err := bpf.Assemble(program)
	if err != nil {
		return nil, err
	}
	return &unix.SockFprog{
		Len:    uint16(len(code)),
		Filter: (*unix.SockFilter)(unsafe.Pointer(&code[0])), // the same struct by another name
	}, nil
}

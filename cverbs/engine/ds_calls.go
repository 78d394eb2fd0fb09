package main

// #include "rs_cgo.h"
import "C"

import (
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/rsock"
)

// datagrams are the datagram rsockets of the process.
var datagrams = rsock.NewDatagrams(connections.Host)

//export roceDSCreate
func roceDSCreate(family C.uint32_t, in, out, udp C.int, rs *C.roce_handle) C.int {
	h, err := datagrams.Create(family == 6, int(in), int(out), int(udp))
	*rs = C.roce_handle(h)
	return errnoOf(err)
}

//export roceDSConnect
func roceDSConnect(rs C.roce_handle, addr *C.const_cm_addr) C.int {
	return errnoOf(datagrams.Connect(abi.Handle(rs), as[abi.CMAddr](addr)))
}

//export roceDSShutdown
func roceDSShutdown(rs C.roce_handle, how C.int) C.int {
	return errnoOf(datagrams.Shutdown(abi.Handle(rs), int(how)))
}

//export roceDSClose
func roceDSClose(rs C.roce_handle) C.int { return errnoOf(datagrams.Close(abi.Handle(rs))) }

//export roceDSReady
func roceDSReady(rs C.roce_handle, events C.uint32_t) C.int {
	return count(datagrams.Ready(abi.Handle(rs), uint32(events)))
}

//export roceDSSetOption
func roceDSSetOption(rs C.roce_handle, option C.uint32_t, value C.int64_t) C.int {
	return errnoOf(datagrams.SetOption(abi.Handle(rs), rsock.Option(option), int64(value)))
}

//export roceDSGetOption
func roceDSGetOption(rs C.roce_handle, option C.uint32_t, value *C.int64_t) C.int {
	v, err := datagrams.Option(abi.Handle(rs), rsock.Option(option))
	*value = C.int64_t(v)
	return errnoOf(err)
}

//export roceDSSendTo
func roceDSSendTo(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t, to *C.const_cm_addr) C.int64_t {
	return bytesMoved(datagrams.Send(abi.Handle(rs), bytesOf(buf, length), as[abi.CMAddr](to)))
}

//export roceDSRecvFrom
func roceDSRecvFrom(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t, peek C.int, from *C.struct_roce_cm_addr) C.int64_t {
	n, addr, err := datagrams.Recv(abi.Handle(rs), bytesOf(buf, length), peek != 0)
	*as[abi.CMAddr](from) = addr
	return bytesMoved(n, err)
}

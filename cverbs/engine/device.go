package main

// #include "cgo.h"
// #include "exit.h"
import "C"

import (
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceDevices
func roceDevices(out *C.struct_roce_device_info, n C.int) C.int {
	return count(verbs.Devices(list[abi.DeviceInfo](out, n)))
}

//export roceOpen
func roceOpen(name *C.const_char, fd C.int, ctx *C.roce_handle) C.int {
	h, err := verbs.Open(C.GoString((*C.char)(name)), int(fd))
	*ctx = C.roce_handle(h)
	if err == nil && verbs.Reports() {
		C.roce_report_at_exit()
	}
	return errnoOf(err)
}

//export roceExit
func roceExit() { verbs.Exit() }

//export roceClose
func roceClose(ctx C.roce_handle) C.int { return errnoOf(verbs.Close(abi.Handle(ctx))) }

//export roceExiting
func roceExiting() { verbs.Exiting() }

//export roceQueryDevice
func roceQueryDevice(ctx C.roce_handle, out *C.struct_roce_device_attr) C.int {
	return errnoOf(verbs.QueryDevice(abi.Handle(ctx), as[abi.DeviceAttr](out)))
}

//export roceQueryPort
func roceQueryPort(ctx C.roce_handle, port C.uint32_t, out *C.struct_roce_port_attr) C.int {
	return errnoOf(verbs.QueryPort(abi.Handle(ctx), uint32(port), as[abi.PortAttr](out)))
}

//export roceQueryGID
func roceQueryGID(ctx C.roce_handle, port, index C.uint32_t, out *C.struct_roce_gid) C.int {
	return errnoOf(verbs.QueryGID(abi.Handle(ctx), uint32(port), uint32(index), as[abi.GID](out)))
}

//export roceQueryPKey
func roceQueryPKey(ctx C.roce_handle, port, index C.uint32_t, pkey *C.uint16_t) C.int {
	k, err := verbs.QueryPKey(abi.Handle(ctx), uint32(port), uint32(index))
	*pkey = C.uint16_t(k)
	return errnoOf(err)
}

//export roceNextEvent
func roceNextEvent(ctx C.roce_handle, out *C.struct_roce_event) C.int {
	return errnoOf(verbs.NextEvent(abi.Handle(ctx), as[abi.Event](out)))
}

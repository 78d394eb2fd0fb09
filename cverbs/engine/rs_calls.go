package main

// #include "rs_cgo.h"
import "C"

import (
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/rsock"
)

// sockets are the rsockets of the process. They share the devices and ports of its connection manager.
var sockets = rsock.New(connections.Host)

// maxBytes is how many bytes a call moves at most, as in Linux. A program may name a size that its memory does not
// have, up to SIZE_MAX, when it knows that less will come.
const maxBytes = 0x7FFFF000

// bytesOf returns memory of C.
func bytesOf(p unsafe.Pointer, n C.uint64_t) []byte {
	return unsafe.Slice((*byte)(p), min(n, maxBytes))
}

// bytesMoved returns how many bytes, or a negative errno.
func bytesMoved(n int, err error) C.int64_t {
	if err != nil {
		return C.int64_t(errnoOf(err))
	}
	return C.int64_t(n)
}

//export roceRSCreate
func roceRSCreate(family C.uint32_t, in, out C.int, rs *C.roce_handle) C.int {
	h, err := sockets.Create(family == 6, int(in), int(out))
	*rs = C.roce_handle(h)
	return errnoOf(err)
}

//export roceRSBind
func roceRSBind(rs C.roce_handle, addr *C.const_cm_addr) C.int {
	return errnoOf(sockets.Bind(abi.Handle(rs), as[abi.CMAddr](addr)))
}

//export roceRSListen
func roceRSListen(rs C.roce_handle, backlog C.int) C.int {
	return errnoOf(sockets.Listen(abi.Handle(rs), int32(backlog)))
}

//export roceRSAccept
func roceRSAccept(rs C.roce_handle, in, out C.int, child *C.roce_handle) C.int {
	h, err := sockets.Accept(abi.Handle(rs), int(in), int(out))
	*child = C.roce_handle(h)
	return errnoOf(err)
}

//export roceRSConnect
func roceRSConnect(rs C.roce_handle, addr *C.const_cm_addr) C.int {
	return errnoOf(sockets.Connect(abi.Handle(rs), as[abi.CMAddr](addr)))
}

//export roceRSShutdown
func roceRSShutdown(rs C.roce_handle, how C.int) C.int {
	return errnoOf(sockets.Shutdown(abi.Handle(rs), int(how)))
}

//export roceRSClose
func roceRSClose(rs C.roce_handle) C.int { return errnoOf(sockets.Close(abi.Handle(rs))) }

//export roceRSRecv
func roceRSRecv(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t, peek C.int) C.int64_t {
	return bytesMoved(sockets.Recv(abi.Handle(rs), bytesOf(buf, length), peek != 0))
}

//export roceRSSend
func roceRSSend(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t) C.int64_t {
	return bytesMoved(sockets.Send(abi.Handle(rs), bytesOf(buf, length)))
}

//export roceRSWriteAt
func roceRSWriteAt(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t, offset C.int64_t) C.int64_t {
	return bytesMoved(sockets.WriteAt(abi.Handle(rs), bytesOf(buf, length), int64(offset)))
}

//export roceRSReady
func roceRSReady(rs C.roce_handle, events C.uint32_t) C.int {
	return count(sockets.Ready(abi.Handle(rs), uint32(events)))
}

//export roceRSName
func roceRSName(rs C.roce_handle, out *C.struct_roce_cm_addr) C.int {
	addr, err := sockets.Addr(abi.Handle(rs))
	*as[abi.CMAddr](out) = addr
	return errnoOf(err)
}

//export roceRSPeer
func roceRSPeer(rs C.roce_handle, out *C.struct_roce_cm_addr) C.int {
	addr, err := sockets.Peer(abi.Handle(rs))
	*as[abi.CMAddr](out) = addr
	return errnoOf(err)
}

//export roceRSSetOption
func roceRSSetOption(rs C.roce_handle, option C.uint32_t, value C.int64_t) C.int {
	return errnoOf(sockets.SetOption(abi.Handle(rs), rsock.Option(option), int64(value)))
}

//export roceRSGetOption
func roceRSGetOption(rs C.roce_handle, option C.uint32_t, value *C.int64_t) C.int {
	v, err := sockets.Option(abi.Handle(rs), rsock.Option(option))
	*value = C.int64_t(v)
	return errnoOf(err)
}

//export roceRSMap
func roceRSMap(rs C.roce_handle, buf unsafe.Pointer, length C.uint64_t, writable C.int, offset *C.int64_t) C.int {
	at, err := sockets.Map(abi.Handle(rs), buf, uint64(length), writable != 0, int64(*offset))
	*offset = C.int64_t(at)
	return errnoOf(err)
}

//export roceRSUnmap
func roceRSUnmap(rs C.roce_handle, buf unsafe.Pointer) C.int {
	return errnoOf(sockets.Unmap(abi.Handle(rs), buf))
}

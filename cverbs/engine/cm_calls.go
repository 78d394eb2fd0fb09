package main

// #include "cm_cgo.h"
import "C"

import (
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/eventcount"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceCMCreateChannel
func roceCMCreateChannel(fd C.int, out *C.roce_handle) C.int {
	h, err := connections.CreateChannel(func(n int) { eventcount.Add(int(fd), n) })
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceCMDestroyChannel
func roceCMDestroyChannel(channel C.roce_handle) C.int {
	return errnoOf(connections.DestroyChannel(abi.Handle(channel)))
}

//export roceCMNextEvent
func roceCMNextEvent(channel C.roce_handle, out *C.struct_roce_cm_event) C.int {
	return errnoOf(connections.NextEvent(abi.Handle(channel), as[abi.CMEvent](out)))
}

//export roceCMCreateID
func roceCMCreateID(channel C.roce_handle, cookie C.uint64_t, ps, qpType C.uint32_t, out *C.roce_handle) C.int {
	h, err := connections.CreateID(abi.Handle(channel), uint64(cookie), uint32(ps), uint32(qpType))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceCMSetCookie
func roceCMSetCookie(id C.roce_handle, cookie C.uint64_t) C.int {
	return errnoOf(connections.SetCookie(abi.Handle(id), uint64(cookie)))
}

//export roceCMMigrateID
func roceCMMigrateID(id, channel C.roce_handle) C.int {
	return errnoOf(connections.MigrateID(abi.Handle(id), abi.Handle(channel)))
}

//export roceCMDestroyID
func roceCMDestroyID(id C.roce_handle) C.int { return errnoOf(connections.DestroyID(abi.Handle(id))) }

//export roceCMQueryID
func roceCMQueryID(id C.roce_handle, out *C.struct_roce_cm_info) C.int {
	return errnoOf(connections.QueryID(abi.Handle(id), as[abi.CMInfo](out)))
}

//export roceCMSetOption
func roceCMSetOption(id C.roce_handle, option, value C.uint32_t) C.int {
	return errnoOf(connections.SetOption(abi.Handle(id), uint32(option), uint32(value)))
}

//export roceCMBindAddr
func roceCMBindAddr(id C.roce_handle, addr *C.const_cm_addr) C.int {
	return errnoOf(connections.BindAddr(abi.Handle(id), as[abi.CMAddr](addr)))
}

//export roceCMResolveAddr
func roceCMResolveAddr(id C.roce_handle, src, dst *C.const_cm_addr, timeoutMS C.int) C.int {
	return errnoOf(connections.ResolveAddr(abi.Handle(id), as[abi.CMAddr](src), as[abi.CMAddr](dst), int32(timeoutMS)))
}

//export roceCMResolveRoute
func roceCMResolveRoute(id C.roce_handle, timeoutMS C.int) C.int {
	return errnoOf(connections.ResolveRoute(abi.Handle(id), int32(timeoutMS)))
}

//export roceCMListen
func roceCMListen(id C.roce_handle, backlog C.int) C.int {
	return errnoOf(connections.Listen(abi.Handle(id), int32(backlog)))
}

//export roceCMConnect
func roceCMConnect(id C.roce_handle, param *C.const_cm_param) C.int {
	return errnoOf(connections.Connect(abi.Handle(id), as[abi.CMParam](param)))
}

//export roceCMAccept
func roceCMAccept(id C.roce_handle, param *C.const_cm_param) C.int {
	return errnoOf(connections.Accept(abi.Handle(id), as[abi.CMParam](param)))
}

//export roceCMReject
func roceCMReject(id C.roce_handle, reason C.uint32_t, private unsafe.Pointer, length C.uint32_t) C.int {
	return errnoOf(connections.Reject(abi.Handle(id), uint32(reason), (*byte)(private), uint32(length)))
}

//export roceCMEstablish
func roceCMEstablish(id C.roce_handle) C.int { return errnoOf(connections.Establish(abi.Handle(id))) }

//export roceCMNotify
func roceCMNotify(id C.roce_handle, event C.uint32_t) C.int {
	return errnoOf(connections.Notify(abi.Handle(id), uint32(event)))
}

//export roceCMDisconnect
func roceCMDisconnect(id C.roce_handle) C.int {
	verbs.PostCollected() // which the program has posted before
	return errnoOf(connections.Disconnect(abi.Handle(id)))
}

//export roceCMInitQPAttr
func roceCMInitQPAttr(id C.roce_handle, attr *C.struct_roce_qp_attr, mask *C.uint32_t) C.int {
	return errnoOf(connections.InitQPAttr(abi.Handle(id), as[abi.QPAttr](attr), as[uint32](mask)))
}

//export roceCMJoin
func roceCMJoin(id C.roce_handle, group *C.const_cm_addr, sendOnly C.uint32_t, cookie C.uint64_t) C.int {
	return errnoOf(connections.Join(abi.Handle(id), as[abi.CMAddr](group), sendOnly != 0, uint64(cookie)))
}

//export roceCMLeave
func roceCMLeave(id C.roce_handle, group *C.const_cm_addr) C.int {
	return errnoOf(connections.Leave(abi.Handle(id), as[abi.CMAddr](group)))
}

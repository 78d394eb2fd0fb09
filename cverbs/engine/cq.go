package main

// #include "cgo.h"
import "C"

import (
	"unsafe"

	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceCreateChannel
func roceCreateChannel(ctx C.roce_handle, fd C.int, out *C.roce_handle) C.int {
	h, err := verbs.CreateChannel(abi.Handle(ctx), int(fd))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceDestroyChannel
func roceDestroyChannel(channel C.roce_handle) C.int {
	return errnoOf(verbs.DestroyChannel(abi.Handle(channel)))
}

//export roceChannelEvent
func roceChannelEvent(channel C.roce_handle, cookie *C.uint64_t) C.int {
	c, err := verbs.ChannelEvent(abi.Handle(channel))
	*cookie = C.uint64_t(c)
	return errnoOf(err)
}

//export roceCreateCQ
func roceCreateCQ(ctx C.roce_handle, cqe C.uint32_t, channel C.roce_handle, vector C.uint32_t, cookie C.uint64_t, out *C.roce_handle, got *C.uint32_t) C.int {
	h, n, err := verbs.CreateCQ(abi.Handle(ctx), uint32(cqe), abi.Handle(channel), uint32(vector), uint64(cookie))
	*out, *got = C.roce_handle(h), C.uint32_t(n)
	return errnoOf(err)
}

//export roceResizeCQ
func roceResizeCQ(cq C.roce_handle, cqe C.uint32_t, got *C.uint32_t) C.int {
	n, err := verbs.ResizeCQ(abi.Handle(cq), uint32(cqe))
	*got = C.uint32_t(n)
	return errnoOf(err)
}

//export roceDestroyCQ
func roceDestroyCQ(cq C.roce_handle) C.int { return errnoOf(verbs.DestroyCQ(abi.Handle(cq))) }

//export rocePollCQ
func rocePollCQ(cq C.roce_handle, wcs *C.struct_roce_wc, n C.int) C.int {
	return count(verbs.PollCQ(abi.Handle(cq), list[abi.WC](wcs, n)))
}

//export roceCollecting
func roceCollecting(cq C.roce_handle, now *C.int64_t) *C.struct_roce_collecting {
	in, t := verbs.Collecting(abi.Handle(cq))
	*now = C.int64_t(t)
	return (*C.struct_roce_collecting)(unsafe.Pointer(in))
}

//export roceReqNotifyCQ
func roceReqNotifyCQ(cq C.roce_handle, solicitedOnly C.int) C.int {
	return errnoOf(verbs.RequestNotify(abi.Handle(cq), solicitedOnly != 0))
}

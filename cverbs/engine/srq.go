package main

// #include "cgo.h"
import "C"

import (
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceCreateSRQ
func roceCreateSRQ(ctx C.roce_handle, init *C.struct_roce_srq_init, out *C.roce_handle, srqn *C.uint32_t) C.int {
	h, num, err := verbs.CreateSRQ(abi.Handle(ctx), as[abi.SRQInit](init))
	*out, *srqn = C.roce_handle(h), C.uint32_t(num)
	return errnoOf(err)
}

//export roceModifySRQ
func roceModifySRQ(srq C.roce_handle, mask, maxWR, limit C.uint32_t) C.int {
	return errnoOf(verbs.ModifySRQ(abi.Handle(srq), uint32(mask), uint32(maxWR), uint32(limit)))
}

//export roceQuerySRQ
func roceQuerySRQ(srq C.roce_handle, maxWR, maxSGE, limit *C.uint32_t) C.int {
	wr, sge, lim, err := verbs.QuerySRQ(abi.Handle(srq))
	*maxWR, *maxSGE, *limit = C.uint32_t(wr), C.uint32_t(sge), C.uint32_t(lim)
	return errnoOf(err)
}

//export roceDestroySRQ
func roceDestroySRQ(srq C.roce_handle) C.int { return errnoOf(verbs.DestroySRQ(abi.Handle(srq))) }

//export rocePostSRQRecv
func rocePostSRQRecv(srq C.roce_handle, wrs *C.const_recv_wr, n C.int, posted *C.int) (rc C.int) {
	defer caught(&rc)
	guard()
	done, err := verbs.PostSRQRecv(abi.Handle(srq), list[abi.RecvWR](wrs, n))
	*posted = C.int(done)
	return errnoOf(err)
}

//export roceOpenXRCD
func roceOpenXRCD(ctx C.roce_handle, fd, oflags C.int, out *C.roce_handle) C.int {
	h, err := verbs.OpenXRCD(abi.Handle(ctx), int(fd), int(oflags))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceCloseXRCD
func roceCloseXRCD(xrcd C.roce_handle) C.int { return errnoOf(verbs.CloseXRCD(abi.Handle(xrcd))) }

package main

// #include "cgo.h"
import "C"

import (
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceCreateQP
func roceCreateQP(ctx C.roce_handle, init *C.struct_roce_qp_init, out *C.roce_handle, qpn *C.uint32_t) C.int {
	h, num, err := verbs.CreateQP(abi.Handle(ctx), as[abi.QPInit](init))
	*out, *qpn = C.roce_handle(h), C.uint32_t(num)
	return errnoOf(err)
}

//export roceOpenQP
func roceOpenQP(xrcd C.roce_handle, qpn C.uint32_t, cookie C.uint64_t, out *C.roce_handle) C.int {
	h, err := verbs.OpenQP(abi.Handle(xrcd), uint32(qpn), uint64(cookie))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceModifyQP
func roceModifyQP(qp C.roce_handle, attr *C.struct_roce_qp_attr, mask C.uint32_t) C.int {
	return errnoOf(verbs.ModifyQP(abi.Handle(qp), as[abi.QPAttr](attr), uint32(mask)))
}

//export roceQueryQP
func roceQueryQP(qp C.roce_handle, attr *C.struct_roce_qp_attr, caps *C.struct_roce_caps) C.int {
	return errnoOf(verbs.QueryQP(abi.Handle(qp), as[abi.QPAttr](attr), as[abi.Caps](caps)))
}

//export roceDestroyQP
func roceDestroyQP(qp C.roce_handle) C.int { return errnoOf(verbs.DestroyQP(abi.Handle(qp))) }

//export rocePostSend
func rocePostSend(qp C.roce_handle, wrs *C.const_send_wr, n, calls C.int, posted, room *C.int) (rc C.int) {
	defer caught(&rc)
	guard()
	done, more, err := verbs.PostSend(abi.Handle(qp), list[abi.SendWR](wrs, n), int(calls))
	*posted, *room = C.int(done), C.int(more)
	return errnoOf(err)
}

//export rocePostRecv
func rocePostRecv(qp C.roce_handle, wrs *C.const_recv_wr, n C.int, posted *C.int) (rc C.int) {
	defer caught(&rc)
	guard()
	done, err := verbs.PostRecv(abi.Handle(qp), list[abi.RecvWR](wrs, n))
	*posted = C.int(done)
	return errnoOf(err)
}

//export roceAttachMcast
func roceAttachMcast(qp C.roce_handle, gid *C.const_uint8) C.int {
	return errnoOf(verbs.AttachMcast(abi.Handle(qp), as[[16]byte](gid)))
}

//export roceDetachMcast
func roceDetachMcast(qp C.roce_handle, gid *C.const_uint8) C.int {
	return errnoOf(verbs.DetachMcast(abi.Handle(qp), as[[16]byte](gid)))
}

//export roceCreateAH
func roceCreateAH(pd C.roce_handle, attr *C.const_ah_attr, out *C.roce_handle) C.int {
	h, err := verbs.CreateAH(abi.Handle(pd), as[abi.AHAttr](attr))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceDestroyAH
func roceDestroyAH(ah C.roce_handle) C.int { return errnoOf(verbs.DestroyAH(abi.Handle(ah))) }

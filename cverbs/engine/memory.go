package main

// #include "cgo.h"
import "C"

import (
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

//export roceAllocPD
func roceAllocPD(ctx C.roce_handle, out *C.roce_handle) C.int {
	h, err := verbs.AllocPD(abi.Handle(ctx))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceDeallocPD
func roceDeallocPD(pd C.roce_handle) C.int { return errnoOf(verbs.DeallocPD(abi.Handle(pd))) }

//export roceRegMR
func roceRegMR(pd C.roce_handle, addr, length, iova C.uint64_t, access C.uint32_t, out *C.roce_handle, info *C.struct_roce_mr_info) C.int {
	h, err := verbs.RegMR(abi.Handle(pd), uint64(addr), uint64(length), uint64(iova), uint32(access), as[abi.MRInfo](info))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceRegNullMR
func roceRegNullMR(pd C.roce_handle, out *C.roce_handle, info *C.struct_roce_mr_info) C.int {
	h, err := verbs.RegNullMR(abi.Handle(pd), as[abi.MRInfo](info))
	*out = C.roce_handle(h)
	return errnoOf(err)
}

//export roceReregMR
func roceReregMR(mr C.roce_handle, how *C.const_rereg, info *C.struct_roce_mr_info) C.int {
	return errnoOf(verbs.ReregMR(abi.Handle(mr), as[abi.Rereg](how), as[abi.MRInfo](info)))
}

//export roceDeregMR
func roceDeregMR(mr C.roce_handle) C.int { return errnoOf(verbs.DeregMR(abi.Handle(mr))) }

//export roceAllocMW
func roceAllocMW(pd C.roce_handle, typ C.uint32_t, out *C.roce_handle, rkey *C.uint32_t) C.int {
	h, k, err := verbs.AllocMW(abi.Handle(pd), uint32(typ))
	*out, *rkey = C.roce_handle(h), C.uint32_t(k)
	return errnoOf(err)
}

//export roceDeallocMW
func roceDeallocMW(mw C.roce_handle) C.int { return errnoOf(verbs.DeallocMW(abi.Handle(mw))) }

//export roceMWRKey
func roceMWRKey(mw C.roce_handle, rkey *C.uint32_t) C.int {
	k, err := verbs.MWRKey(abi.Handle(mw))
	*rkey = C.uint32_t(k)
	return errnoOf(err)
}

//export roceBindMW
func roceBindMW(qp C.roce_handle, wr *C.const_send_wr, rkey *C.uint32_t) C.int {
	k, err := verbs.BindMW(abi.Handle(qp), as[abi.SendWR](wr))
	*rkey = C.uint32_t(k)
	return errnoOf(err)
}

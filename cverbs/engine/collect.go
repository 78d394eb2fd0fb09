package main

/*
#include "cgo.h"

typedef void (*roce_hand_over_fn)(struct roce_collecting *);

extern roce_hand_over_fn roce_hand_over; // of the library that has loaded the engine

static inline void call(roce_hand_over_fn f, struct roce_collecting *shard) { f(shard); }
*/
import "C"

import (
	"unsafe"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/verbs"
)

// The library reads struct roce_collecting where the device writes a roce.Collecting.
const (
	_ = -(unsafe.Offsetof(roce.Collecting{}.On) ^ unsafe.Offsetof(C.struct_roce_collecting{}.on))
	_ = -(unsafe.Offsetof(roce.Collecting{}.Until) ^ unsafe.Offsetof(C.struct_roce_collecting{}.until))
	_ = -(unsafe.Offsetof(roce.Collecting{}.FrontEnd) ^ unsafe.Offsetof(C.struct_roce_collecting{}.front_end))
)

func init() {
	verbs.HandOver = func(shard *roce.Collecting) {
		C.call(C.roce_hand_over, (*C.struct_roce_collecting)(unsafe.Pointer(shard)))
	}
}

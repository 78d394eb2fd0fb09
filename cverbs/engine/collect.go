package main

/*
typedef void (*roce_call)(void);

extern roce_call roce_hand_over; // of the library that has loaded the engine

static inline void call(roce_call f) { f(); }
*/
import "C"

import "github.com/goroce/roce/cverbs/internal/verbs"

func init() { verbs.HandOver = func() { C.call(C.roce_hand_over) } }

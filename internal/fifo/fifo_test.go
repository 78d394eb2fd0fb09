package fifo

import (
	"math/rand/v2"
	"slices"
	"testing"
)

// TestModel compares a queue with a slice, across the wrap of its indices.
func TestModel(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	q := Queue[int]{head: 1<<32 - 50, tail: 1<<32 - 50}
	var model []int
	for step := range 20000 {
		switch k := r.IntN(100); {
		case k < 44 && len(model) < 100:
			p := q.Push()
			if *p != 0 {
				t.Fatalf("step %d: pushed a used element", step)
			}
			*p = step + 1
			model = append(model, step+1)
		case k < 49:
			*q.PushFront() = step + 1
			model = slices.Insert(model, 0, step+1)
		case k < 50:
			odd := func(v int) bool { return v%3 == 0 }
			q.DeleteFunc(odd)
			model = slices.DeleteFunc(model, odd)
		case k < 52:
			q.Release(r.IntN(200))
		default:
			v, ok := q.Pop()
			if ok != (len(model) > 0) || ok && v != model[0] {
				t.Fatalf("step %d: popped %d, %v; want the first of %v", step, v, ok, model)
			}
			model = model[min(1, len(model)):]
		}
		if q.Len() != len(model) {
			t.Fatalf("step %d: %d elements, want %d", step, q.Len(), len(model))
		}
		for i, want := range model {
			if *q.At(i) != want {
				t.Fatalf("step %d: element %d is %d, want %d", step, i, *q.At(i), want)
			}
		}
	}
}

// TestMemory: a queue keeps its ring for the next elements, and no references to removed ones.
func TestMemory(t *testing.T) {
	var q Queue[*int]
	for range 1000 {
		*q.Push() = new(int)
	}
	for q.Len() > 0 {
		q.Pop()
	}
	if i := slices.IndexFunc(q.slots, func(p *int) bool { return p != nil }); i >= 0 {
		t.Errorf("slot %d still refers to an element", i)
	}
	if n := testing.AllocsPerRun(100, func() {
		for range 1000 {
			q.Push()
		}
		for q.Len() > 0 {
			q.Pop()
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if q.Release(1024); len(q.slots) != 1024 {
		t.Errorf("%d slots, want those that may be kept", len(q.slots))
	}
	q.Push()
	if q.Release(16); q.Len() != 1 {
		t.Error("released a queue in use")
	}
	q.Pop()
	if q.Release(16); q.slots != nil {
		t.Error("the memory was not released")
	}
}

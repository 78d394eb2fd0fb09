//go:build roceframes

package xsk

import (
	"fmt"
	"os"
)

// debugging is true if pools check the owners of slots.
const debugging = true

// debug knows the owner of every slot.
type debug struct{ owner []Owner }

func (d *debug) init(n int) { d.owner = make([]Owner, n) }

func (d *debug) move(i uint32, from, to Owner) {
	if int(i) >= len(d.owner) {
		fail(fmt.Sprintf("xsk: slot %d of %d passed from %v to %v", i, len(d.owner), from, to))
	}
	if d.owner[i] != from {
		fail(fmt.Sprintf("xsk: slot %d passed from %v to %v, but it belongs to %v", i, from, to, d.owner[i]))
	}
	d.owner[i] = to
}

// fail prints why it panics first: a panic in Recv keeps the Port in use, so a deferred Close waits for ever, and nobody sees
// the panic.
func fail(why string) {
	fmt.Fprintln(os.Stderr, why)
	panic(why)
}

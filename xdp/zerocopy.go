package xdp

import (
	"fmt"
	"slices"
)

// ZeroCopy says when a Port uses zero copy.
type ZeroCopy uint8

const (
	// ZeroCopyAuto is zero copy if the driver of the interface grants it, except with virtio_net as a
	// module, which then sends each frame with a header from an unrelated place in memory, so that the
	// host may drop all frames: docs/xdp.md. A note in Info says so.
	ZeroCopyAuto ZeroCopy = iota

	// ZeroCopyOff is copy mode.
	ZeroCopyOff

	// ZeroCopyOn is zero copy with every driver that grants it. Otherwise the Port copies, and a note in
	// Info says so.
	ZeroCopyOn
)

var zeroCopyNames = [...]string{ZeroCopyAuto: "auto", ZeroCopyOff: "off", ZeroCopyOn: "on"}

func (z ZeroCopy) String() string {
	if int(z) < len(zeroCopyNames) {
		return zeroCopyNames[z]
	}
	return fmt.Sprintf("ZeroCopy(%d)", uint8(z))
}

// ParseZeroCopy returns the ZeroCopy of a name: auto, off or on. ok is false if there is none.
func ParseZeroCopy(s string) (z ZeroCopy, ok bool) {
	i := slices.Index(zeroCopyNames[:], s)
	return ZeroCopy(max(i, 0)), i >= 0
}

//go:build linux

package main

import (
	"encoding/binary"
	"slices"
	"testing"
)

// attribute makes a netlink attribute.
func attribute(kind uint16, value ...byte) []byte {
	b := binary.NativeEndian.AppendUint16(nil, uint16(4+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(b)&3)...)
}

// TestListener: among several identifiers, only one in state LISTEN on the port counts.
func TestListener(t *testing.T) {
	id := func(state byte, port uint16) []byte {
		address := binary.BigEndian.AppendUint16([]byte{2, 0}, port)
		return attribute(attrIDs+1|nested, slices.Concat(attribute(2, 'r', 'x', 'e'), attribute(attrState, state), attribute(attrSource, address...))...)
	}
	dump := slices.Concat(attribute(attrDevice, 0, 0, 0, 0),
		attribute(attrIDs|nested, slices.Concat(id(5, 7001), id(stateListen, 7002), id(2, 7003))...))
	for port, want := range map[int]bool{7001: false, 7002: true, 7003: false, 7004: false} {
		if got := listener(dump, port); got != want {
			t.Errorf("port %d: %v, want %v", port, got, want)
		}
	}
	for n := range dump { // an answer that is cut off anywhere does not panic
		listener(dump[:n], 7002)
	}
}

package bth

import "strconv"

// MTU is the largest payload of one packet, with the values of enum ibv_mtu.
// It counts payload only, not headers.
type MTU uint8

// The five sizes there are.
const (
	MTU256 MTU = 1 + iota
	MTU512
	MTU1024
	MTU2048
	MTU4096
)

// Valid reports whether m is one of the five sizes.
func (m MTU) Valid() bool { return m >= MTU256 && m <= MTU4096 }

// Bytes returns the size in bytes, 0 if m is not valid.
func (m MTU) Bytes() int {
	if !m.Valid() {
		return 0
	}
	return 128 << m
}

// String prints the size in bytes, as in "1024".
func (m MTU) String() string {
	if !m.Valid() {
		return "MTU(" + strconv.Itoa(int(m)) + ")"
	}
	return strconv.Itoa(m.Bytes())
}

// Bytes of the interface's MTU that are reserved for headers.
const (
	activeMTUHeaders = 80 // rxe: IPv6, UDP, BTH, AtomicETH and more
	pathMTUHeaders   = 96 // Linux rdma_cm: more than rxe
)

// ActiveMTU returns the MTU a port has on an interface whose own MTU is ether
// bytes (from the IP header): the largest that leaves 80 bytes for headers, at
// least [MTU256]. This is rxe's ibv_port_attr.active_mtu.
func ActiveMTU(ether int) MTU {
	if m, ok := largestMTU(ether - activeMTUHeaders); ok {
		return m
	}
	return MTU256
}

// PathMTU returns the MTU rdma_cm gives a path out of an interface whose own
// MTU is ether bytes: the largest that leaves 96 bytes for headers. ok is
// false when not even 256 bytes fit; rdma_resolve_route fails with EINVAL then.
func PathMTU(ether int) (m MTU, ok bool) { return largestMTU(ether - pathMTUHeaders) }

func largestMTU(room int) (MTU, bool) {
	for m := MTU4096; m >= MTU256; m-- {
		if m.Bytes() <= room {
			return m, true
		}
	}
	return 0, false
}

package ofi

import "unsafe"

// within returns the offset of buf in region. It returns false if buf is not in region.
func within(region, buf []byte) (off int, ok bool) {
	r, b := uintptr(unsafe.Pointer(unsafe.SliceData(region))), uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	if b < r || b-r > uintptr(len(region)) || uintptr(len(buf)) > uintptr(len(region))-(b-r) {
		return 0, false
	}
	return int(b - r), true
}

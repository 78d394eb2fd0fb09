//go:build !amd64 || purego

package bth

import (
	"runtime"
	"slices"
)

const hasCLMUL = false

// hardwareCRC is true if hash/crc32 uses CRC instructions on this architecture. (A few processors
// of these architectures lack them.)
var hardwareCRC = slices.Contains([]string{"amd64", "arm64", "loong64", "ppc64le", "s390x"}, runtime.GOARCH)

const none = "bth: no carry-less multiplication here"

func clmul(CRC, *byte, int) CRC          { panic(none) }
func clmulBTH(CRC, *byte, int) CRC       { panic(none) }
func clmulBTH4(*[4]CRC, *[4][]byte, int) { panic(none) }

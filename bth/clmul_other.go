//go:build !amd64 || purego

package bth

const hasCLMUL = false

const none = "bth: no carry-less multiplication here"

func clmul(CRC, *byte, int) CRC          { panic(none) }
func clmulBTH(CRC, *byte, int) CRC       { panic(none) }
func clmulBTH4(*[4]CRC, *[4][]byte, int) { panic(none) }

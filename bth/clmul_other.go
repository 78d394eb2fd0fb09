//go:build !amd64 || purego

package bth

const hasCLMUL = false

func clmul(CRC, *byte, int) CRC    { panic("bth: no carry-less multiplication here") }
func clmulBTH(CRC, *byte, int) CRC { panic("bth: no carry-less multiplication here") }

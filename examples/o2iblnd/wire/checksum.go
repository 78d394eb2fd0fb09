package wire

// ChecksumKind says whether a checksum adds bytes as signed or as unsigned numbers. Linux kernels for x86 changed
// from signed to unsigned with version 6.2, so a receiver accepts both.
type ChecksumKind uint8

// The kinds.
const (
	NoChecksum       ChecksumKind = iota // the field is 0, as is the kernel's default
	SignedChecksum                       // before Linux 6.2 on x86
	UnsignedChecksum                     // Linux 6.2 and later
)

// checksum computes the checksum of a whole message. The bytes of the checksum field count as 0.
func checksum(b []byte, kind ChecksumKind) uint32 {
	var sum uint32
	for i, c := range b {
		if i >= 12 && i < 16 {
			c = 0
		}
		sum = sum<<1 | sum>>31
		if kind == SignedChecksum {
			sum += uint32(int32(int8(c)))
		} else {
			sum += uint32(c)
		}
	}
	return max(sum, 1) // 0 would mean that there is no checksum
}

func checksumOK(b []byte, got uint32) bool {
	return got == checksum(b, SignedChecksum) || got == checksum(b, UnsignedChecksum)
}

// SetChecksum computes the checksum of an encoded message and writes it into the message.
func SetChecksum(b []byte, kind ChecksumKind) {
	if len(b) < HeaderLen {
		return
	}
	var sum uint32
	if kind != NoChecksum {
		sum = checksum(b, kind)
	}
	order, _ := OrderOf(b, magic)
	order.ByteOrder().PutUint32(b[12:], sum)
}

package rsocket

import (
	"encoding/binary"
	"syscall"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/errs"
)

// op is the kind of a message, in the upper three bits of its immediate. All messages are RDMA
// WRITEs with immediate.
type op uint8

const (
	opData  op = 0 // 29 bits: bytes written into the receive buffer
	opWrite op = 2 // a write to mapped memory; never on the wire, because it has no immediate
	opTable op = 4 // lower 16 bits: new message limit; with 16 bytes of data, a new entry of the table of halves
	opMap   op = 6 // lower 16 bits: the entry written into the table of mappings
	opCtrl  op = 7 // one of the ctrl values below
)

const (
	ctrlDisconnect = 0
	ctrlKeepalive  = 1 // sent as a WRITE without immediate, which the peer's program does not see
	ctrlShutdown   = 2 // no more data in this direction
)

const valueMask = 1<<29 - 1

func immediate(o op, value uint32) uint32            { return uint32(o)<<29 | value }
func splitImmediate(imm uint32) (o op, value uint32) { return op(imm >> 29), imm & valueMask }

// extent is memory of the peer (struct rs_sge).
type extent struct {
	addr   uint64
	key    bth.RKey
	length uint32
}

// Sizes of the protocol.
const (
	extentLen  = 16
	mappingLen = 8 + extentLen
	helloLen   = 40
	halves     = 2 // entries of the table of halves
	version    = 1
	maxMaps    = 127 << 8 // the largest number in the scaled byte
	literalMax = 128      // larger sizes are in units of 256
)

// Each side writes entries into a table in the memory of the other side, in the byte
// order of the reader.
func (e extent) append(b []byte, o binary.AppendByteOrder) []byte {
	b = o.AppendUint64(b, e.addr)
	b = o.AppendUint32(b, uint32(e.key))
	return o.AppendUint32(b, e.length)
}

func parseExtent(b []byte, o binary.ByteOrder) extent {
	return extent{o.Uint64(b), bth.RKey(o.Uint32(b[8:])), o.Uint32(b[12:])}
}

// mapping is an entry of the table of mappings (struct rs_iomap): the peer's
// memory at an offset.
type mapping struct {
	offset uint64
	extent
}

func (m mapping) append(b []byte, o binary.AppendByteOrder) []byte {
	return m.extent.append(o.AppendUint64(b, m.offset), o)
}

func parseMapping(b []byte, o binary.ByteOrder) mapping {
	return mapping{o.Uint64(b), parseExtent(b[8:], o)}
}

// hello is the private data of both halves of the handshake (struct
// rs_conn_data).
type hello struct {
	bigEndian bool
	maps      int    // entries of the table of mappings, behind the table of halves
	credits   uint16 // initial limit of messages
	table     extent // of halves; length counts entries
	data      extent // the half of the receive buffer to fill first
}

// Flags of the second byte.
const (
	flagBigEndian = 1 << 0
	flagMaps      = 1 << 1
)

func (h *hello) append(b []byte) []byte {
	var flags byte = flagMaps
	if h.bigEndian {
		flags |= flagBigEndian
	}
	b = append(b, version, flags)
	b = binary.BigEndian.AppendUint16(b, h.credits)
	b = append(b, 0, 0, 0, scale(h.maps))
	b = h.table.append(b, binary.BigEndian)
	return h.data.append(b, binary.BigEndian)
}

// parseHello reads the private data of the peer. Bytes behind the hello are padding.
func parseHello(b []byte) (h hello, err error) {
	switch {
	case len(b) < helloLen:
		return h, errs.New("handshake", syscall.EPROTO, "%d bytes of private data, want %d", len(b), helloLen)
	case b[0] != version:
		return h, errs.New("handshake", syscall.ENOTSUP, "the peer speaks version %d of the protocol, not %d, or none at all", b[0], version)
	}
	h.bigEndian = b[1]&flagBigEndian != 0
	if b[1]&flagMaps != 0 {
		h.maps = unscale(b[7])
	}
	h.credits = binary.BigEndian.Uint16(b[2:])
	h.table = parseExtent(b[8:], binary.BigEndian)
	h.data = parseExtent(b[24:], binary.BigEndian)
	if h.table.length < 1 || h.table.length > 1<<16 {
		return h, errs.New("handshake", syscall.EPROTO, "the peer has a table of %d entries", h.table.length)
	}
	return h, nil
}

// scale encodes a table size in one byte: sizes up to 128 as they are, larger ones in units of
// 256.
func scale(n int) byte {
	if n <= literalMax {
		return byte(n)
	}
	return 0x80 | byte(n>>8)
}

func unscale(b byte) int {
	if b <= literalMax {
		return int(b)
	}
	return int(b&0x7F) << 8
}

// order returns a byte order by its endianness.
func order(bigEndian bool) interface {
	binary.ByteOrder
	binary.AppendByteOrder
} {
	if bigEndian {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// hostBigEndian is the byte order of this host.
var hostBigEndian = binary.NativeEndian.Uint16([]byte{0, 1}) == 1

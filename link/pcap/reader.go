package pcap

import (
	"bufio"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/bits"
	"time"
)

// Reader reads a capture file from the beginning to the end, keeping one packet
// in memory.
//
// Captures on a sending or receiving host show some frames before the offloads of the
// card, or after the kernel has joined them. For frames to the port of RoCEv2 the Reader
// returns the packets of the wire: see [Mark], and Record.Segments.
type Reader struct {
	// AsCaptured, set before the first Next, makes Next return all frames as they are in
	// the file.
	AsCaptured bool

	in   *bufio.Reader
	off  int64 // bytes consumed, for errors
	buf  []byte
	tail [4]byte // end of a block; buf holds the packet
	next func(*Reader) error
	rec  Record

	frames  int
	offload offload

	order binary.ByteOrder
	unit  uint32   // classic: nanoseconds per unit of the fraction
	link  LinkType // classic

	// pcapng
	ifaces  []ifaceInfo // of the current section
	ifaces0 int         // number of those in earlier sections
	lost    lost
}

// lost has the counts of lost packets in a file.
type lost struct {
	total   map[int]uint64 // by interface, from its latest statistics
	packets uint64         // sum of the counts in packet blocks
}

// Interfaces returns how many interfaces the file has described so far. A classic file describes none.
func (r *Reader) Interfaces() int { return r.ifaces0 + len(r.ifaces) }

// Lost returns how many packets the capture has lost, according to the part of the file that was read: its
// statistics blocks, which are usually at the end of the file, and its packet blocks. Only pcapng has such
// counts.
func (r *Reader) Lost() uint64 {
	sum := uint64(0)
	for _, n := range r.lost.total {
		sum += n
	}
	return max(sum, r.lost.packets)
}

// ifaceInfo has the fields of an interface description that concern packets.
type ifaceInfo struct {
	link   LinkType
	snap   uint32
	ticks  uint64 // units of the time stamps per second
	offset int64  // seconds to add to them
}

// maxIfaces bounds the interfaces of a file.
const maxIfaces = 4096

// NewReader reads the head of a capture and recognizes its format: classic
// pcap in either byte order with microseconds or nanoseconds, or pcapng. The
// file may be compressed with gzip.
func NewReader(r io.Reader) (*Reader, error) {
	p := &Reader{in: bufio.NewReaderSize(r, 1<<16)}
	if err := p.unpack(); err != nil {
		return nil, err
	}
	head, err := p.read(4)
	if err != nil {
		if err == io.EOF {
			err = p.bad("the file is empty")
		}
		return nil, err
	}
	switch magic := binary.LittleEndian.Uint32(head); magic {
	case magicMicro, magicNano:
		p.order = binary.LittleEndian
	case bits.ReverseBytes32(magicMicro), bits.ReverseBytes32(magicNano):
		p.order = binary.BigEndian
	case magicNG:
		p.next = (*Reader).nextNG
		return p, p.section()
	default:
		if packer := packers[magic]; packer != "" {
			return nil, p.bad("it is compressed with %s: unpack it first", packer)
		}
		return nil, p.bad("it begins with % x, which is neither pcap nor pcapng", head)
	}
	p.unit = 1000
	if p.order.Uint32(head) == magicNano {
		p.unit = 1
	}
	rest, err := p.body(20)
	if err != nil {
		return nil, err
	}
	if major := p.order.Uint16(rest); major != 2 {
		return nil, p.bad("version %d.%d, want 2.4", major, p.order.Uint16(rest[2:]))
	}
	p.link = LinkType(p.order.Uint32(rest[16:]) & 0x0FFFFFFF) // above: the length of the FCS
	p.next = (*Reader).nextClassic
	return p, nil
}

// packers are the first four bytes of other compressed formats, for a better
// error.
var packers = map[uint32]string{0xFD2FB528: "zstd", 0x587A37FD: "xz", 0x184D2204: "lz4", 0x04034B50: "zip"}

// unpack reads through gzip if the file is compressed.
func (r *Reader) unpack() error {
	if head, _ := r.in.Peek(2); len(head) < 2 || head[0] != 0x1F || head[1] != 0x8B {
		return nil
	}
	z, err := gzip.NewReader(r.in)
	if err != nil {
		return r.bad("it is compressed with gzip, and damaged: %v", err)
	}
	r.in = bufio.NewReaderSize(z, 1<<16)
	return nil
}

// Next returns the next packet. At the end of the file it returns io.EOF, or an
// error that is io.ErrUnexpectedEOF if the file ends in a packet. After an error
// there are no more packets.
func (r *Reader) Next() (rec Record, err error) {
	if r.next == nil {
		return Record{}, io.EOF
	}
	if r.offload.more() {
		r.offload.segment(&r.rec)
		return r.rec, nil
	}
	r.rec = Record{}
	if err = r.next(r); err != nil {
		r.next = nil
		return Record{}, err
	}
	r.frames++
	r.rec.Number = r.frames
	r.rec.cooked()
	if !r.AsCaptured {
		r.offload.undo(&r.rec)
	}
	return r.rec, nil
}

// nextClassic reads a record: seconds, fraction, captured and original length.
func (r *Reader) nextClassic() error {
	rec := &r.rec
	h, err := r.read(16)
	if err != nil {
		return err
	}
	o := r.order
	rec.Time = time.Unix(int64(o.Uint32(h)), int64(o.Uint32(h[4:]))*int64(r.unit))
	n, orig := o.Uint32(h[8:]), o.Uint32(h[12:])
	rec.LinkType = r.link
	return r.packet(n, orig)
}

// packet reads the data of a packet.
func (r *Reader) packet(n, orig uint32) (err error) {
	rec := &r.rec
	if n > MaxPacket {
		return r.bad("a packet of %d bytes, more than %d", n, MaxPacket)
	}
	rec.OrigLen = max(int(n), int(orig))
	rec.Data, err = r.body(int(n))
	return err
}

// nextNG reads blocks up to the next packet.
func (r *Reader) nextNG() error {
	for {
		h, err := r.read(4)
		if err != nil {
			return err
		}
		if binary.LittleEndian.Uint32(h) == blockSection {
			if err := r.section(); err != nil {
				return err
			}
			continue
		}
		kind := r.order.Uint32(h)
		if h, err = r.body(4); err != nil {
			return err
		}
		size := r.order.Uint32(h)
		if size < 12 || size%4 != 0 {
			return r.bad("a block of %d bytes", size)
		}
		left := int64(size) - 8 // unread bytes of the block
		switch kind {
		case blockInterface:
			err = r.iface(&left)
		case blockStats:
			err = r.statistics(&left)
		case blockPacket, blockPacketOld, blockSimple:
			err = r.packetNG(kind, &left)
		}
		if err != nil {
			return err
		}
		if err := r.endBlock(left, size); err != nil {
			return err
		}
		if r.rec.Data != nil {
			return nil
		}
	}
}

// section reads a section header after its type. It sets the byte order and clears the interfaces.
func (r *Reader) section() error {
	h, err := r.body(8)
	if err != nil {
		return err
	}
	switch binary.LittleEndian.Uint32(h[4:]) {
	case orderMark:
		r.order = binary.LittleEndian
	case bits.ReverseBytes32(orderMark):
		r.order = binary.BigEndian
	default:
		return r.bad("a section with the byte order mark % x", h[4:8])
	}
	size := r.order.Uint32(h)
	if size < 28 || size%4 != 0 {
		return r.bad("a section header of %d bytes", size)
	}
	if h, err = r.body(4); err != nil {
		return err
	}
	if major := r.order.Uint16(h); major != 1 {
		return r.bad("pcapng version %d.%d, want 1", major, r.order.Uint16(h[2:]))
	}
	r.ifaces0 += len(r.ifaces)
	r.ifaces = r.ifaces[:0]
	return r.endBlock(int64(size)-16, size)
}

// endBlock skips the rest of a block and checks the length at its end.
func (r *Reader) endBlock(left int64, size uint32) error {
	if left < 4 {
		return r.bad("a block of %d bytes is too short for what it holds", size)
	}
	for left > 4 {
		n, err := r.in.Discard(int(min(left-4, 1<<20)))
		r.off += int64(n)
		left -= int64(n)
		if err != nil {
			return r.cut(err)
		}
	}
	if _, err := io.ReadFull(r.in, r.tail[:]); err != nil {
		return r.cut(err)
	}
	r.off += 4
	if end := r.order.Uint32(r.tail[:]); end != size {
		return r.bad("a block is %d bytes at its beginning and %d at its end", size, end)
	}
	return nil
}

// part reads n bytes of a block with *left unread bytes.
func (r *Reader) part(n int64, left *int64) ([]byte, error) {
	if n > *left-4 {
		return nil, r.bad("a block is too short for what it holds")
	}
	*left -= n
	return r.body(int(n))
}

// iface reads an interface description.
func (r *Reader) iface(left *int64) error {
	if r.ifaces0+len(r.ifaces) >= maxIfaces {
		return r.bad("more than %d interfaces", maxIfaces)
	}
	h, err := r.part(8, left)
	if err != nil {
		return err
	}
	i := ifaceInfo{link: LinkType(r.order.Uint16(h)), snap: r.order.Uint32(h[4:]), ticks: 1e6}
	err = r.options(left, func(code uint16, v []byte) error {
		switch {
		case code == optTsResol && len(v) == 1:
			exp := v[0] & 0x7F
			switch {
			case v[0]&0x80 != 0 && exp < 64:
				i.ticks = 1 << exp
			case v[0]&0x80 == 0 && exp < 20:
				i.ticks = 1
				for range exp {
					i.ticks *= 10
				}
			default:
				return r.bad("an interface with a time resolution of %#x", v[0])
			}
		case code == optTsOffset && len(v) == 8:
			i.offset = int64(r.order.Uint64(v))
		}
		return nil
	})
	r.ifaces = append(r.ifaces, i)
	return err
}

// statistics reads the statistics of an interface. They replace earlier ones of the same interface, because
// each counts from the start of the capture.
func (r *Reader) statistics(left *int64) error {
	h, err := r.part(12, left)
	if err != nil {
		return err
	}
	iface := r.order.Uint32(h)
	if uint64(iface) >= uint64(len(r.ifaces)) {
		return r.bad("statistics of interface %d, of %d", iface, len(r.ifaces))
	}
	var sum uint64
	err = r.options(left, func(code uint16, v []byte) error {
		if (code == optIfDrop || code == optOSDrop) && len(v) == 8 {
			sum += r.order.Uint64(v)
		}
		return nil
	})
	if r.lost.total == nil {
		r.lost.total = map[int]uint64{}
	}
	r.lost.total[r.ifaces0+int(iface)] = sum
	return err
}

// options reads options up to the end of the block or the end mark.
func (r *Reader) options(left *int64, f func(code uint16, v []byte) error) error {
	for *left >= 4+4 {
		h, err := r.part(4, left)
		if err != nil {
			return err
		}
		code, n := r.order.Uint16(h), int64(r.order.Uint16(h[2:]))
		if code == optEnd {
			return nil
		}
		v, err := r.part((n+3)&^3, left)
		if err != nil {
			return err
		}
		if err := f(code, v[:n]); err != nil {
			return err
		}
	}
	return nil
}

// packetNG reads a packet block of one of the three kinds. The options are read
// behind the packet in the buffer.
func (r *Reader) packetNG(kind uint32, left *int64) error {
	o, rec := r.order, &r.rec
	var iface, n, orig uint32
	var ticks uint64
	if kind == blockSimple {
		h, err := r.part(4, left)
		if err != nil {
			return err
		}
		orig = o.Uint32(h)
		n = min(orig, uint32(*left-4))
		if len(r.ifaces) > 0 && r.ifaces[0].snap > 0 {
			n = min(n, r.ifaces[0].snap)
		}
	} else {
		h, err := r.part(20, left)
		if err != nil {
			return err
		}
		iface = o.Uint32(h)
		if kind == blockPacketOld {
			iface = uint32(o.Uint16(h)) // and a count of drops
		}
		ticks = uint64(o.Uint32(h[4:]))<<32 | uint64(o.Uint32(h[8:]))
		n, orig = o.Uint32(h[12:]), o.Uint32(h[16:])
	}
	if uint64(iface) >= uint64(len(r.ifaces)) {
		return r.bad("a packet of interface %d, of %d", iface, len(r.ifaces))
	}
	i := &r.ifaces[iface]
	if kind == blockSimple {
		rec.Time = time.Time{} // it has none
	} else {
		rec.Time = i.time(ticks)
	}
	rec.LinkType, rec.Interface = i.link, r.ifaces0+int(iface)
	if int64(n) > *left-4 {
		return r.bad("a packet of %d bytes in a block with %d left", n, *left-4)
	}
	if err := r.packet(n, orig); err != nil {
		return err
	}
	*left -= int64(n)
	if rec.Data == nil {
		rec.Data = []byte{} // nil means that there is no packet
	}
	if kind != blockPacket {
		return nil
	}

	// Keep the packet while the padding and the options are read.
	data := rec.Data
	whole := r.buf
	r.buf = r.buf[len(data):]
	defer func() { r.buf = whole }()
	if _, err := r.part(int64(-n&3), left); err != nil {
		return err
	}
	return r.options(left, func(code uint16, v []byte) error {
		switch {
		case code == optComment:
			rec.Comment = string(v)
		case code == optDrops && len(v) == 8:
			r.lost.packets += o.Uint64(v)
		case code == optPacketID && len(v) == 8:
			rec.ID = o.Uint64(v)
		case code == optFlags && len(v) == 4:
			switch o.Uint32(v) & flagsDirection {
			case flagsIn:
				rec.Direction = In
			case flagsOut:
				rec.Direction = Out
			}
		}
		return nil
	})
}

// The years from 1 to 9999, in seconds of Unix.
const (
	firstSecond = -62135596800
	lastSecond  = 253402300799
)

// time converts a time stamp of the interface. It returns the zero Time if the year is not between 1 and
// 9999.
func (i *ifaceInfo) time(ticks uint64) time.Time {
	hi, lo := bits.Mul64(ticks%i.ticks, 1e9)
	ns, _ := bits.Div64(hi, lo, i.ticks)
	sec := int64(ticks/i.ticks) + i.offset
	if ticks/i.ticks > lastSecond || sec < firstSecond || sec > lastSecond {
		return time.Time{}
	}
	return time.Unix(sec, int64(ns))
}

// read is body, but the end of the file before the first byte is io.EOF.
func (r *Reader) read(n int) ([]byte, error) {
	if _, err := r.in.Peek(1); err == io.EOF {
		return nil, io.EOF
	}
	return r.body(n)
}

// body reads n bytes into the buffer.
func (r *Reader) body(n int) ([]byte, error) {
	if cap(r.buf) < n {
		r.buf = make([]byte, n+4096) // the options of a packet go behind it
	}
	b := r.buf[:n]
	k, err := io.ReadFull(r.in, b)
	r.off += int64(k)
	if err != nil {
		return nil, r.cut(err)
	}
	return b, nil
}

// cut returns the error of a read that failed inside the file.
func (r *Reader) cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("pcap: the file ends at byte %d, inside a packet or header: %w", r.off, io.ErrUnexpectedEOF)
	}
	return fmt.Errorf("pcap: at byte %d: %w", r.off, err)
}

func (r *Reader) bad(format string, a ...any) error {
	return fmt.Errorf("pcap: %w: at byte %d: %s", ErrFormat, r.off, fmt.Sprintf(format, a...))
}

package pcap

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// Format is a file format. Times have nanoseconds in both.
type Format uint8

// The formats. All programs read Classic; NG also has the interface and the
// direction of a packet.
const (
	Classic Format = iota
	NG
)

// Interface describes an interface of a capture.
type Interface struct {
	Name        string
	Description string
	LinkType    LinkType
}

// Writer writes a capture file. Its methods may be called by several
// goroutines: all Ports of a device can share one.
type Writer struct {
	mu      sync.Mutex
	out     *bufio.Writer
	file    io.Closer // of Create
	format  Format
	snap    int
	link    LinkType // classic
	ifaces  int
	err     error // the first error: nothing is written after it
	scratch [64]byte
	remarks []byte // options of the current packet
}

// NewWriter makes a writer. The file begins with the first interface added.
// Packets are cut to snap bytes; 0 means no cut. Call Flush at the end.
func NewWriter(w io.Writer, f Format, snap int) *Writer {
	if snap <= 0 || snap > MaxPacket {
		snap = MaxPacket
	}
	return &Writer{out: bufio.NewWriterSize(w, 1<<16), format: f, snap: snap}
}

// IsNG reports whether the name of a file means pcapng.
func IsNG(name string) bool {
	ext := filepath.Ext(name)
	return ext == ".pcapng" || ext == ".ntar"
}

// Create makes a writer for a new file, in the format of its name: NG for
// ".pcapng" and ".ntar", else Classic. "-" is standard output. Call Close at the
// end.
func Create(name string, snap int) (*Writer, error) {
	format := Classic
	if IsNG(name) {
		format = NG
	}
	if name == "-" {
		return NewWriter(os.Stdout, format, snap), nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	w := NewWriter(f, format, snap)
	w.file = f
	return w, nil
}

// AddInterface adds an interface and returns its number, for Record.Interface.
// In a classic file all interfaces must have the same link type.
func (w *Writer) AddInterface(i Interface) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return 0, w.err
	}
	switch {
	case w.format == NG:
		if w.ifaces == 0 {
			w.section()
		}
		w.describe(i)
	case w.ifaces == 0:
		w.link = i.LinkType
		w.classicHeader()
	case w.link != i.LinkType:
		return 0, fmt.Errorf("pcap: interface %s is %v and the file %v: only pcapng can hold both", i.Name, i.LinkType, w.link)
	}
	w.ifaces++
	return w.ifaces - 1, w.err
}

// Write appends a packet: its Time, Data, Interface and Direction, and OrigLen if that is more than
// len(Data); in pcapng also its Comment and ID. After an error of the file, all later calls return it.
func (w *Writer) Write(r *Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err != nil {
		return w.err
	}
	if r.Interface < 0 || r.Interface >= w.ifaces {
		return fmt.Errorf("pcap: a packet of interface %d, of %d", r.Interface, w.ifaces)
	}
	data, orig := r.Data, max(r.OrigLen, len(r.Data))
	if len(data) > w.snap {
		data = data[:w.snap]
	}
	ns := uint64(r.Time.UnixNano())
	le, b := binary.LittleEndian, w.scratch[:]
	if w.format == Classic {
		le.PutUint32(b, uint32(ns/1e9))
		le.PutUint32(b[4:], uint32(ns%1e9))
		le.PutUint32(b[8:], uint32(len(data)))
		le.PutUint32(b[12:], uint32(orig))
		w.write(b[:16])
		w.write(data)
		return w.err
	}
	w.remarks = w.remarks[:0]
	if r.Comment != "" {
		w.remarks = option(w.remarks, optComment, []byte(r.Comment))
	}
	if r.ID != 0 {
		w.remarks = le.AppendUint64(append(w.remarks, optPacketID, 0, 8, 0), r.ID)
	}
	pad := -len(data) & 3
	size := 28 + len(data) + pad + len(w.remarks) + 12 + 4
	le.PutUint32(b, blockPacket)
	le.PutUint32(b[4:], uint32(size))
	le.PutUint32(b[8:], uint32(r.Interface))
	le.PutUint32(b[12:], uint32(ns>>32))
	le.PutUint32(b[16:], uint32(ns))
	le.PutUint32(b[20:], uint32(len(data)))
	le.PutUint32(b[24:], uint32(orig))
	w.write(b[:28])
	w.write(data)
	clear(b[:20])
	w.write(b[:pad])
	w.write(w.remarks)
	le.PutUint16(b[4:], optFlags)
	le.PutUint16(b[6:], 4)
	le.PutUint32(b[8:], directionFlags[r.Direction%3])
	le.PutUint32(b[16:], uint32(size))
	w.write(b[4:20])
	return w.err
}

var directionFlags = [...]uint32{Unknown: 0, In: flagsIn, Out: flagsOut}

// Flush writes buffered packets to the file.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil {
		w.err = w.out.Flush()
	}
	return w.err
}

// Close flushes, and closes the file if Create made it.
func (w *Writer) Close() error {
	err := w.Flush()
	if w.file != nil {
		if cerr := w.file.Close(); err == nil {
			err = cerr
		}
	}
	return err
}

// write appends bytes and keeps the first error.
func (w *Writer) write(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// classicHeader writes the head of a classic file with nanoseconds.
func (w *Writer) classicHeader() {
	le, b := binary.LittleEndian, w.scratch[:24]
	clear(b)
	le.PutUint32(b, magicNano)
	le.PutUint16(b[4:], 2)
	le.PutUint16(b[6:], 4)
	le.PutUint32(b[16:], uint32(w.snap))
	le.PutUint32(b[20:], uint32(w.link))
	w.write(b)
}

// section writes the section header of a pcapng file, of unknown length.
func (w *Writer) section() {
	body := binary.LittleEndian.AppendUint32(nil, orderMark)
	body = append(body, 1, 0, 0, 0) // version 1.0
	body = append(body, 255, 255, 255, 255, 255, 255, 255, 255)
	w.block(blockSection, option(body, optUserAppl, []byte("roce")))
}

// describe writes an interface description.
func (w *Writer) describe(i Interface) {
	body := binary.LittleEndian.AppendUint32(nil, uint32(i.LinkType)&0xFFFF)
	body = binary.LittleEndian.AppendUint32(body, uint32(w.snap))
	if i.Name != "" {
		body = option(body, optIfName, []byte(i.Name))
	}
	if i.Description != "" {
		body = option(body, optIfDesc, []byte(i.Description))
	}
	w.block(blockInterface, option(body, optTsResol, []byte{9})) // 10^-9 s
}

// block writes a block whose body ends with options.
func (w *Writer) block(kind uint32, body []byte) {
	body = append(body, 0, 0, 0, 0) // end of options
	size := uint32(len(body) + 12)
	le := binary.LittleEndian
	w.write(le.AppendUint32(le.AppendUint32(nil, kind), size))
	w.write(body)
	w.write(le.AppendUint32(nil, size))
}

// option appends an option, padded to 32 bits.
func option(b []byte, code uint16, v []byte) []byte {
	v = v[:min(len(v), 65535)]
	b = binary.LittleEndian.AppendUint16(b, code)
	b = binary.LittleEndian.AppendUint16(b, uint16(len(v)))
	b = append(b, v...)
	return append(b, "\x00\x00\x00"[:-len(v)&3]...)
}

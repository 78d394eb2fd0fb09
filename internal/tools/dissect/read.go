package dissect

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link/pcap"
)

// ReadFile takes every frame of a capture apart and hands it to f, in order; of a
// super-packet its packets. The packet is valid until f returns. "-" is standard input. It stops at the first
// error of f; a damaged file is an error too, after all that came before. Standard
// input ends with ctx, too.
func ReadFile(ctx context.Context, name string, f func(*Packet) error) error {
	var in io.Reader
	if name == "-" {
		stdin, w := io.Pipe()
		defer stdin.Close()
		go func() {
			_, err := io.Copy(w, os.Stdin) // a read from a terminal cannot be interrupted
			w.CloseWithError(err)
		}()
		defer context.AfterFunc(ctx, func() { w.Close() })()
		in = stdin
	} else {
		file, err := os.Open(name)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	}
	if err := Read(in, f); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Read is [ReadFile] of a stream.
func Read(in io.Reader, f func(*Packet) error) error {
	r, err := pcap.NewReader(in)
	if err != nil {
		return err
	}
	var p Packet
	var first time.Time
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if p.Num == 0 {
			first = rec.Time
		}
		p.Num, p.Segment, p.Segments, p.Marks = rec.Number, rec.Segment, rec.Segments, rec.Marks
		p.IfIndex = rec.IfIndex
		p.Time, p.At = rec.Time, rec.Time.Sub(first)
		p.parseRecord(&rec)
		if err := f(&p); err != nil {
			return err
		}
	}
}

// parseRecord takes the frame of a record apart.
func (p *Packet) parseRecord(rec *pcap.Record) {
	p.Len = rec.OrigLen
	data, layout, ok := rec.Frame()
	if !ok { // neither Ethernet nor IP
		p.Kind, p.Err = Other, nil
		return
	}
	p.Parse(data, layout)
	if missing := rec.OrigLen - len(rec.Data); p.Kind == Malformed && missing > 0 {
		p.parseCut(data, layout, missing)
	}
}

// parseCut takes a frame apart that misses its last bytes.
func (p *Packet) parseCut(data []byte, layout frame.Layout, missing int) {
	p.Kind = Truncated
	if len(data)+missing > maxFrame {
		return
	}
	whole := Packet{Marks: pcap.WrongUDPChecksum} // as it is bound to be
	p.whole = append(append(p.whole[:0], data...), make([]byte, missing)...)
	whole.Parse(p.whole, layout)
	f := &whole.Frame
	// Of a super-packet only the first packet could be shown, and not how long that is.
	if whole.Kind != RoCE || !onePacket(f) {
		return
	}
	if len(data) < linkHeader(data, layout)+len(f.IP)+udpHeader+int(f.Info.HeaderLen) {
		return
	}
	p.Kind, p.Err, p.Frame, p.Cut = RoCE, nil, *f, true
}

const (
	udpHeader = 8

	// maxFrame is more than a frame with one RoCE packet has.
	maxFrame = 4096 + 512
)

// onePacket reports whether the payload is as long as one packet has it. In the middle of
// a message that is the path MTU.
func onePacket(f *frame.Packet) bool {
	n := f.PayloadLen()
	if f.Info.Flags&(bth.Payload|bth.Last) != bth.Payload {
		return n <= bth.MTU4096.Bytes()
	}
	for m := bth.MTU256; m <= bth.MTU4096; m++ {
		if n == m.Bytes() {
			return true
		}
	}
	return false
}

// linkHeader returns the length of what is before the IP header of a parsed frame.
func linkHeader(data []byte, layout frame.Layout) int {
	switch {
	case layout != frame.LayoutEthernet:
		return 0
	case data[12] == 0x81 && data[13] == 0: // a VLAN tag
		return 18
	}
	return 14
}

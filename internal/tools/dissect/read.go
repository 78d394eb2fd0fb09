package dissect

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/link/pcap"
)

// ReadFile decodes every frame of a capture and calls f with it, in order. For a super-packet it calls f with each packet.
// The packet is valid until f returns. "-" is standard input, which also ends with ctx.
// ReadFile returns the first error of f. For a damaged file it returns an error after all packets
// before the damage.
func ReadFile(ctx context.Context, name string, f func(*Packet) error) error {
	return open(ctx, name, func(in io.Reader) error { return Read(in, f) })
}

// FileRecords calls f with each record of a capture, as [Records] does. It returns how many packets the capture has lost, according to
// the file.
func FileRecords(ctx context.Context, name string, f func(*pcap.Record) error) (lost uint64, err error) {
	err = open(ctx, name, func(in io.Reader) (err error) {
		lost, err = Records(in, f)
		return err
	})
	return lost, err
}

// open calls use with a file, or with standard input.
func open(ctx context.Context, name string, use func(io.Reader) error) error {
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
	if err := use(in); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// Records is like [FileRecords], for a stream. A record is valid until f returns. If the capture has several interfaces, f gets their
// records in the order of the times. Records of the same interface keep their order in the file.
func Records(in io.Reader, f func(*pcap.Record) error) (lost uint64, err error) {
	r, err := pcap.NewReader(in)
	if err != nil {
		return 0, err
	}
	var m merger
	for {
		rec, err := r.Next()
		if err != nil {
			if e := m.flush(f); e != nil {
				return r.Lost(), e
			}
			if err == io.EOF {
				err = nil
			}
			return r.Lost(), err
		}
		if r.Interfaces() < 2 {
			err = f(&rec)
		} else {
			err = m.add(&rec, f)
		}
		if err != nil {
			return r.Lost(), err
		}
	}
}

// Read is like [ReadFile], for a stream.
func Read(in io.Reader, f func(*Packet) error) error {
	r, err := pcap.NewReader(in)
	if err != nil {
		return err
	}
	var p Packet
	var lnet sniff.Assembler
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
		p.At = rec.Time.Sub(first)
		p.ParseRecord(&rec)
		if p.Kind == RoCE && !p.Cut {
			p.LNet = lnet.Packet(&p.Frame, p.CM)
		}
		if err := f(&p); err != nil {
			return err
		}
	}
}

// ParseRecord decodes the frame of a record. It sets everything but At and LNet.
func (p *Packet) ParseRecord(rec *pcap.Record) {
	p.Num, p.Segment, p.Segments, p.Marks = rec.Number, rec.Segment, rec.Segments, rec.Marks
	p.Interface, p.IfIndex, p.Direction, p.Comment = rec.Interface, rec.IfIndex, rec.Direction, rec.Comment
	p.Time, p.Len = rec.Time, rec.OrigLen
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

// parseCut decodes a frame whose last bytes were not captured.
func (p *Packet) parseCut(data []byte, layout frame.Layout, missing int) {
	p.Kind = Truncated
	if len(data)+missing > maxFrame {
		return
	}
	whole := Packet{Marks: pcap.WrongUDPChecksum} // the missing bytes are zeros, so the checksum is wrong
	p.whole = append(append(p.whole[:0], data...), make([]byte, missing)...)
	whole.Parse(p.whole, layout)
	f := &whole.Frame
	// The length of the packets of a super-packet is not known.
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

	// maxFrame is larger than any frame with one RoCE packet.
	maxFrame = 4096 + 512
)

// onePacket reports whether the payload has a possible length for one packet: the length of a path MTU in a FIRST or MIDDLE
// packet, and at most the largest path MTU in others.
func onePacket(f *frame.Packet) bool {
	n := f.PayloadLen()
	if f.Info.Flags&(bth.Payload|bth.Last) != bth.Payload {
		return n <= bth.MTU4096.Bytes()
	}
	return MTUOf(n) != 0
}

// MTUOf returns the path MTU of n bytes, 0 if there is none.
func MTUOf(n int) bth.MTU {
	m := bth.MTU4096
	for m > 0 && m.Bytes() != n {
		m--
	}
	return m
}

// linkHeader returns the length of the headers before the IP header of a parsed frame.
func linkHeader(data []byte, layout frame.Layout) int {
	switch {
	case layout != frame.LayoutEthernet:
		return 0
	case data[12] == 0x81 && data[13] == 0: // a VLAN tag
		return 18
	}
	return 14
}

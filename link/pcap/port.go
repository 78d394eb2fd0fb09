package pcap

import (
	"fmt"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Port is a link.Port that captures its packets.
type Port struct {
	link.Port // the wrapped Port; implements all methods that are not below

	w      *Writer
	now    func() time.Time
	seen   func(*Record)
	number int
	live   bool
	tx, rx Record
	lent   bool
	fresh  bool // packets were captured since the last flush of the writer

	layout  frame.Layout // of the driver
	record  frame.Layout // of the capture
	path    *frame.Path  // of the packet lent
	rebuilt rebuilder
}

// Options changes how a Port captures.
type Options struct {
	// Live flushes captured packets with every batch, for a reader that
	// follows the file.
	Live bool

	// Now is the clock of the time stamps; nil means time.Now.
	Now func() time.Time

	// Seen is called for each packet, with Number from 1, on the goroutine that sends or receives it.
	// The record is valid until Seen returns.
	Seen func(*Record)
}

// Wrap adds a tap between inner and its user. The Port then owns inner, but not the writer, which several Ports may share;
// Close flushes the writer. The writer may be nil if Options.Seen is set. If the capture fails, for instance on a full
// disk, the traffic continues, and the writer's Flush returns the error.
//
// If the driver does not show the headers, or not those of all segments of a
// super-packet, the Port makes them from the known fields, and computes the
// IPv4 Identification from the ICRC. The hop limit of sent packets and the UDP
// checksum are then unknown.
func Wrap(inner link.Port, w *Writer, o Options) (*Port, error) {
	info := inner.Info()
	lt, record := Raw, frame.LayoutIP
	switch info.Layout {
	case frame.LayoutEthernet:
		lt, record = Ethernet, frame.LayoutEthernet
	case frame.LayoutIP, frame.LayoutUDP:
	default:
		return nil, link.Fail("pcap", "wrap", info.Interface, link.ErrUnsupported, fmt.Errorf("driver %s has frames of unknown layout %v", info.Driver, info.Layout), "")
	}
	n := 0
	if w != nil {
		var err error
		if n, err = w.AddInterface(Interface{Name: info.Interface, Description: info.Driver + " " + info.Mode, LinkType: lt}); err != nil {
			return nil, err
		}
	}
	p := &Port{Port: inner, w: w, now: o.Now, seen: o.Seen, live: o.Live && w != nil, layout: info.Layout, record: record}
	if p.now == nil {
		p.now = time.Now
	}
	p.tx = Record{Interface: n, LinkType: lt, Direction: Out}
	p.rx = Record{Interface: n, LinkType: lt, Direction: In}
	if p.live {
		w.Flush() // a file without packets is a capture, too; Close returns an error
	}
	return p, nil
}

// Inner returns the wrapped Port.
func (p *Port) Inner() link.Port { return p.Port }

// Begin implements frame.Sink.
func (p *Port) Begin(path *frame.Path, n int) (body []byte, crc bth.CRC, ok bool) {
	body, crc, ok = p.Port.Begin(path, n)
	p.lent, p.path = ok, path
	return body, crc, ok
}

// Commit implements frame.Sink.
func (p *Port) Commit() {
	if p.lent {
		p.lent = false
		p.tx.Time, p.tx.Data = p.now(), p.Port.Lent()
		if p.layout == frame.LayoutUDP {
			env := p.path.Envelope()
			p.tx.Data = p.rebuilt.frame(&link.Frame{Data: p.tx.Data, Env: &env}, p.record)
		}
		p.write(&p.tx)
		p.tx.Data = nil
	}
	p.Port.Commit()
}

// Flush implements link.Port.
func (p *Port) Flush() error {
	p.writeOut()
	return p.Port.Flush()
}

// Recv implements link.Port.
func (p *Port) Recv(fr []link.Frame) (int, error) {
	n, err := p.Port.Recv(fr)
	if n > 0 {
		p.rx.Time = p.now()
		for i := range fr[:n] {
			f := &fr[i]
			p.rx.Data = f.Data
			if f.Env != nil {
				p.rx.Data = p.rebuilt.frame(f, p.record)
			}
			p.write(&p.rx)
		}
		p.rx.Data = nil
		p.writeOut()
	}
	return n, err
}

// write passes a packet to the writer and to Options.Seen.
func (p *Port) write(r *Record) {
	p.number++
	r.Number, r.OrigLen = p.number, len(r.Data)
	if p.w != nil {
		p.w.Write(r)
		p.fresh = true
	}
	if p.seen != nil {
		p.seen(r)
	}
}

func (p *Port) writeOut() {
	if p.live && p.fresh {
		p.fresh = false
		p.w.Flush()
	}
}

// Close implements link.Port.
func (p *Port) Close() error {
	err := p.Port.Close()
	if p.w != nil {
		p.w.Flush()
	}
	return err
}

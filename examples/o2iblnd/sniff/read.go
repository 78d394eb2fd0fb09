package sniff

import (
	"io"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/pcap"
)

// Read returns the messages in a capture, in order. It ignores truncated frames.
func Read(in io.Reader) (all []*Unit, err error) {
	r, err := pcap.NewReader(in)
	if err != nil {
		return nil, err
	}
	var a Assembler
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		data, layout, ok := rec.Frame()
		var p frame.Packet
		if !ok || p.Parse(data, layout) != nil {
			continue
		}
		var mad cm.Message
		if p.Op.Transport() == bth.UD {
			mad, _ = cm.DecodeMAD(p.Payload()) // nil if it is another datagram
		}
		if u := a.Packet(&p, mad); u != nil {
			all = append(all, u)
		}
	}
}

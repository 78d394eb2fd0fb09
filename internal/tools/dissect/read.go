package dissect

import (
	"fmt"
	"io"
	"os"
	"time"

	"github.com/goroce/roce/link/pcap"
)

// ReadFile takes every frame of a capture apart and hands it to f, in order. The
// packet is valid until f returns. "-" is standard input. It stops at the first
// error of f; a damaged file is an error too, after all that came before.
func ReadFile(name string, f func(*Packet) error) error {
	in := os.Stdin
	if name != "-" {
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
		p.Num++
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
	if p.Kind == Malformed && rec.OrigLen > len(rec.Data) {
		p.Kind = Truncated
	}
}

package main

import (
	"fmt"
	"io"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// trace prints packets as they go by: a capture that is read while it is
// written.
type trace struct {
	tap  *pcap.Writer
	file *io.PipeWriter
	done chan error
}

// newTrace prints what is written to its tap, a packet per line.
func newTrace(w io.Writer) *trace {
	r, file := io.Pipe()
	t := &trace{tap: pcap.NewWriter(file, pcap.NG, 0), file: file, done: make(chan error, 1)}
	go func() {
		err := dissect.Read(r, func(p *dissect.Packet) error {
			_, err := fmt.Fprintln(w, p.Line())
			return err
		})
		r.CloseWithError(err) // the writer must not wait for ever
		t.done <- err
	}()
	return t
}

// close waits until everything is printed.
func (t *trace) close() error {
	t.tap.Close()
	t.file.Close()
	return <-t.done
}

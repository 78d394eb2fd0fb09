package machine

import (
	"io"

	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/pcap"
)

// trace prints packets while they are sent and received: it reads a capture while the tap writes it.
type trace struct {
	tap  *pcap.Writer
	file *io.PipeWriter
	done chan error
}

// newTrace returns a trace that prints the packets of its tap, one per line.
func newTrace(w io.Writer) *trace {
	r, file := io.Pipe()
	t := &trace{tap: pcap.NewWriter(file, pcap.NG, 0), file: file, done: make(chan error, 1)}
	go func() {
		err := dissect.Read(r, dissect.LinePrinter(w))
		r.CloseWithError(err) // otherwise the writer would wait for ever
		t.done <- err
	}()
	return t
}

// close waits until all packets are printed.
func (t *trace) close() error {
	t.tap.Close()
	t.file.Close()
	return <-t.done
}

//go:build linux

package blast

import (
	"errors"
	"time"

	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/links"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// driver sends and receives packets by one of our own drivers, without the stack above it.
type driver struct {
	port   link.Port
	path   *frame.Path
	head   int // bytes of headers in a received frame
	size   int
	frames [link.Batch]link.Frame
}

func openDriver(s harness.Spec) (*driver, error) {
	path, err := pathOf(s)
	if err != nil {
		return nil, err
	}
	p := &driver{path: path, size: s.Size + overhead}
	if p.port, err = links.Open(s); err != nil {
		return nil, err
	}
	p.head = path.HeaderLen(p.port.Info().Layout)
	return p, nil
}

func (p *driver) send(src *source) error {
	for range link.Batch {
		body, _, ok := p.port.Begin(p.path, p.size)
		if !ok {
			break
		}
		src.put(body)
		p.port.Commit()
	}
	if err := p.port.Flush(); err != nil && !errors.Is(err, link.ErrDown) {
		return err
	}
	return nil
}

func (p *driver) receive(dst *sink) error {
	n, err := p.port.Recv(p.frames[:])
	for _, f := range p.frames[:n] {
		b := f.Data
		if f.Env == nil { // a whole frame
			b = b[min(p.head, len(b)):]
		}
		dst.packet(b[:min(len(b), p.size)]) // without Ethernet padding
	}
	if errors.Is(err, link.ErrDown) {
		err = nil
	}
	return err
}

func (p *driver) mode() string { return p.port.Info().Mode }

func (p *driver) close() error { return p.port.Close() }

func (p *driver) ping(b []byte) error {
	for {
		if body, _, ok := p.port.Begin(p.path, len(b)); ok {
			copy(body, b)
			p.port.Commit()
			return p.port.Flush()
		}
		if err := p.port.Flush(); err != nil {
			return err
		}
		if err := p.port.Wait(time.Millisecond); err != nil {
			return err
		}
	}
}

func (p *driver) pong() (bool, error) {
	n, err := p.port.Recv(p.frames[:])
	return n > 0, err
}

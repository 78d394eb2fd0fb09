//go:build linux

package blast

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/goroce/roce/bench/internal/trial"
)

// carrier moves packets of one size.
type carrier interface {
	// send builds packets of src in its own buffers and sends as many as go best together.
	send(src *source) error
	// receive gives what has arrived to dst, and does not wait.
	receive(dst *sink) error
	mode() string
	close() error
}

// carriers are the sockets there are, by the link they are the ceiling of.
var carriers = map[string]func(trial.Spec) (carrier, error){
	"udp": newUDP,
	"raw": newPacket,
	"xdp": newXDP,
}

// New makes the roles of a blaster: the active end sends, the other measures.
func New(s trial.Spec) (trial.Role, error) {
	open := carriers[s.Link]
	if s.Port {
		open = newPort
	}
	if open == nil {
		return nil, fmt.Errorf("there is no blaster for %q", s.Link)
	}
	return &blaster{spec: s, open: open}, nil
}

type blaster struct {
	spec trial.Spec
	open func(trial.Spec) (carrier, error)
	c    carrier
}

func (b *blaster) Prepare() (_ any, err error) {
	b.c, err = b.open(b.spec)
	return "", err
}

func (b *blaster) Connect(json.RawMessage) error { return nil }

func (b *blaster) Close() error {
	if b.c == nil {
		return nil
	}
	return b.c.close()
}

func (b *blaster) Run(ctx context.Context) (trial.Measure, error) {
	if b.spec.Active {
		src := newSource(b.spec.Size)
		for turn := 0; turn%64 != 0 || ctx.Err() == nil; turn++ {
			if err := b.c.send(src); err != nil {
				return trial.Measure{}, err
			}
		}
		return trial.Measure{Packets: uint64(src.seq)}, nil
	}
	dst := newSink(b.spec)
	for turn := 0; ; turn++ {
		before := dst.packets
		if err := b.c.receive(dst); err != nil {
			return trial.Measure{}, err
		}
		if dst.packets == before && dst.bad == 0 {
			if turn%256 == 0 && ctx.Err() != nil {
				return trial.Measure{}, ctx.Err()
			}
			continue
		}
		if over, err := dst.batch(); over || err != nil {
			dst.measure.Mode = b.c.mode()
			return dst.measure, err
		}
	}
}

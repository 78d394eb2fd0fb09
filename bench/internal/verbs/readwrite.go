//go:build linux

package verbs

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bench/internal/harness"
	"github.com/goroce/roce/bench/internal/result"
)

// NewReadWrite makes the roles of READs and WRITEs in alternating slots of some milliseconds
// over one queue pair. First one end posts, then the other. A disturbance of the machine that lasts longer than a slot
// affects both. At the end the roles compare the data.
func NewReadWrite(s harness.Spec) (harness.Role, error) {
	if s.Op != result.ReadToWrite || s.Size <= 0 || s.QPs > 1 || s.Wait {
		return nil, fmt.Errorf("READs and WRITEs cannot alternate with %+v", s)
	}
	return &readWrite{spec: s, shape: shapeOf(s)}, nil
}

type readWrite struct {
	spec  harness.Spec
	shape shape
	*endpoint
	*pump
	lists [operations][][]roce.SendWR
}

// The operations that alternate.
const (
	reads = iota
	writes
	operations
)

// The memory of an end has these areas, each with room for all messages, and then room for the
// peer's rates.
const (
	source   = iota // of its WRITEs, and of the peer's READs
	written         // by the peer
	readInto        // by this end's READs
	areas
)

// rates are messages per second, by operation.
type rates [operations]float64

const ratesSize = 8 * operations

func (rw *readWrite) area(i int) int { return i * rw.shape.memory() }

func (rw *readWrite) Prepare() (any, error) {
	var err error
	if rw.endpoint, err = newEndpoint(rw.spec, rw.area(areas)+ratesSize, rw.shape.depth+1, 1); err != nil {
		return nil, err
	}
	rw.shape.fill(rw.mr.Bytes()[rw.area(source):rw.area(source+1)], 1)
	return rw.offer(), nil
}

func (rw *readWrite) Connect(b json.RawMessage) error {
	if err := rw.endpoint.Connect(b); err != nil {
		return err
	}
	rw.pump = newPump(rw.endpoint, rw.qps, rw.shape)
	rw.lists[reads] = rw.shape.sends(roce.Read, rw.mr, rw.area(readInto), rw.peer, rw.area(source))
	rw.lists[writes] = rw.shape.sends(roce.Write, rw.mr, rw.area(source), rw.peer, rw.area(written))
	return rw.postRecv()
}

func (rw *readWrite) Run(ctx context.Context) (m harness.Measure, err error) {
	if rw.spec.Active {
		m, err = rw.lead(ctx)
	} else {
		err = rw.follow(ctx)
	}
	m.Mode = rw.dev.mode()
	for i := written; i < areas && err == nil; i++ {
		b := rw.mr.Bytes()[rw.area(i):rw.area(i+1)]
		if at, ok := rw.shape.verify(b, 1); !ok {
			err = fmt.Errorf("wrong data: byte %d of %d is %#x", at, len(b), b[at])
		}
	}
	return m, err
}

// lead alternates with the peer until the measurement is over.
func (rw *readWrite) lead(ctx context.Context) (m harness.Measure, err error) {
	var (
		start  = time.Now().Add(rw.spec.Warmup)
		end    = start.Add(rw.spec.Duration)
		cycles []cycle
	)
	for len(cycles) < minCycles || time.Now().Before(end) {
		warm := time.Now().After(start)
		here, err := rw.post(ctx)
		if err != nil {
			return m, err
		}
		there, err := rw.await(ctx)
		if err != nil {
			return m, err
		}
		if warm {
			cycles = append(cycles, cycleOf(here, there))
		}
	}
	m = compare(cycles)
	m.Seconds = time.Since(start).Seconds()
	return m, nil
}

// follow is the loop of the end that posts second.
func (rw *readWrite) follow(ctx context.Context) error {
	for {
		_, err := rw.await(ctx)
		if err == nil {
			_, err = rw.post(ctx)
		} else if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// post posts one slot of each operation, and then a message with the rates. After that the peer posts.
func (rw *readWrite) post(ctx context.Context) (r rates, err error) {
	var b [ratesSize]byte
	for i := range r {
		s, err := rw.slot(ctx, rw.lists[i])
		if err != nil {
			return r, err
		}
		r[i] = s.rate()
		binary.BigEndian.PutUint64(b[8*i:], math.Float64bits(r[i]))
	}
	return r, rw.qps[0].PostSend(&roce.SendWR{Opcode: roce.Send, Inline: b[:]})
}

// await serves the peer's slots until its message comes, and returns the rates in it.
func (rw *readWrite) await(ctx context.Context) (r rates, err error) {
	for idle := 0; rw.cq.Poll(rw.wcs[:1]) == 0; idle++ {
		if idle%256 == 0 && ctx.Err() != nil {
			return r, ctx.Err()
		}
	}
	if err := check(&rw.wcs[0]); err != nil {
		return r, err
	}
	for i := range r {
		r[i] = math.Float64frombits(binary.BigEndian.Uint64(rw.mr.Bytes()[rw.area(areas)+8*i:]))
	}
	return r, rw.postRecv()
}

// postRecv posts the receive for the peer's next message.
func (rw *readWrite) postRecv() error {
	return rw.qps[0].PostRecv(&roce.RecvWR{SG: []roce.SGE{rw.mr.SGE(rw.area(areas), ratesSize)}})
}

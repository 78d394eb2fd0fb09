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
	"github.com/goroce/roce/bench/internal/result"
	"github.com/goroce/roce/bench/internal/trial"
)

// NewContest makes the roles of READs and WRITEs that take turns of some milliseconds over
// one queue pair, posted by one end and then by the other. What disturbs the machine for
// longer than that disturbs both. Afterwards the data is compared.
func NewContest(s trial.Spec) (trial.Role, error) {
	if s.Op != result.ReadToWrite || s.Size <= 0 || s.QPs > 1 || s.Wait {
		return nil, fmt.Errorf("no contest like %+v", s)
	}
	return &contest{spec: s, shape: shapeOf(s)}, nil
}

type contest struct {
	spec  trial.Spec
	shape shape
	*rig
	*pump
	lists [contenders][][]roce.SendWR
}

// The contenders.
const (
	reads = iota
	writes
	contenders
)

// The memory of an end is areas, each with room for all messages, and behind them room for
// the peer's rates.
const (
	origin  = iota // of its WRITEs, and of the peer's READs
	written        // by the peer
	read           // from the peer
	areas
)

// rates are messages a second, by contender.
type rates [contenders]float64

const ratesSize = 8 * contenders

func (c *contest) area(i int) int { return i * c.shape.memory() }

func (c *contest) Prepare() (any, error) {
	var err error
	if c.rig, err = newRig(c.spec, c.area(areas)+ratesSize, c.shape.depth+1, 1); err != nil {
		return nil, err
	}
	c.shape.fill(c.mr.Bytes()[c.area(origin):c.area(origin+1)], 1)
	return c.offer(), nil
}

func (c *contest) Connect(b json.RawMessage) error {
	var peer offer
	if err := json.Unmarshal(b, &peer); err != nil {
		return err
	}
	if err := c.connect(peer); err != nil {
		return err
	}
	c.pump = newPump(c.rig, c.qps, c.shape)
	c.lists[reads] = c.shape.sends(roce.Read, c.mr, c.area(read), peer, c.area(origin))
	c.lists[writes] = c.shape.sends(roce.Write, c.mr, c.area(origin), peer, c.area(written))
	return c.expect()
}

func (c *contest) Close() error {
	if c.rig == nil {
		return nil
	}
	return c.close()
}

func (c *contest) Run(ctx context.Context) (m trial.Measure, err error) {
	if c.spec.Active {
		m, err = c.measure(ctx)
	} else {
		err = c.follow(ctx)
	}
	m.Mode = c.dev.mode()
	for i := written; i < areas && err == nil; i++ {
		b := c.mr.Bytes()[c.area(i):c.area(i+1)]
		if at, ok := c.shape.verify(b, 1); !ok {
			err = fmt.Errorf("wrong data: byte %d of %d is %#x", at, len(b), b[at])
		}
	}
	return m, err
}

// measure has both ends post in turn until the time is over.
func (c *contest) measure(ctx context.Context) (m trial.Measure, err error) {
	var (
		start  = time.Now().Add(c.spec.Warmup)
		end    = start.Add(c.spec.Duration)
		cycles []cycle
	)
	for len(cycles) < minCycles || time.Now().Before(end) {
		warm := time.Now().After(start)
		here, err := c.turns(ctx)
		if err != nil {
			return m, err
		}
		if err := c.pass(here); err != nil {
			return m, err
		}
		there, err := c.await(ctx)
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

// follow is the other end.
func (c *contest) follow(ctx context.Context) error {
	for {
		if _, err := c.await(ctx); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		mine, err := c.turns(ctx)
		if err != nil {
			return err
		}
		if err := c.pass(mine); err != nil {
			return err
		}
	}
}

// expect posts a receive for the message by which the peer passes the turn.
func (c *contest) expect() error {
	return c.qps[0].PostRecv(&roce.RecvWR{SG: []roce.SGE{c.mr.SGE(c.area(areas), ratesSize)}})
}

// pass gives the turn to the peer, with what this end has measured.
func (c *contest) pass(mine rates) error {
	var b [ratesSize]byte
	for i, r := range mine {
		binary.BigEndian.PutUint64(b[8*i:], math.Float64bits(r))
	}
	return c.qps[0].PostSend(&roce.SendWR{Opcode: roce.Send, Inline: b[:]})
}

// await serves the peer until it passes the turn, and returns what it has measured.
func (c *contest) await(ctx context.Context) (theirs rates, err error) {
	for idle := 0; c.cq.Poll(c.wcs[:1]) == 0; idle++ {
		if idle%256 == 0 && ctx.Err() != nil {
			return theirs, ctx.Err()
		}
	}
	if err := check(&c.wcs[0]); err != nil {
		return theirs, err
	}
	for i := range theirs {
		theirs[i] = math.Float64frombits(binary.BigEndian.Uint64(c.mr.Bytes()[c.area(areas)+8*i:]))
	}
	return theirs, c.expect()
}

// turns are one of each contender.
func (c *contest) turns(ctx context.Context) (r rates, err error) {
	for i := range r {
		t, err := c.turn(ctx, c.lists[i])
		if err != nil {
			return r, err
		}
		r[i] = t.rate()
	}
	return r, nil
}

package harness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/rpc"
	"runtime/debug"
	"sync"
	"time"

	"github.com/goroce/roce/interop/child"
)

// Serve is the main loop of an end: it takes the steps of measurements that [Run] calls over
// in and out, and returns when in ends.
func Serve(in io.Reader, out io.WriteCloser, roles Roles) error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	e := &endpoint{roles: roles, all: ctx}
	if err := child.Serve(in, out, e, stop); err != nil {
		return err
	}
	return e.Close(child.None(false), nil)
}

// endpoint has the steps of a measurement as methods for net/rpc.
type endpoint struct {
	roles Roles
	all   context.Context // of all measurements

	role Role
	ctx  context.Context // of the role's Run
	stop context.CancelFunc
}

var errOrder = errors.New("the step comes out of order")

func (e *endpoint) Prepare(s Spec, offer *json.RawMessage) error {
	if e.role != nil {
		return errOrder
	}
	f := e.roles[s.Kind]
	if f == nil {
		return fmt.Errorf("there is no role for %q", s.Kind)
	}
	e.ctx, e.stop = context.WithCancel(e.all)
	role, err := f(s)
	if err != nil {
		return err
	}
	e.role = role
	v, err := role.Prepare()
	if err != nil {
		return err
	}
	*offer, err = json.Marshal(v)
	return err
}

func (e *endpoint) Connect(offer json.RawMessage, _ *child.None) error {
	if e.role == nil {
		return errOrder
	}
	return e.role.Connect(offer)
}

func (e *endpoint) Run(_ child.None, m *Measure) (err error) {
	if e.role == nil {
		return errOrder
	}
	*m, err = e.role.Run(e.ctx)
	return err
}

// Stop ends the context of Run.
func (e *endpoint) Stop(child.None, *child.None) error {
	e.stop()
	return nil
}

func (e *endpoint) Close(child.None, *child.None) error {
	if e.role == nil {
		return nil
	}
	e.stop()
	err := e.role.Close()
	e.role = nil
	debug.FreeOSMemory() // now, so that it does not happen during the next measurement
	return err
}

// Run controls both ends during a measurement and returns the counts of both. specs has the Spec of
// each end; the end with index measures decides when the measurement is over. The error is
// [child.ErrBroken] if an end has ended, or if the measurement takes longer than limit.
func Run(ctx context.Context, ends [2]*child.Client, specs [2]Spec, measures int, limit time.Duration) (m [2]Measure, err error) {
	return run(ctx, ends, specs, measures, limit, func() {})
}

// RunTogether controls several pairs of ends during the same measurement. All begin to measure when
// all are connected. It returns the sum of the measuring ends' counts.
func RunTogether(ctx context.Context, pairs [][2]*child.Client, specs [2]Spec, measures int, limit time.Duration) (Measure, error) {
	var ready, running sync.WaitGroup
	ready.Add(len(pairs))
	each, failed := make([]Measure, len(pairs)), make([]error, len(pairs))
	for i, ends := range pairs {
		running.Go(func() {
			connected := sync.OnceFunc(ready.Done)
			defer connected()
			m, err := run(ctx, ends, specs, measures, limit, func() {
				connected()
				ready.Wait()
			})
			each[i], failed[i] = m[measures], err
		})
	}
	running.Wait()
	return Sum(each), errors.Join(failed...)
}

// Sum adds the rates of ends that measured at the same time.
func Sum(each []Measure) (all Measure) {
	for i, m := range each {
		if i == 0 {
			all = Measure{Seconds: m.Seconds, Mode: m.Mode}
		}
		all.Messages += uint64(m.Rate() * all.Seconds)
		all.Bytes += uint64(m.Goodput() / 8 * all.Seconds)
		all.Packets += m.Packets
		all.Mallocs += m.Mallocs
		all.Retrans += m.Retrans
		all.Drops += m.Drops
	}
	return all
}

// run is Run. It calls ready when both ends are connected.
func run(ctx context.Context, ends [2]*child.Client, specs [2]Spec, measures int, limit time.Duration, ready func()) (m [2]Measure, err error) {
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	both := func(step string, args, results [2]any) error {
		var calls [2]*rpc.Call
		for i, e := range ends {
			calls[i] = e.Go(step, args[i], results[i])
		}
		var all error
		for i, e := range ends {
			if all = errors.Join(all, e.Wait(ctx, calls[i])); errors.Is(all, child.ErrBroken) {
				break
			}
		}
		return all
	}
	var nothing [2]any
	defer func() {
		if !errors.Is(err, child.ErrBroken) {
			err = errors.Join(err, both("Close", nothing, nothing))
		}
	}()
	var offers [2]json.RawMessage
	if err := both("Prepare", [2]any{specs[0], specs[1]}, [2]any{&offers[0], &offers[1]}); err != nil {
		return m, err
	}
	if err := both("Connect", [2]any{offers[1], offers[0]}, nothing); err != nil {
		return m, err
	}
	ready()
	order := []int{0, 1}
	if specs[0].Active {
		order = []int{1, 0} // the serving end first
	}
	var calls [2]*rpc.Call
	for _, i := range order {
		calls[i] = ends[i].Go("Run", nil, &m[i])
	}
	other := 1 - measures
	err = ends[measures].Wait(ctx, calls[measures])
	if errors.Is(err, child.ErrBroken) {
		return m, err
	}
	if failed := ends[other].Call(ctx, "Stop", nil, nil); failed != nil {
		return m, failed
	}
	return m, errors.Join(err, ends[other].Wait(ctx, calls[other]))
}

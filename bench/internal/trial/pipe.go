package trial

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"sync"
	"time"
)

// The steps of a trial. All but stop are answered.
const (
	stepPrepare = "prepare"
	stepConnect = "connect"
	stepRun     = "run"
	stepStop    = "stop"
	stepClose   = "close"
)

type request struct {
	Step  string          `json:"step"`
	Spec  *located        `json:"spec,omitempty"`
	Offer json.RawMessage `json:"offer,omitempty"`
}

// located is a Spec with the fields that belong to one end.
type located struct {
	Spec
	Active        bool
	Interface     string
	MTU           int
	Local, Remote Address
}

type reply struct {
	Err     string          `json:"err,omitempty"`
	Offer   json.RawMessage `json:"offer,omitempty"`
	Measure Measure         `json:"measure"`
}

// Serve is the life of an end: it does what it is told over in, answers over out,
// and returns when in ends.
func Serve(in io.Reader, out io.Writer, roles Roles) error {
	e := server{roles: roles, cancel: func() {}}
	requests := make(chan request, 16)
	failed := make(chan error, 1)
	go func() {
		defer close(requests)
		dec := json.NewDecoder(in)
		for {
			var r request
			if err := dec.Decode(&r); err != nil {
				failed <- err
				e.end()
				return
			}
			if r.Step == stepStop {
				e.end()
				continue
			}
			requests <- r
		}
	}()
	enc := json.NewEncoder(out)
	for r := range requests {
		if err := enc.Encode(e.do(r)); err != nil {
			return err
		}
	}
	e.do(request{Step: stepClose})
	if err := <-failed; err != io.EOF {
		return err
	}
	return nil
}

type server struct {
	roles Roles
	role  Role
	ctx   context.Context // of Run

	mu     sync.Mutex
	cancel func() // ctx
}

// begin makes the context of a trial. Of the one before nothing comes any more:
// its stop was read before the request that this trial begins with.
func (e *server) begin() {
	e.end()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ctx, e.cancel = context.WithCancel(context.Background())
}

// end ends Run.
func (e *server) end() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.cancel()
}

func (e *server) do(r request) (a reply) {
	err := e.step(r, &a)
	if err != nil {
		a.Err = err.Error()
	}
	return a
}

func (e *server) step(r request, a *reply) error {
	if e.role == nil && r.Step != stepPrepare && r.Step != stepClose {
		return fmt.Errorf("%s comes before prepare", r.Step)
	}
	switch r.Step {
	case stepPrepare:
		if e.role != nil {
			return errors.New("the trial before is not closed")
		}
		if r.Spec == nil {
			return errors.New("prepare without spec")
		}
		s := r.Spec.Spec
		s.Active, s.Interface, s.MTU, s.Local, s.Remote = r.Spec.Active, r.Spec.Interface, r.Spec.MTU, r.Spec.Local, r.Spec.Remote
		e.begin()
		role, err := e.roles.make(s)
		if err != nil {
			return err
		}
		e.role = role
		offer, err := role.Prepare()
		if err != nil {
			return err
		}
		a.Offer, err = json.Marshal(offer)
		return err
	case stepConnect:
		return e.role.Connect(r.Offer)
	case stepRun:
		m, err := e.role.Run(e.ctx)
		a.Measure = m
		return err
	case stepClose:
		if e.role == nil {
			return nil
		}
		err := e.role.Close()
		e.role = nil
		debug.FreeOSMemory() // now, and not in the next measurement
		return err
	}
	return fmt.Errorf("unknown step %q", r.Step)
}

// End is the runner's handle of an end.
type End struct {
	name    string
	enc     *json.Encoder
	replies chan reply
}

// NewEnd makes a handle of what Serve reads from and writes to.
func NewEnd(name string, to io.Writer, from io.Reader) *End {
	e := &End{name: name, enc: json.NewEncoder(to), replies: make(chan reply, 16)}
	go func() {
		defer close(e.replies)
		dec := json.NewDecoder(from)
		for {
			var r reply
			if dec.Decode(&r) != nil {
				return
			}
			e.replies <- r
		}
	}()
	return e
}

// ErrBroken is an end that does not answer (in time): it has to be replaced.
var ErrBroken = errors.New("the end is gone or hangs")

func (e *End) post(r request) error {
	if err := e.enc.Encode(r); err != nil {
		return fmt.Errorf("%s: %s: %w: %v", e.name, r.Step, ErrBroken, err)
	}
	return nil
}

func (e *End) await(step string, deadline <-chan time.Time) (reply, error) {
	select {
	case r, ok := <-e.replies:
		if !ok {
			return r, fmt.Errorf("%s: %s: %w", e.name, step, ErrBroken)
		}
		if r.Err != "" {
			return r, fmt.Errorf("%s: %s: %s", e.name, step, r.Err)
		}
		return r, nil
	case <-deadline:
		return reply{}, fmt.Errorf("%s: %s: %w", e.name, step, ErrBroken)
	}
}

// Run leads both ends through a trial, specs being the two ends' of the same; the
// end that is named measures: it decides when it is over. It returns the measures of both.
func Run(ends [2]*End, specs [2]Spec, measures int, limit time.Duration) (m [2]Measure, err error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	both := func(make func(i int) request) (answers [2]reply, err error) {
		step := ""
		for i, e := range ends {
			r := make(i)
			step = r.Step
			if err := e.post(r); err != nil {
				return answers, err
			}
		}
		for i, e := range ends {
			var failed error
			if answers[i], failed = e.await(step, timer.C); failed != nil && (err == nil || errors.Is(failed, ErrBroken)) {
				err = failed
			}
			if errors.Is(err, ErrBroken) {
				return answers, err
			}
		}
		return answers, err
	}
	defer func() {
		if errors.Is(err, ErrBroken) {
			return
		}
		if _, closing := both(func(int) request { return request{Step: stepClose} }); err == nil {
			err = closing
		}
	}()
	offers, err := both(func(i int) request {
		s := specs[i]
		return request{Step: stepPrepare, Spec: &located{s, s.Active, s.Interface, s.MTU, s.Local, s.Remote}}
	})
	if err != nil {
		return m, err
	}
	if _, err = both(func(i int) request { return request{Step: stepConnect, Offer: offers[1-i].Offer} }); err != nil {
		return m, err
	}
	// The serving end first.
	order := []int{0, 1}
	if specs[0].Active {
		order = []int{1, 0}
	}
	for _, i := range order {
		if err := ends[i].post(request{Step: stepRun}); err != nil {
			return m, err
		}
	}
	var failed error
	for _, i := range []int{measures, 1 - measures} {
		r, err := ends[i].await(stepRun, timer.C)
		if err != nil {
			if errors.Is(err, ErrBroken) {
				return m, err
			}
			failed = errors.Join(failed, err)
		}
		m[i] = r.Measure
		if i == measures {
			if err := ends[1-i].post(request{Step: stepStop}); err != nil {
				return m, err
			}
		}
	}
	return m, failed
}

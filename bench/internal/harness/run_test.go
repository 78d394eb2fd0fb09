package harness

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/interop/child"
)

// fake is a role that logs its calls.
type fake struct {
	spec Spec
	log  *[]string
	fail string // the step that fails
	peer int
}

func (f *fake) step(name string) error {
	*f.log = append(*f.log, name)
	if f.fail == name {
		return errors.New(name + " went wrong")
	}
	return nil
}

func (f *fake) Prepare() (any, error) { return f.spec.QPs, f.step("prepare") }
func (f *fake) Close() error          { return f.step("close") }

func (f *fake) Connect(b json.RawMessage) error {
	if err := json.Unmarshal(b, &f.peer); err != nil {
		return err
	}
	return f.step("connect")
}

func (f *fake) Run(ctx context.Context) (Measure, error) {
	err := f.step("run")
	if !f.spec.Active || f.fail == "hang" {
		<-ctx.Done()
		f.step("stopped")
	}
	return Measure{Seconds: 2, Bytes: 1000, Messages: uint64(f.peer)}, err
}

// pair is two ends that serve in goroutines.
type pair struct {
	ends [2]*child.Client
	logs [2][]string
	done [2]chan error
	in   [2]io.Closer
}

func newPair(t *testing.T, fail [2]string) *pair {
	p := new(pair)
	for i := range p.ends {
		toEnd, toEndW := io.Pipe()
		fromEnd, fromEndW := io.Pipe()
		roles := Roles{"fake": func(s Spec) (Role, error) { return &fake{spec: s, log: &p.logs[i], fail: fail[i]}, nil }}
		p.done[i], p.in[i] = make(chan error, 1), toEndW
		go func() { p.done[i] <- Serve(toEnd, fromEndW, roles) }()
		p.ends[i] = child.NewClient(string(rune('a'+i)), toEndW, fromEnd)
	}
	return p
}

// close ends both ends and waits for them, after which the logs can be read.
func (p *pair) close(t *testing.T) {
	t.Helper()
	for i := range p.in {
		p.in[i].Close()
		if err := <-p.done[i]; err != nil {
			t.Errorf("end %d: %v", i, err)
		}
	}
}

func specs(kind string) [2]Spec {
	return [2]Spec{{Kind: kind, QPs: 7, Active: true}, {Kind: kind, QPs: 9}}
}

const limit = time.Minute // never reached

func TestRun(t *testing.T) {
	p := newPair(t, [2]string{})
	for range 3 { // ends are used again
		m, err := Run(t.Context(), p.ends, specs("fake"), 0, limit)
		if err != nil {
			t.Fatal(err)
		}
		if m[0].Messages != 9 || m[1].Messages != 7 {
			t.Errorf("offers were not exchanged: %v and %v", m[0].Messages, m[1].Messages)
		}
		if g := m[0].Goodput(); g != 4000 {
			t.Errorf("goodput %v, want 4000 bits a second", g)
		}
	}
	p.close(t)
	for i, want := range []string{"prepare connect run close", "prepare connect run stopped close"} {
		want = strings.Repeat(want+" ", 3)
		if got := strings.Join(p.logs[i], " ") + " "; got != want {
			t.Errorf("end %d did %q, want %q", i, got, want)
		}
	}
}

// A measurement that fails is closed at both ends, and the next one works.
func TestRunFails(t *testing.T) {
	for _, step := range []string{"prepare", "connect", "run", "close"} {
		for i := range 2 {
			fail := [2]string{}
			fail[i] = step
			p := newPair(t, fail)
			for range 2 {
				if _, err := Run(t.Context(), p.ends, specs("fake"), 0, limit); err == nil || !strings.Contains(err.Error(), step+" went wrong") {
					t.Errorf("%s fails at end %d: %v", step, i, err)
				}
			}
			p.close(t)
			for i, log := range p.logs {
				if n := strings.Count(strings.Join(log, " "), "close"); n != 2 {
					t.Errorf("%s fails: end %d was closed %d times, want 2", step, i, n)
				}
			}
		}
	}
}

func TestRunUnknown(t *testing.T) {
	p := newPair(t, [2]string{})
	if _, err := Run(t.Context(), p.ends, specs("other"), 0, limit); err == nil || !strings.Contains(err.Error(), `no role for "other"`) {
		t.Error(err)
	}
	if _, err := Run(t.Context(), p.ends, specs("fake"), 0, limit); err != nil {
		t.Errorf("afterwards: %v", err)
	}
	p.close(t)
}

// Run returns ErrBroken for an end that hangs or has ended, because such an end must be replaced,
// but not for one that fails.
func TestRunBroken(t *testing.T) {
	p := newPair(t, [2]string{"hang", ""})
	if _, err := Run(t.Context(), p.ends, specs("fake"), 0, time.Nanosecond); !errors.Is(err, child.ErrBroken) {
		t.Errorf("an end that hangs: %v", err)
	}
	gone := newPair(t, [2]string{})
	gone.close(t)
	if _, err := Run(t.Context(), gone.ends, specs("fake"), 0, limit); !errors.Is(err, child.ErrBroken) {
		t.Errorf("an end that is gone: %v", err)
	}
}

// Sum adds the rates of ends that measured at the same time, even if each took another time.
func TestSum(t *testing.T) {
	all := Sum([]Measure{{Seconds: 2, Messages: 20, Bytes: 200, Retrans: 1, Mode: "a"}, {Seconds: 1, Messages: 30, Bytes: 300, Retrans: 2, Drops: 3, Mode: "b"}})
	if all.Rate() != 40 || all.Goodput() != 8*400 || all.Retrans != 3 || all.Drops != 3 || all.Mode != "a" {
		t.Errorf("%+v", all)
	}
	if all := Sum(nil); all.Rate() != 0 {
		t.Errorf("of nobody: %+v", all)
	}
}

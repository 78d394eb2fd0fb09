package try

import (
	"errors"
	"slices"
	"testing"
)

var errStep, errClose = errors.New("step"), errors.New("close")

// steps opens three things, and fails after the second one if fail is not nil. It returns the notes of what it
// opened and closed.
func steps(fail error) (did []string, err error) {
	var opened Opened
	defer opened.Close(&err)
	defer Catch(&err)
	open := func(name string, fails error) (string, error) {
		opened.Add(func() error { did = append(did, "close "+name); return fails })
		return name, nil
	}
	did = append(did, Get(open("a", nil)), Get(open("b", errClose)))
	Do(fail)
	did = append(did, Get(open("c", nil)))
	return did, nil
}

func TestSteps(t *testing.T) {
	did, err := steps(nil)
	if want := []string{"a", "b", "c", "close c", "close b", "close a"}; !slices.Equal(did, want) || !errors.Is(err, errClose) {
		t.Errorf("%q, %v", did, err)
	}
	if _, err = steps(errStep); !errors.Is(err, errStep) || !errors.Is(err, errClose) {
		t.Errorf("a step that fails: %v", err)
	}
}

func TestCatchPassesOn(t *testing.T) {
	defer func() {
		if r := recover(); r != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	var err error
	defer Catch(&err)
	panic("other")
}

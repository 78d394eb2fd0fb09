package machine

import (
	"errors"
	"time"

	"github.com/goroce/roce"
)

// spin is the value of --spin: how long the NIC busy-polls before it sleeps.
type spin struct {
	time time.Duration // 0: the default
	none bool          // sleep at once
}

// SpinNone is the value of --spin with which a device sleeps at once.
const SpinNone = "none"

// Set reads a value of the command line.
func (s *spin) Set(v string) error {
	if v == SpinNone {
		*s = spin{none: true}
		return nil
	}
	d, err := time.ParseDuration(v)
	if err != nil || d <= 0 {
		return errors.New("want a time like 50us, or none")
	}
	*s = spin{time: d}
	return nil
}

func (s *spin) String() string {
	switch {
	case s.none:
		return SpinNone
	case s.time == 0:
		return roce.DefaultSpin.String()
	}
	return s.time.String()
}

// Type is how pflag names the value.
func (*spin) Type() string { return "time" }

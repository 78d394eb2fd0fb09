package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func TestSpinFlag(t *testing.T) {
	for value, want := range map[string]spin{"none": {none: true}, "3ms": {time: 3 * time.Millisecond}} {
		var s spin
		if err := s.Set(value); err != nil || s != want || s.String() != value {
			t.Errorf("--spin %s: %+v, %v", value, s, err)
		}
	}
	for _, value := range []string{"", "0", "-1ns", "5", "None"} {
		if err := new(spin).Set(value); err == nil {
			t.Errorf("--spin %q is taken", value)
		}
	}
	var f Flags
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.Register(flags)
	help := flags.FlagUsages()
	if !strings.Contains(help, "--spin TIME") || !strings.Contains(help, "none: sleep at once (default 50µs)") {
		t.Errorf("the help of --spin: %s", help)
	}
}

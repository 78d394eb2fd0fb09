// Package settings completes the numbers of a configuration.
package settings

import (
	"cmp"
	"syscall"

	"github.com/goroce/roce/errs"
)

// Number is a number of a configuration.
type Number struct {
	Name        string
	Value       *int
	Default     int // the value for 0
	Least, Most int
}

// Complete replaces zeros by the defaults. It fails with EINVAL if a number is outside its bounds; op is the
// call in the error.
func Complete(op string, numbers ...Number) error {
	for _, n := range numbers {
		*n.Value = cmp.Or(*n.Value, n.Default)
		if *n.Value < n.Least || *n.Value > n.Most {
			return errs.New(op, syscall.EINVAL, "%s is %d, must be %d to %d, or 0 for %d", n.Name, *n.Value, n.Least, n.Most, n.Default)
		}
	}
	return nil
}

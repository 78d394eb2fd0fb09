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
	Default     int // what 0 stands for
	Least, Most int
}

// Complete puts the defaults in the place of zeros. A number beyond its bounds is EINVAL, in an
// error of the call op.
func Complete(op string, numbers ...Number) error {
	for _, n := range numbers {
		*n.Value = cmp.Or(*n.Value, n.Default)
		if *n.Value < n.Least || *n.Value > n.Most {
			return errs.New(op, syscall.EINVAL, "%s is %d, must be %d to %d, or 0 for %d", n.Name, *n.Value, n.Least, n.Most, n.Default)
		}
	}
	return nil
}

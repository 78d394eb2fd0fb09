//go:build !linux

package share

import (
	"runtime"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// List fails: processes share addresses on Linux only.
func List(bool) ([]Address, error) {
	return nil, errs.New("list", link.ErrUnsupported, "processes share an address on Linux only, this is %s", runtime.GOOS)
}

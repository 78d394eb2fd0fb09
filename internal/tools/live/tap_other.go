//go:build !linux

package live

import (
	"io"
	"runtime"

	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

type tap struct{}

func openTap(string) (*tap, error) {
	return nil, errs.New("capture", link.ErrUnsupported, "on Linux only, this is %s: capture with tcpdump, and read its file", runtime.GOOS)
}

func (*tap) copyTo(io.Writer) error { return nil }
func (*tap) Lost() uint64           { return 0 }
func (*tap) Close() error           { return nil }

//go:build !linux

package xdp

import (
	"runtime"

	"github.com/goroce/roce/link"
)

// Open fails with link.ErrUnsupported: only Linux has AF_XDP.
func Open(c Config) (link.Port, error) { return nil, unsupported(c) }

// OpenQueues fails like Open.
func OpenQueues(c Config, n int) ([]link.Port, error) { return nil, unsupported(c) }

func unsupported(c Config) error {
	return link.Fail("xdp", "open", c.Interface, link.ErrUnsupported, nil, "AF_XDP exists on Linux only, this is "+runtime.GOOS)
}

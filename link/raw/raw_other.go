//go:build !linux

package raw

import (
	"runtime"

	"github.com/goroce/roce/link"
)

// Open fails with link.ErrUnsupported: packet sockets are Linux's.
func Open(c Config) (link.Port, error) { return nil, unsupported(c) }

// OpenQueues fails like Open.
func OpenQueues(c Config, n int) ([]link.Port, error) { return nil, unsupported(c) }

func unsupported(c Config) error {
	return link.Fail("raw", "open", c.Interface, link.ErrUnsupported, nil, "AF_PACKET exists on Linux only, this is "+runtime.GOOS)
}

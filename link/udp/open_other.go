//go:build !linux

package udp

import (
	"runtime"
	"syscall"

	"github.com/goroce/roce/link"
)

const errInvalid = syscall.EINVAL

// Open fails with link.ErrUnsupported.
func Open(c Config) (link.Port, error) { return nil, unsupported(c) }

// OpenQueues fails like Open.
func OpenQueues(c Config, n int) ([]link.Port, error) { return nil, unsupported(c) }

func unsupported(c Config) error {
	return &link.Error{Driver: "udp", Op: "open", Interface: c.name(), Kind: link.ErrUnsupported, Hint: "this is " + runtime.GOOS}
}

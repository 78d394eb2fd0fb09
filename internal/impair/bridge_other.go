//go:build !linux

package impair

import (
	"context"
	"errors"

	"github.com/goroce/roce/link"
)

// Run returns an error: it needs packet sockets, which only Linux has.
func Run(_ context.Context, c Config) (Report, error) {
	return Report{}, link.Fail("impair", "open", c.A.String(), link.ErrUnsupported, errors.New("the bridge needs packet sockets of Linux"), "")
}

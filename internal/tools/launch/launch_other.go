//go:build !linux

package launch

import "errors"

var errSystem = errors.New("programs of libibverbs run on Linux only")

func execute(string, []string, []string) error { return errSystem }

func (Config) show(string, []string) error { return errSystem }

// Inside does nothing: there are no namespaces.
func Inside() {}

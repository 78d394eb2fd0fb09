//go:build !linux

package netlab

import "testing"

type system struct{}

// Pair skips the test: there are no network namespaces here.
func Pair(t testing.TB, _ Config) (a, b *Side) {
	t.Helper()
	unavailable(t, "they exist on Linux only")
	return nil, nil
}

// Do runs f.
func (s *Side) Do(t testing.TB, f func()) { f() }

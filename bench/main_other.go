//go:build !linux

package main

import (
	"context"
	"errors"
	"io"

	"github.com/goroce/roce/bench/internal/result"
)

var errLinux = errors.New("network namespaces exist on Linux only")

func end() error { return errLinux }

func runAll(context.Context, options, []testCase, io.Writer) (*result.Run, error) {
	return nil, errLinux
}

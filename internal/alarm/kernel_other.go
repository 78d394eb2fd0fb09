//go:build !linux

package alarm

import "time"

func newKernel(time.Duration) Alarm { return nil }

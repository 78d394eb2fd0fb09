//go:build !linux

package sched

func waitForPoller() bool { return false }
func joinWait() bool      { return false }

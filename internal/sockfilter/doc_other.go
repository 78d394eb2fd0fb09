//go:build !linux

// Package sockfilter exists on Linux only.
package sockfilter

//go:build !linux

// Package ethtool exists on Linux only.
package ethtool

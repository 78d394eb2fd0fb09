//go:build !linux

// Package xdpblast exists on Linux only.
package xdpblast

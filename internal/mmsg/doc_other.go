//go:build !linux

// Package mmsg exists on Linux only.
package mmsg

//go:build !linux

// Package quota limits processes to a share of a processor, on Linux.
package quota

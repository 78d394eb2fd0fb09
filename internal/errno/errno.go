//go:build !freebsd

// Package errno has error numbers that not every system has.
package errno

import "syscall"

// ENODATA is the error of the verbs if a table has no entry at an index.
const ENODATA = syscall.ENODATA

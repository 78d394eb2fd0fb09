//go:build !freebsd

// Package errno has the error numbers that not every system has.
package errno

import "syscall"

// ENODATA is what the verbs answer when a table has nothing at an index.
const ENODATA = syscall.ENODATA

// Package errno has error numbers that not every system has.
package errno

import "syscall"

// ENODATA is ENOATTR here: FreeBSD has no ENODATA.
const ENODATA = syscall.ENOATTR

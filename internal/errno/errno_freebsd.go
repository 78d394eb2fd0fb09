// Package errno has the error numbers that not every system has.
package errno

import "syscall"

// ENODATA stands for what FreeBSD does not have.
const ENODATA = syscall.ENOATTR

package suite

import (
	"fmt"
	"syscall"

	errnum "github.com/goroce/roce/internal/errno"
)

// errno is an errno that prints as its name.
type errno syscall.Errno

const (
	errInvalid     = syscall.EINVAL
	errUnsupported = syscall.EOPNOTSUPP

	success      errno = 0
	eINVAL             = errno(syscall.EINVAL)
	eBUSY              = errno(syscall.EBUSY)
	eNOMEM             = errno(syscall.ENOMEM)
	eFAULT             = errno(syscall.EFAULT)
	eAGAIN             = errno(syscall.EAGAIN)
	eNOENT             = errno(syscall.ENOENT)
	eNODATA            = errno(errnum.ENODATA)
	eTIMEDOUT          = errno(syscall.ETIMEDOUT)
	eOPNOTSUPP         = errno(syscall.EOPNOTSUPP)
	eHOSTUNREACH       = errno(syscall.EHOSTUNREACH)
)

var errnoNames = map[errno]string{success: "success", eINVAL: "EINVAL", eBUSY: "EBUSY", eNOMEM: "ENOMEM", eFAULT: "EFAULT",
	eAGAIN: "EAGAIN", eNOENT: "ENOENT", eNODATA: "ENODATA", eTIMEDOUT: "ETIMEDOUT", eOPNOTSUPP: "EOPNOTSUPP", eHOSTUNREACH: "EHOSTUNREACH"}

func (e errno) String() string {
	if s, ok := errnoNames[e]; ok {
		return s
	}
	return fmt.Sprintf("errno %d (%v)", int(e), syscall.Errno(e))
}

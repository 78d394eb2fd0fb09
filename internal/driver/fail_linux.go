package driver

import (
	"errors"
	"fmt"
	"net"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/errs"
	"github.com/goroce/roce/link"
)

// kinds are the errors of package link that an errno stands for.
var kinds = map[unix.Errno]error{
	unix.EPERM: link.ErrPermission, unix.EACCES: link.ErrPermission,
	unix.ENODEV: link.ErrNoDevice, unix.ENXIO: link.ErrNoDevice,
	unix.ENETDOWN:     link.ErrDown,
	unix.EAFNOSUPPORT: link.ErrUnsupported, unix.EOPNOTSUPP: link.ErrUnsupported,
}

// Fail makes an error from an errno that a driver got on an interface. hints says what to do about it.
func Fail(driver, op, ifname string, errno unix.Errno, hints map[unix.Errno]string) *errs.Error {
	e := link.Fail(driver, op, ifname, nil, errno, "")
	if kind := kinds[errno]; kind != nil {
		e.Err = errs.Kind(kind, e.Err)
	}
	e.Detail = hints[errno]
	return e
}

// Errno returns the errno in an error, or EINVAL if there is none.
func Errno(err error) unix.Errno {
	var e unix.Errno
	if errors.As(err, &e) {
		return e
	}
	return unix.EINVAL
}

// NoInterface makes the error of an interface that does not exist.
func NoInterface(driver, name string) *errs.Error {
	return Fail(driver, "open", name, unix.ENODEV, map[unix.Errno]string{unix.ENODEV: "`ip link` lists the interfaces of this network namespace"})
}

// Ethernet finds an Ethernet interface in the network namespace of a socket.
func Ethernet(driver, name string, fd int) (*net.Interface, error) {
	ifr, err := unix.NewIfreq(name)
	if err == nil {
		err = unix.IoctlIfreq(fd, unix.SIOCGIFINDEX, ifr)
	}
	if err != nil || name == "" {
		return nil, NoInterface(driver, name)
	}
	ifi, err := net.InterfaceByIndex(int(ifr.Uint32()))
	if err != nil {
		return nil, link.Fail(driver, "open", name, link.ErrNoDevice, err, "")
	}
	if ifi.Flags&net.FlagLoopback != 0 || len(ifi.HardwareAddr) != len(frame.MAC{}) {
		return nil, link.Fail(driver, "open", name, link.ErrUnsupported, fmt.Errorf("not an Ethernet interface"),
			"link/udp (driver \"udp\") works on every interface; within one process link/mem does")
	}
	return ifi, nil
}

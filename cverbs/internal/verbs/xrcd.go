package verbs

import (
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// xrcDomain is a context's handle of an XRC domain.
type xrcDomain struct {
	base
	shared *sharedDomain
	users  int // queues made with this handle. Guarded by the lock of the device
}

// enter counts a new queue of the handle. EINVAL: the handle is closed.
func (x *xrcDomain) enter() error {
	x.ctx.dev.mu.Lock()
	defer x.ctx.dev.mu.Unlock()
	if x.gone {
		return syscall.EINVAL
	}
	x.users++
	return nil
}

// leave counts one queue less. A queue without a domain has a nil handle.
func (x *xrcDomain) leave() {
	if x == nil {
		return
	}
	x.ctx.dev.mu.Lock()
	defer x.ctx.dev.mu.Unlock()
	x.users--
}

// inode is a file that names an XRC domain.
type inode struct{ dev, ino uint64 }

// domains are the XRC domains of a device that have a file, by that file. Contexts of one process share them;
// other processes have their own.
type domains map[inode]*sharedDomain

// sharedDomain is an XRC domain with the number of its handles. The lock of the device guards it.
type sharedDomain struct {
	xrcd  *roce.XRCD
	file  *inode // nil: no file
	users int
}

// OpenXRCD is ibv_open_xrcd. With a file it finds the domain of that file. The errors are the kernel's: EAGAIN
// if the file has no domain and O_CREAT is not set; EINVAL if it has one and O_EXCL is set.
func OpenXRCD(ctx abi.Handle, fd, oflags int) (abi.Handle, error) {
	c, err := find[*Context](ctx)
	if err != nil {
		return 0, err
	}
	var file *inode
	if fd >= 0 {
		var st syscall.Stat_t
		if err := syscall.Fstat(fd, &st); err != nil {
			return 0, err
		}
		file = &inode{uint64(st.Dev), st.Ino}
	}
	s, err := c.dev.openDomain(c.roce, file, oflags)
	if err != nil {
		return 0, err
	}
	return c.adopt(&xrcDomain{base: base{ctx: c}, shared: s})
}

func (d *device) openDomain(dev *roce.Device, file *inode, oflags int) (*sharedDomain, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if file != nil {
		s := d.domains[*file]
		switch {
		case s == nil && oflags&syscall.O_CREAT == 0:
			return nil, syscall.EAGAIN
		case s != nil && oflags&syscall.O_EXCL != 0:
			return nil, syscall.EINVAL
		case s != nil:
			s.users++
			return s, nil
		}
	}
	x, err := dev.OpenXRCD(roce.XRCDConfig{})
	if err != nil {
		return nil, err
	}
	s := &sharedDomain{xrcd: x, file: file, users: 1}
	if file != nil {
		d.domains[*file] = s
	}
	return s, nil
}

// CloseXRCD is ibv_close_xrcd.
func CloseXRCD(xrcd abi.Handle) error { return destroy[*xrcDomain](xrcd) }

func (x *xrcDomain) close() error {
	d, s := x.ctx.dev, x.shared
	d.mu.Lock()
	defer d.mu.Unlock()
	if x.gone {
		return syscall.EINVAL
	}
	if x.users > 0 {
		return syscall.EBUSY
	}
	if s.users == 1 {
		if err := s.xrcd.Close(); err != nil {
			return err
		}
		if s.file != nil {
			delete(d.domains, *s.file)
		}
	}
	x.gone = true
	s.users--
	return nil
}

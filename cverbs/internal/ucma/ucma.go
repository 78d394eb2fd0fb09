// Package ucma implements the calls of cm.h, the connection manager of librdmacm.so.1, on package rdmacm. It
// replaces the kernel's rdma_ucm, and like that knows no queue pairs: librdmacm makes them with libibverbs,
// and passes their numbers.
package ucma

import (
	"slices"
	"sync"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/handle"
	"github.com/goroce/roce/rdmacm"
)

// Device is a device of the engine.
type Device struct {
	*roce.Device
	Name string
}

// Manager has the channels and identifiers of a process. Make it with [New]. Any goroutine may call its
// methods.
type Manager struct {
	open    func() ([]Device, error)
	unread  func(*roce.Device, roce.QPN) func() bool
	objects handle.Table

	mu      sync.Mutex
	devices []Device
	host    *rdmacm.Host // nil: no channel was made yet
}

// New returns a manager of the devices that open opens. It opens them for the first channel. Like the kernel's,
// they stay open until the process ends. unread is the function for [rdmacm.Host.UnreadFunc].
func New(open func() ([]Device, error), unread func(*roce.Device, roce.QPN) func() bool) *Manager {
	return &Manager{open: open, unread: unread}
}

// Host opens the devices, unless they are open, and returns their host. ENODEV: there are none.
func (m *Manager) Host() (*rdmacm.Host, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.host != nil {
		return m.host, nil
	}
	devices, err := m.open()
	if err != nil {
		return nil, err
	}
	var all []*roce.Device
	for _, d := range devices {
		all = append(all, d.Device)
	}
	host, err := rdmacm.NewHost(all...)
	if err != nil {
		return nil, err
	}
	host.UnreadFunc(m.unread)
	m.devices, m.host = devices, host
	return host, nil
}

// deviceName returns the name of a device, "" for nil.
func (m *Manager) deviceName(d *roce.Device) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.devices, func(o Device) bool { return o.Device == d }); i >= 0 {
		return m.devices[i].Name
	}
	return ""
}

// find returns the object of a handle. EINVAL: it has none, or one of another type.
func find[T any](m *Manager, h abi.Handle) (T, error) {
	return handle.Find[T](&m.objects, h)
}

// with calls f with the identifier of a handle, and returns its error. EINVAL: the handle has none.
func (m *Manager) with(h abi.Handle, f func(*identifier) error) error {
	id, err := find[*identifier](m, h)
	if err != nil {
		return err
	}
	return f(id)
}

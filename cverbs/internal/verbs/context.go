package verbs

import (
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/cverbs/internal/eventcount"
	"github.com/goroce/roce/cverbs/internal/translate"
)

// Context is a program's use of a device (struct ibv_context).
type Context struct {
	dev   *device
	roce  *roce.Device
	owned owned

	mu     sync.Mutex
	fd     int // eventfd of asynchronous events; -1: closed
	events []queued
}

// queued is a pending asynchronous event.
type queued struct {
	about *base // nil: the port or the device
	event abi.Event
}

// maxEvents is the limit of pending events of a context; more are lost.
const maxEvents = 4096

// Open opens a device (ibv_open_device).
func Open(name string, fd int) (abi.Handle, error) {
	d, c := deviceNamed(name), &Context{fd: fd, owned: owned{objects: make(map[abi.Handle]object)}}
	if err := d.enter(c); err != nil {
		return 0, err
	}
	h, err := handles.Add(c)
	if err != nil {
		d.leave(c)
	}
	return h, err
}

// Close closes a context with its remaining objects (ibv_close_device).
func Close(h abi.Handle) error {
	c, err := find[*Context](h)
	if err != nil || !handles.Free(h) {
		return syscall.EINVAL
	}
	c.mu.Lock()
	c.fd, c.events = -1, nil
	c.mu.Unlock()
	c.owned.closeAll()
	c.dev.leave(c)
	return nil
}

// Device returns the device of a context.
func Device(h abi.Handle) (*roce.Device, error) {
	c, err := find[*Context](h)
	if err != nil {
		return nil, err
	}
	return c.roce, nil
}

// QueryDevice is ibv_query_device_ex.
func QueryDevice(h abi.Handle, out *abi.DeviceAttr) error {
	c, err := find[*Context](h)
	if err != nil {
		return err
	}
	a := c.roce.Query()
	a.Caps &^= roce.CapFlushPersist // memory of a program is not known to be persistent
	a.Caps &^= roce.CapCrossChannel // the library has no calls for it
	translate.DeviceAttr(out, &a)
	return nil
}

// QueryPort is ibv_query_port.
func QueryPort(h abi.Handle, port uint32, out *abi.PortAttr) error {
	c, err := find[*Context](h)
	if err != nil {
		return err
	}
	a, err := c.roce.QueryPort(int(port))
	if err != nil {
		return err
	}
	translate.PortAttr(out, &a)
	return nil
}

// noGID is the type of an empty entry of the GID table.
const noGID = 1<<32 - 1

// QueryGID is ibv_query_gid and ibv_query_gid_ex. An empty entry is no error.
func QueryGID(h abi.Handle, port, index uint32, out *abi.GID) error {
	c, err := find[*Context](h)
	if err != nil {
		return err
	}
	g, err := c.roce.QueryGID(int(port), int(index))
	if err != nil {
		return err
	}
	*out = abi.GID{Raw: g, Type: noGID}
	if e, err := c.roce.QueryGIDEx(int(port), int(index)); err == nil {
		*out = abi.GID{Raw: e.GID, Type: uint32(e.Type), IfIndex: uint32(e.IfIndex)}
	}
	return nil
}

// QueryPKey is ibv_query_pkey, in the byte order of the host.
func QueryPKey(h abi.Handle, port, index uint32) (uint16, error) {
	c, err := find[*Context](h)
	if err != nil {
		return 0, err
	}
	k, err := c.roce.QueryPKey(int(port), int(index))
	return uint16(k), err
}

// NextEvent takes the oldest asynchronous event; EAGAIN if there is none.
func NextEvent(h abi.Handle, out *abi.Event) error {
	c, err := find[*Context](h)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) == 0 {
		return syscall.EAGAIN
	}
	*out = c.events[0].event
	c.events = slices.Delete(c.events, 0, 1)
	return nil
}

// raise adds an event about an object of the context, or about a port.
func (c *Context) raise(about *base, typ roce.EventType, port int) {
	t, ok := translate.EventType(typ)
	if !ok {
		return
	}
	e := abi.Event{Type: t, Port: uint32(port)}
	c.mu.Lock()
	defer c.mu.Unlock()
	if about != nil {
		e.Cookie = about.cookie
	}
	if c.fd < 0 || len(c.events) == maxEvents || about != nil && about.gone {
		return
	}
	c.events = append(c.events, queued{about, e})
	eventcount.Add(c.fd, 1)
}

// raise adds an event about the object.
func (b *base) raise(typ roce.EventType) { b.ctx.raise(b, typ, 0) }

// forget drops the pending and future events of a destroyed object.
func (b *base) forget() {
	b.ctx.mu.Lock()
	defer b.ctx.mu.Unlock()
	b.gone = true
	n := len(b.ctx.events)
	b.ctx.events = slices.DeleteFunc(b.ctx.events, func(q queued) bool { return q.about == b })
	if b.ctx.fd >= 0 {
		eventcount.Add(b.ctx.fd, len(b.ctx.events)-n)
	}
}

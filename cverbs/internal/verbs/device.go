package verbs

import (
	"context"
	"slices"
	"sync"
	"syscall"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
)

// device is a device of the process. All contexts share it: the first one opens it and the last one
// closes it.
type device struct {
	description

	mu       sync.Mutex
	dev      *roce.Device // nil: not open
	contexts []*Context
	domains  domains       // XRC domains that contexts share
	events   chan struct{} // closed when nothing takes events any more

	opened sync.Map // *roce.QP: *queuePair, of handles of XRC targets that OpenQP made
}

// known are the devices by name. One that was seen once keeps its name.
var known struct {
	sync.Mutex
	devices map[string]*device
}

// Devices fills up to len(list) entries in and returns how many devices there are.
func Devices(list []abi.DeviceInfo) (int, error) {
	devices, err := describe()
	if err != nil {
		return 0, err
	}
	for i := range min(len(list), len(devices)) {
		d := &devices[i]
		list[i] = abi.DeviceInfo{GUID: d.guid}
		abi.String(list[i].Name[:], d.name)
		abi.String(list[i].Netdev[:], d.netdev)
	}
	return len(devices), nil
}

// deviceNamed returns the device of a name. ENODEV if there is none.
func deviceNamed(name string) (*device, error) {
	devices, err := describe()
	if err != nil {
		return nil, err
	}
	known.Lock()
	defer known.Unlock()
	for _, d := range devices {
		if d.name != name {
			continue
		}
		if known.devices == nil {
			known.devices = make(map[string]*device)
		}
		if known.devices[name] == nil {
			known.devices[name] = &device{description: d}
		}
	}
	if d := known.devices[name]; d != nil {
		return d, nil
	}
	return nil, syscall.ENODEV
}

// enter opens the device for a context.
func (d *device) enter(c *Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dev == nil {
		dev, err := d.open()
		if err != nil {
			return err
		}
		d.dev, d.events = dev, make(chan struct{})
		go d.deliver(dev, d.events)
	}
	c.dev, c.roce = d, d.dev
	d.contexts = append(d.contexts, c)
	return nil
}

// leave takes a context away, and with the last one closes the device.
func (d *device) leave(c *Context) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contexts = slices.DeleteFunc(d.contexts, func(o *Context) bool { return o == c })
	if len(d.contexts) > 0 {
		return nil
	}
	dev, done := d.dev, d.events
	d.dev = nil
	d.mu.Unlock() // deliver may want it
	err := dev.Close()
	<-done
	d.mu.Lock()
	return err
}

// deliver hands out asynchronous events until the device is closed.
func (d *device) deliver(dev *roce.Device, done chan struct{}) {
	defer close(done)
	for {
		e, err := dev.NextEvent(context.Background())
		if err != nil {
			return
		}
		d.hand(e)
	}
}

// hand gives an event to the context that has the object, and one of the port or device to all.
func (d *device) hand(e roce.Event) {
	switch {
	case e.QP != nil:
		if o, ok := d.opened.Load(e.QP); ok {
			o.(*queuePair).raise(e.Type)
		} else if q, ok := e.QP.UserData().(*queuePair); ok {
			q.raise(e.Type)
		}
	case e.CQ != nil:
		if q, ok := e.CQ.UserData().(*completionQueue); ok {
			q.raise(e.Type)
		}
	case e.SRQ != nil:
		if q, ok := e.SRQ.UserData().(*sharedQueue); ok {
			q.raise(e.Type)
		}
	default:
		d.mu.Lock()
		contexts := slices.Clone(d.contexts)
		d.mu.Unlock()
		for _, c := range contexts {
			c.raise(nil, e.Type, e.Port)
		}
	}
}

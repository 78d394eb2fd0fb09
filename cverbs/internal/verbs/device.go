package verbs

import (
	"context"
	"slices"
	"sync"

	"github.com/goroce/roce"
	"github.com/goroce/roce/cverbs/internal/abi"
	"github.com/goroce/roce/internal/machine"
)

// device is a device of the process. All contexts share it: the first one opens it, and the last one closes it.
type device struct {
	name string

	// life is held while the device is opened or closed, and guards the fields below.
	life   sync.Mutex
	users  int
	dev    *machine.Device // nil: not open
	events chan struct{}   // closed when no goroutine takes events any more

	mu       sync.Mutex // guards the fields below
	contexts []*Context
	domains  domains // XRC domains that contexts share

	opened sync.Map // *roce.QP: *queuePair, for handles of XRC targets from OpenQP
}

// known are the devices that a program has opened, by name.
var known = struct {
	sync.Mutex
	devices map[string]*device
}{devices: make(map[string]*device)}

// Devices fills in up to len(list) entries and returns the number of devices.
func Devices(list []abi.DeviceInfo) (int, error) {
	devices, err := describe()
	if err != nil {
		return 0, err
	}
	for i := range min(len(list), len(devices)) {
		d := &devices[i]
		list[i] = abi.DeviceInfo{GUID: d.GUID}
		abi.String(list[i].Name[:], d.Name)
		abi.String(list[i].Netdev[:], d.Interface)
	}
	return len(devices), nil
}

// deviceNamed returns the device of a name. The device need not exist.
func deviceNamed(name string) *device {
	known.Lock()
	defer known.Unlock()
	d := known.devices[name]
	if d == nil {
		d = &device{name: name, domains: make(domains)}
		known.devices[name] = d
	}
	return d
}

// enter opens the device for a context.
func (d *device) enter(c *Context) error {
	d.life.Lock()
	defer d.life.Unlock()
	if d.users == 0 {
		dev, err := openDevice(d.name)
		if err != nil {
			return err
		}
		d.dev, d.events = dev, make(chan struct{})
		go d.deliver(dev.Device, d.events)
	}
	d.users++
	c.dev, c.roce = d, d.dev.Device
	d.mu.Lock()
	defer d.mu.Unlock()
	d.contexts = append(d.contexts, c)
	return nil
}

// leave removes a context. The last one closes the device.
func (d *device) leave(c *Context) {
	d.life.Lock()
	defer d.life.Unlock()
	d.mu.Lock()
	d.contexts = slices.DeleteFunc(d.contexts, func(o *Context) bool { return o == c })
	d.mu.Unlock()
	if d.users--; d.users == 0 {
		d.dev.Close() // an error says that peers did not answer: irrelevant for the program
		<-d.events
		d.dev = nil
	}
}

// Exiting closes all devices at the same time when the process exits, as a kernel disconnects from the peers of
// an exiting process. The contexts stay, and their calls fail. Exiting skips a device that another thread is
// opening or closing.
func Exiting() {
	PostCollected()
	known.Lock()
	defer known.Unlock()
	var closing sync.WaitGroup
	for _, d := range known.devices {
		if !d.life.TryLock() {
			continue
		}
		defer d.life.Unlock()
		if d.dev != nil {
			closing.Go(func() { d.dev.Close() })
		}
	}
	closing.Wait()
}

// deliver passes asynchronous events to contexts until the device is closed.
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

// hand passes an event of an object to the object's context, and an event of the port or device to all contexts.
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

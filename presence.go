package roce

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"syscall"

	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/link"
)

// ErrNoDevice says that the network interface under the device was removed.
var ErrNoDevice = link.ErrNoDevice

// errGone is why nothing works any more on a device without its interface.
var errGone = &Error{"device", "its network interface was removed; close it", fmt.Errorf("%w: %w", ErrNoDevice, syscall.ENODEV)}

// trouble looks at an error of the port. That the link is down is a condition;
// that the interface is gone ends the device, once the lock is free. Others are
// counted.
func (s *shard) trouble(err error) {
	switch {
	case errors.Is(err, link.ErrNoDevice):
		if !s.dev.gone.Load() {
			s.notices = append(s.notices, notice{gone: true})
		}
	case errors.Is(err, link.ErrDown), errors.Is(err, link.ErrClosed):
	default:
		s.health.errors++
	}
}

// flush hands what was committed to the driver.
func (s *shard) flush() {
	s.flushed = s.commits
	if err := s.port.Flush(); err != nil {
		s.trouble(err)
	}
}

// vanish is the end of a device whose network interface was removed: everything
// posted is flushed, connections are over, and so is listening. No lock is held.
func (d *Device) vanish() {
	if d.closing.Load() || d.gone.Swap(true) {
		return
	}
	d.lockAll()
	for _, q := range d.demux.all() {
		q.flush()
	}
	conns := slices.Collect(maps.Keys(d.gsi.conns))
	told := d.gsi.everybody()
	d.unlockAll()
	for _, tell := range told {
		tell(errGone)
	}
	for _, c := range conns {
		c.Destroy()
	}
	d.raise(Event{Type: EventDeviceFatal})
	d.watchers.tell(errGone)
}

// present fails once the network interface was removed. Called with a shard
// locked: what is begun then is seen by vanish.
func (d *Device) present() error {
	if d.gone.Load() {
		return errGone
	}
	return nil
}

// follow keeps the device in step with the interface of the host it sits on,
// until the host's side is closed.
func (d *Device) follow(host *hostnet.Interface) error {
	return host.Watch(func() {
		if _, err := host.State(); errors.Is(err, syscall.ENODEV) {
			d.vanish()
			return
		}
		for _, s := range d.shards {
			s.port.Stats() // makes the driver look at the link
		}
		if addrs, err := host.Addrs(); err == nil {
			d.SetAddrs(addrs) // an error: the device is closed
		}
	})
}

// Package mckey is mckey of librdmacm's examples: a sender SENDs a number of messages to a
// multicast group, and receivers in the group wait for as many.
package mckey

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/messages"
	"github.com/goroce/roce/internal/tools/usage"
)

// Pause is how long mckey waits between joining and sending, so that switches learn of the
// membership.
const Pause = 3 * time.Second

// Config are mckey's options.
type Config struct {
	messages.Options
	Group      roce.GID      // -m or -M; an IPv4 group as v4-mapped address
	Bind       netip.Addr    // -b own address; invalid: one that suits the group
	SendOnly   bool          // -o do not join the group
	NoLoopback bool          // -l the own device does not get what it sends
	Pause      time.Duration // between joining and sending
}

// Validate returns an error that names the option which makes no sense.
func (c *Config) Validate() error {
	if !c.Group.IsMulticast() {
		return usage.Errorf("-m %v: want the address of a multicast group, like 239.1.2.3 or ff0e::7", c.Group.Addr())
	}
	return c.Options.Validate()
}

// member is one side of a test: its queue pairs.
type member struct {
	Config
	dev    *roce.Device
	peer   *roce.UDPeer // the group
	ends   []*messages.UD
	joined int // how many of the ends have joined the group
}

// Sender joins the group, unless it only sends, and sends.
func Sender(ctx context.Context, d *roce.Device, c Config) error {
	return run(ctx, d, c, "client", !c.SendOnly, func(m *member) error {
		select {
		case <-time.After(m.Pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		fmt.Fprintln(m.Out, "initiating data transfers")
		for _, e := range m.ends {
			if err := e.Post(m.peer, roce.Signaled); err != nil {
				return err
			}
		}
		return m.wait(ctx, "send")
	})
}

// Receiver joins the group, calls joined, and receives. Like mckey it waits for a lost message
// until ctx ends.
func Receiver(ctx context.Context, d *roce.Device, c Config, joined func()) error {
	return run(ctx, d, c, "server", true, func(m *member) error {
		joined()
		fmt.Fprintln(m.Out, "receiving data transfers")
		return m.wait(ctx, "receive")
	})
}

func run(ctx context.Context, d *roce.Device, c Config, name string, join bool, transfer func(*member) error) (err error) {
	if err := errors.Join(c.Validate(), c.Prepare()); err != nil {
		return err
	}
	m := &member{Config: c, dev: d}
	fmt.Fprintf(c.Out, "mckey: starting %s\nmckey: joining\n", name)
	defer func() { err = errors.Join(err, m.leave()) }()
	if err := m.open(ctx, join, name == "server"); err != nil || c.Count == 0 {
		return err
	}
	if err := transfer(m); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "data transfers complete")
	return nil
}

// open makes the queue pairs and attaches them to the group if they are to join it.
func (m *member) open(ctx context.Context, join, receives bool) error {
	index, err := m.source()
	if err != nil {
		return err
	}
	ah, err := m.dev.CreateAH(ctx, roce.AHAttr{DGID: m.Group, SGIDIndex: index})
	if err != nil {
		return err
	}
	m.peer = &roce.UDPeer{AH: ah, QPN: roce.QPNMulticast, QKey: roce.DefaultUDPQKey}
	for range m.Connections {
		e, err := messages.NewUD(m.dev, &m.Options, receives, m.NoLoopback)
		if err != nil {
			return err
		}
		m.ends = append(m.ends, e)
		if join {
			if err := e.QP.AttachMulticast(m.Group); err != nil {
				return err
			}
			m.joined++
		}
		fmt.Fprintf(m.Out, "mckey: joined dgid: %v mlid 0x0 sl 0\n", m.Group)
	}
	return nil
}

// source returns the index of the own address: that of Bind, or else the first of the group's
// IP version, a link-local one only if there is no other.
func (m *member) source() (int, error) {
	gids := m.dev.GIDs()
	if m.Bind.IsValid() {
		i := slices.IndexFunc(gids, func(g roce.GID) bool { return g.Addr() == m.Bind.Unmap() })
		if i < 0 {
			return 0, fmt.Errorf("-b %v: not an address of the device: %w", m.Bind, syscall.EADDRNOTAVAIL)
		}
		return i, nil
	}
	for _, local := range []bool{false, true} {
		i := slices.IndexFunc(gids, func(g roce.GID) bool {
			return !g.IsZero() && g.Is4() == m.Group.Is4() && g.IsLinkLocal() == local
		})
		if i >= 0 {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the device has no address to reach %v from: %w", m.Group.Addr(), syscall.ENETUNREACH)
}

func (m *member) wait(ctx context.Context, step string) error {
	return messages.Each(m.ends, step, func(e *messages.UD) error { return e.Wait(ctx, nil) })
}

// leave leaves the group and closes the queue pairs.
func (m *member) leave() error {
	var errs []error
	for i, e := range m.ends {
		if i < m.joined {
			errs = append(errs, e.QP.DetachMulticast(m.Group))
		}
		e.Close()
	}
	return errors.Join(errs...)
}

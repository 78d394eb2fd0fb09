// Package mckey is mckey of librdmacm's examples: a sender SENDs a number of
// messages to a multicast group, and receivers in the group wait for as many.
package mckey

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/datagram"
)

// Pause is how long mckey waits between joining and sending: for switches to learn
// of the membership.
const Pause = 3 * time.Second

// Config are mckey's options, with its defaults for zero values.
type Config struct {
	Group       roce.GID      // -m or -M; an IPv4 group as v4-mapped address
	Bind        netip.Addr    // -b own address; invalid: one that suits the group
	Connections int           // -c, 1: queue pairs
	Count       int           // -C messages of each, 10; negative: none
	Size        int           // -S bytes of a message, 100
	SendOnly    bool          // -o do not join the group
	NoLoopback  bool          // -l the own device does not get what it sends
	Pause       time.Duration // between joining and sending, Pause; negative: none
	Out         io.Writer     // what mckey prints; nil: nowhere
}

func (c *Config) defaults() error {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	set(&c.Connections, 1)
	set(&c.Count, 10)
	set(&c.Size, 100)
	c.Count = max(c.Count, 0)
	if c.Pause == 0 {
		c.Pause = Pause
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	switch {
	case c.Connections < 1 || c.Size < 1:
		return fmt.Errorf("%d connections, messages of %d bytes: use at least 1", c.Connections, c.Size)
	case !c.Group.IsMulticast():
		return fmt.Errorf("%v is no multicast group", c.Group.Addr())
	}
	return nil
}

// member is a run of one side.
type member struct {
	Config
	dev   *roce.Device
	peer  *roce.UDPeer // the group
	nodes []*datagram.End
	in    int // so many nodes are in the group
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
		for _, n := range m.nodes {
			if err := n.Send(m.peer, roce.Signaled); err != nil {
				return err
			}
		}
		return m.wait(ctx, "send")
	})
}

// Receiver joins the group, calls joined, and receives. A message that is lost is
// waited for until ctx ends, as mckey does.
func Receiver(ctx context.Context, d *roce.Device, c Config, joined func()) error {
	return run(ctx, d, c, "server", true, func(m *member) error {
		joined()
		fmt.Fprintln(m.Out, "receiving data transfers")
		return m.wait(ctx, "receive")
	})
}

func run(ctx context.Context, d *roce.Device, c Config, name string, join bool, transfer func(*member) error) (err error) {
	if err := c.defaults(); err != nil {
		return err
	}
	m := &member{Config: c, dev: d}
	fmt.Fprintf(c.Out, "mckey: starting %s\nmckey: joining\n", name)
	defer func() {
		if lerr := m.leave(); err == nil {
			err = lerr
		}
	}()
	if err := m.open(ctx, join, name == "server"); err != nil {
		return err
	}
	if c.Count == 0 {
		return nil
	}
	if err := transfer(m); err != nil {
		return err
	}
	fmt.Fprintln(c.Out, "data transfers complete")
	return nil
}

// open makes the queue pairs and lets them join.
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
		n, err := datagram.New(m.dev, datagram.Config{Count: m.Count, Size: m.Size, NoLoopback: m.NoLoopback}, receives)
		if err != nil {
			return err
		}
		m.nodes = append(m.nodes, n)
		if join {
			if err := n.QP.AttachMulticast(m.Group); err != nil {
				return err
			}
			m.in++
		}
		fmt.Fprintf(m.Out, "mckey: joined dgid: %v mlid 0x0 sl 0\n", m.Group)
	}
	return nil
}

// source chooses the own address: the one asked for, or the first of the group's IP
// version, link-local only if there is no other.
func (m *member) source() (int, error) {
	gids := m.dev.GIDs()
	if m.Bind.IsValid() {
		i := slices.IndexFunc(gids, func(g roce.GID) bool { return g.Addr() == m.Bind.Unmap() })
		if i < 0 {
			return 0, fmt.Errorf("%v is not an address of the device: %w", m.Bind, syscall.EADDRNOTAVAIL)
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

func (m *member) wait(ctx context.Context, what string) error {
	for i, n := range m.nodes {
		if err := n.Wait(ctx, nil); err != nil {
			return fmt.Errorf("connection %d: %s: %w", i, what, err)
		}
	}
	return nil
}

// leave gives everything back.
func (m *member) leave() (first error) {
	for i, n := range m.nodes {
		if i < m.in {
			if err := n.QP.DetachMulticast(m.Group); err != nil && first == nil {
				first = err
			}
		}
		n.Close()
	}
	return first
}

package xdp

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/link"
)

// oneBuffer is the largest MTU with which a driver that keeps each frame in one page accepts
// a program that does not support fragments: a page minus the room before and after the
// frame. For a larger MTU veth fails with ERANGE.
const oneBuffer = 3498

// way is a mode in which the program can be attached.
type way struct {
	name  string
	flags bpflink.XDPAttachFlags
	frags bool
}

// lateDrivers accept a program in native mode, but run it in the generic
// hook for some frames: tun does so for frames larger than a page.
var lateDrivers = []string{"tun"}

// lowerDrivers accept a program in native mode, but run it on their lower interfaces. The frames
// then belong to a lower interface, and the kernel does not redirect them to a socket of the upper
// one.
var lowerDrivers = []string{"bonding"}

// ways returns the modes to try for an interface, the best first. If the program may
// run in the generic hook, the mode has no fragments, because that combination has crashed kernels.
// whole means that the kernel's sockets do not support frames in pieces.
// scatter means that the Ports send frames of any size in pieces.
func ways(mtu int, generic, whole, scatter bool, driver string) []way {
	native := way{"native", bpflink.XDPDriverMode, false}
	pieces := way{"native, scatter-gather", bpflink.XDPDriverMode, true}
	late := way{"generic", bpflink.XDPGenericMode, false}
	switch {
	case generic || slices.Contains(lowerDrivers, driver):
		return []way{late}
	case whole || slices.Contains(lateDrivers, driver):
		return []way{native, late}
	case mtu > oneBuffer:
		return []way{pieces, late}
	case scatter:
		return []way{pieces, native, late}
	}
	return []way{native, pieces, late} // some drivers need fragments even for small frames
}

// attach attaches the program to the interface in the best mode that works. The program has no
// sockets yet, so it passes all packets to the kernel. attach notes which modes failed. most is how
// many receive queues the interface can have.
func (c *card) attach(most int) (err error) {
	var reasons []string
	for _, w := range ways(c.info.MTU, c.cfg.Generic, c.lack.pieces, c.cfg.Memory > 0, c.driver) {
		var raised bool
		raised, err = withMemlock(rlimit.RemoveMemlock, func() (err error) {
			c.filter, err = loadFilter(most, c.cfg.VLAN, c.cfg.AnyAddr, w.frags)
			return err
		})
		if raised && err == nil {
			c.did("the limit of locked memory (RLIMIT_MEMLOCK) is off for the whole process: before Linux 5.11 BPF maps count")
		}
		if err != nil {
			err = fmt.Errorf("load program: %w", err) // before Linux 5.18 there are no fragments
			reasons = append(reasons, fmt.Sprintf("not in %s mode: %v", w.name, err))
			continue
		}
		options := bpflink.XDPOptions{Program: c.filter.prog, Interface: c.info.Index, Flags: w.flags}
		c.hook, err = bpflink.AttachXDP(options)
		if errors.Is(err, unix.EBUSY) {
			if err = c.occupied(); err == nil {
				c.hook, err = bpflink.AttachXDP(options)
			}
		}
		if err == nil {
			c.way = w
			c.info.Notes = append(c.info.Notes, reasons...)
			return nil
		}
		c.filter.Close()
		c.filter = nil
		if errors.Is(err, ErrProgram) {
			return err
		}
		reasons = append(reasons, fmt.Sprintf("not in %s mode: %v", w.name, err))
	}
	return c.failedStep("attach program", err)
}

// withMemlock calls load. If load fails with EPERM, as it does when the limit of locked memory
// is too low, withMemlock raises the limit of the process and calls load again. It reports
// whether it has raised the limit.
func withMemlock(raise, load func() error) (raised bool, err error) {
	if err = load(); !errors.Is(err, unix.EPERM) || raise() != nil {
		return false, err
	}
	return true, load()
}

// occupied checks whether the interface already has an XDP program. With Config.Force it removes
// the program; otherwise it returns an error that names the program.
func (c *card) occupied() error {
	id, how := uint32(0), ""
	if l, err := netlink.LinkByIndex(c.info.Index); err == nil && l.Attrs().Xdp != nil {
		id = l.Attrs().Xdp.ProgId
	}
	name := "?"
	if p, err := ebpf.NewProgramFromID(ebpf.ProgramID(id)); err == nil {
		if info, err := p.Info(); err == nil {
			name = info.Name
		}
		p.Close()
	}
	held := c.holder(ebpf.ProgramID(id))
	if held != nil {
		defer held.Close()
		how = " by a bpf_link, whose owner can close it"
	}
	if !c.cfg.Force {
		return link.Fail("xdp", "open", c.info.Interface, ErrProgram, fmt.Errorf("program %d (%s) is attached%s: %w", id, name, how, unix.EBUSY), "stop the program that has attached it, or `ip link set dev "+c.info.Interface+" xdp off`, or force")
	}
	c.did(fmt.Sprintf("removed the XDP program %d (%s)", id, name))
	if held != nil {
		return held.Detach()
	}
	l, err := netlink.LinkByIndex(c.info.Index)
	if err != nil {
		return err
	}
	// The interface has a program in only one of the two modes, so one call fails. The caller
	// checks the result.
	for _, mode := range []int{unix.XDP_FLAGS_DRV_MODE, unix.XDP_FLAGS_SKB_MODE} {
		netlink.LinkSetXdpFdWithFlags(l, -1, mode)
	}
	return nil
}

// holder finds the bpf_link that keeps a program on the interface; nil if none
// does. Interfaces of other namespaces may have the same index.
func (c *card) holder(id ebpf.ProgramID) bpflink.Link {
	all := new(bpflink.Iterator)
	defer all.Close()
	for all.Next() {
		info, err := all.Link.Info()
		if err != nil || info.Type != bpflink.XDPType || info.Program != id {
			continue
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == c.info.Index {
			return all.Take()
		}
	}
	return nil
}

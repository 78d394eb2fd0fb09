package raw

import (
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/internal/sockfilter"
	"github.com/goroce/roce/link"
)

// OpenQueues opens n Ports on one interface that share its packets
// (PACKET_FANOUT): those for queue pair q arrive at Port q modulo n, those for
// the management queue pairs and multicast at Port 0. Close all Ports
// together, because the kernel redistributes the packets when one is closed.
//
// After the interface was down the kernel may number the Ports in another order,
// so a Port may receive packets of another Port.
func OpenQueues(c Config, n int) ([]link.Port, error) {
	c.queues = n
	if n < 1 || n > 256 {
		return nil, link.Fail("raw", "open", c.Interface, nil, fmt.Errorf("%d queues, want 1 to 256", n), "")
	}
	// All sockets must be in the namespace of this thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var ports []link.Port
	group := -1
	var first *Port
	for range n {
		p, err := open(c, first, func(p *Port) (err error) {
			if n > 1 {
				group, err = p.group(group, n)
			}
			return err
		})
		if err != nil {
			for _, p := range ports {
				p.Close()
			}
			return nil, err
		}
		p.queue = fmt.Sprintf("queue %d of %d", len(ports), n)
		if p.slots != nil {
			p.queue = fmt.Sprintf("place %d of %d", p.slots[len(ports)], share.Slots)
		}
		if first == nil {
			first = p
		} else {
			first.Queues = append(first.Queues, &p.base)
		}
		ports = append(ports, p)
	}
	return ports, nil
}

// steering chooses one of n sockets for a packet.
func (p *Port) steering(n int) []bpf.Instruction {
	if p.slots != nil {
		return slices.Concat(queuePair(), share.Queue(p.slots))
	}
	return steering(uint32(n))
}

// group joins the group of sockets that share the interface's packets, or makes
// it if it is negative. It returns the group.
func (p *Port) group(group, n int) (int, error) {
	const kind = unix.PACKET_FANOUT_CBPF | unix.PACKET_FANOUT_FLAG_IGNORE_OUTGOING
	arg := kind<<16 | group
	if group < 0 {
		arg = (kind | unix.PACKET_FANOUT_FLAG_UNIQUEID) << 16
	}
	if err := unix.SetsockoptInt(p.FD, unix.SOL_PACKET, unix.PACKET_FANOUT, arg); err != nil {
		return -1, p.FailStep("PACKET_FANOUT", err)
	}
	if group >= 0 {
		return group, nil
	}
	got, err := unix.GetsockoptInt(p.FD, unix.SOL_PACKET, unix.PACKET_FANOUT)
	if err != nil {
		return -1, p.FailStep("PACKET_FANOUT", err)
	}
	if err := sockfilter.Set(p.FD, unix.SOL_PACKET, unix.PACKET_FANOUT_DATA, p.steering(n)); err != nil {
		return -1, p.FailStep("PACKET_FANOUT_DATA", err)
	}
	return got & 0xFFFF, nil
}

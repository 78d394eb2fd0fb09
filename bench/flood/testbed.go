//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/goroce/roce/bench/internal/lab"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/interop/netns"
	"github.com/goroce/roce/interop/proc"
)

// The addresses.
var (
	serverIP   = netip.MustParseAddr("10.90.0.1")
	clientIP   = netip.MustParseAddr("10.90.0.2")
	attackerIP = netip.MustParseAddr("10.90.0.66")
)

const device = "eth0"

// testbed is the switch and the three child processes that are connected to it.
type testbed struct {
	link                     string
	spaces                   []netns.Netns
	server, client, attacker *child.Process
	macs                     [3]frame.MAC
}

// ownQueues is the end of a link's name that gives the server's interface two queues: one for packets that the
// attacker's processor sends, one for the client's.
const ownQueues = "-queues"

func newTestbed(ctx context.Context, link string) (b *testbed, err error) {
	b = &testbed{link: link}
	driver, queues := strings.CutSuffix(link, ownQueues)
	defer func() {
		if err != nil {
			b.close()
			b = nil
		}
	}()
	sw, err := b.space(ctx, "switch", "link add bridge0 type bridge", "link set bridge0 up")
	if err != nil {
		return b, err
	}
	cores, err := lab.ChooseCores()
	if err != nil {
		return b, err
	}
	for i, p := range []struct {
		name string
		ip   netip.Addr
		core int
		at   **child.Process
	}{{"server", serverIP, cores[0], &b.server}, {"client", clientIP, cores[0], &b.client}, {"attacker", attackerIP, cores[1], &b.attacker}} {
		port := fmt.Sprintf("port%d", i)
		var two string
		if queues && i == 0 {
			two = "numtxqueues 2 numrxqueues 2 "
		}
		ns, err := b.space(ctx, p.name, fmt.Sprintf("link add %s %stype veth peer name %s netns %s %[2]s", device, two, port, sw),
			fmt.Sprintf("addr add %v/24 dev %s", p.ip, device), "link set "+device+" up")
		if err != nil {
			return b, err
		}
		if err := sw.IP(ctx, "link set "+port+" master bridge0", "link set "+port+" up"); err != nil {
			return b, err
		}
		if two != "" {
			if err := separate(ctx, sw, port, cores); err != nil {
				return b, err
			}
		}
		err = ns.Do(func() error {
			ifi, err := net.InterfaceByName(device)
			if err == nil {
				copy(b.macs[i][:], ifi.HardwareAddr)
			}
			return err
		})
		if err != nil {
			return b, err
		}
		if *p.at, err = child.Start(p.name, ns, []int{p.core}, roleVariable+"="+p.name); err != nil {
			return b, err
		}
	}
	if err := call(ctx, b.server, "Open", driver, nil); err != nil {
		return b, err
	}
	return b, call(ctx, b.client, "Open", driver, nil)
}

// separate makes each of two processors send through its own queue of a veth interface (XPS). The other end receives
// from the queue of the same number.
func separate(ctx context.Context, n netns.Netns, device string, cores [2]int) error {
	if cores[0] == cores[1] {
		return errors.New("attacker and client need a processor each, to have a queue each")
	}
	for queue, core := range cores {
		mask := make([]string, core/32+1) // words of 32 bits, the highest first
		for i := range mask {
			mask[i] = "0"
		}
		mask[0] = fmt.Sprintf("%x", uint32(1)<<(core%32))
		file := fmt.Sprintf("/sys/class/net/%s/queues/tx-%d/xps_cpus", device, queue)
		if _, err := proc.Run(ctx, n.Argv("sh", "-c", "echo "+strings.Join(mask, ",")+" > "+file)...); err != nil {
			return fmt.Errorf("queue %d of %s: %w", queue, device, err)
		}
	}
	return nil
}

// space makes a namespace of the testbed and runs ip commands in it.
func (b *testbed) space(ctx context.Context, name string, commands ...string) (netns.Netns, error) {
	n, err := netns.New(ctx, "flood-"+name)
	if err != nil {
		return n, err
	}
	b.spaces = append(b.spaces, n)
	return n, n.IP(ctx, commands...)
}

func (b *testbed) close() {
	for _, p := range []*child.Process{b.attacker, b.client, b.server} {
		if p != nil {
			p.Close()
		}
	}
	for _, n := range b.spaces {
		n.Remove()
	}
}

func call(ctx context.Context, p *child.Process, method string, arg, result any) error {
	limit := time.Minute
	if a, ok := arg.(Attack); ok {
		limit += a.Time
	}
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	return p.Call(ctx, method, arg, result)
}

// roleVariable is the environment variable that makes this program run as one of its children.
const roleVariable = "ROCE_FLOOD_ROLE"

// serve is the main function of a child.
func serve(role string) error {
	r, ok := map[string]interface{ close() }{"server": &server{}, "client": &client{}, "attacker": &attacker{}}[role]
	if !ok {
		return fmt.Errorf("no role %q", role)
	}
	defer r.close()
	return child.Serve(os.Stdin, os.Stdout, r, func() {})
}

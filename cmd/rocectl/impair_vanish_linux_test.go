package main

import (
	"bytes"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
)

// state lists the state of the kernel in the namespace of a side that impair could change: interfaces, promiscuous mode, queueing
// disciplines, addresses, BPF programs, nftables tables.
func state(t *testing.T, s *netlab.Side) (all []string) {
	t.Helper()
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	links, err := s.Netlink().LinkList()
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		at := l.Attrs()
		add("%s %s: promiscuous %d, flags %v, MTU %d", at.Name, l.Type(), at.Promisc, at.Flags, at.MTU)
		qdiscs, err := s.Netlink().QdiscList(l)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range qdiscs {
			add("%s qdisc %s %v", at.Name, q.Type(), q.Attrs())
		}
		addrs, err := s.Netlink().AddrList(l, netlink.FAMILY_ALL)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range addrs {
			add("%s address %v", at.Name, a.IPNet)
		}
		s.Do(t, func() {
			for _, hook := range []ebpf.AttachType{ebpf.AttachTCXIngress, ebpf.AttachTCXEgress} {
				if r, err := bpflink.QueryPrograms(bpflink.QueryOptions{Target: at.Index, Attach: hook}); err == nil && len(r.Programs) > 0 {
					add("%s %v: %d programs", at.Name, hook, len(r.Programs))
				}
			}
		})
	}
	s.Do(t, func() {
		r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETTABLE, unix.NLM_F_DUMP)
		r.AddData(&nl.Nfgenmsg{})
		if tables, err := r.Execute(unix.NETLINK_NETFILTER, 0); err == nil {
			add("%d tables of nftables", len(tables))
		}
	})
	return all
}

// wantState checks that the state is the same as before.
func wantState(t *testing.T, s *netlab.Side, before []string) {
	t.Helper()
	if after := state(t, s); !slices.Equal(before, after) {
		t.Errorf("before it was\n  %s\nnow it is\n  %s", strings.Join(before, "\n  "), strings.Join(after, "\n  "))
	}
}

// launchImpair runs the command in a separate process, in the namespace of a side. kill ends it.
func launchImpair(t *testing.T, at *netlab.Side, args ...string) (kill func()) {
	t.Helper()
	p, _ := start(t, at, "forwarding between", append([]string{"impair"}, args...)...)
	return p.kill
}

// flood sends RoCE packets from one end to the other over UDP sockets. It returns when the first packet has arrived. A goroutine
// sends until the test ends.
func flood(t *testing.T, from, to *netlab.Side) {
	t.Helper()
	var in *net.UDPConn
	var out net.Conn
	var err error
	to.Do(t, func() { in, err = net.ListenUDP("udp4", &net.UDPAddr{IP: to.IP4.AsSlice(), Port: bth.UDPPort}) })
	if err != nil {
		t.Fatal(err)
	}
	from.Do(t, func() { out, err = net.DialUDP("udp4", nil, &net.UDPAddr{IP: to.IP4.AsSlice(), Port: bth.UDPPort}) })
	if err != nil {
		t.Fatal(err)
	}
	packet := make([]byte, bth.BTHLen+bth.ICRCLen)
	bth.PutBTH(packet, bth.UCSendOnly, 0, 0, bth.DefaultPKey, 0x12, 1)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for t.Context().Err() == nil {
			out.Write(packet) // fails if the interface is gone
		}
	}()
	t.Cleanup(func() { <-ended; in.Close(); out.Close() })
	if _, err := in.Read(make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
}

// TestImpairVanishes: an interface is removed while impair forwards. The command ends with an error and its counters, and the state of
// all other interfaces is as before.
func TestImpairVanishes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		one    bool
		remove func(t *testing.T, a, near, far *netlab.Side) (vanished []string)
		says   string
	}{
		{"the first interface", false, func(t *testing.T, a, near, far *netlab.Side) []string {
			return unlink(t, near, near.Interface)
		}, "was removed"},
		{"the second interface", false, func(t *testing.T, a, near, far *netlab.Side) []string {
			return unlink(t, far, far.Interface)
		}, "was removed"},
		{"the other end of a veth pair", false, func(t *testing.T, a, near, far *netlab.Side) []string {
			unlink(t, a, a.Interface)
			return []string{near.Interface}
		}, "was removed"},
		{"the only interface", true, func(t *testing.T, a, near, far *netlab.Side) []string {
			return unlink(t, near, near.Interface)
		}, "was removed"},
		{"a tap device of the only interface", true, func(t *testing.T, a, near, far *netlab.Side) []string {
			return unlink(t, near, "impair0")
		}, "tap device"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var a, b, near, far *netlab.Side
			if tt.one {
				near, b = netlab.Pair(t, netlab.Config{})
				a = near
			} else {
				a, b, near, far = netlab.Bridged(t, netlab.Config{})
			}
			before := state(t, near)
			args := []string{"impair", near.Interface}
			if !tt.one {
				args = append(args, far.Interface)
			}
			var out bytes.Buffer
			said := &announced{text: "forwarding between", ready: make(chan struct{})}
			ended := make(chan int, 1)
			go func() {
				code := exitOK
				near.Do(t, func() { code = run(t.Context(), args, said, &out) })
				ended <- code
			}()
			select {
			case <-said.ready:
			case <-ended:
				if strings.Contains(out.String(), "TCX") {
					netlab.Lacking(t, "TCX", fmt.Errorf("%s", out.String()))
				}
				t.Fatal(out.String())
			}
			flood(t, a, b)
			vanished := tt.remove(t, a, near, far)
			if code := <-ended; code != exitFailed || !strings.Contains(out.String(), tt.says) || !strings.Contains(said.String(), "connections in") {
				t.Errorf("exit %d, %s%s", code, said, out.String())
			}
			wantState(t, near, slices.DeleteFunc(before, func(line string) bool {
				name, _, _ := strings.Cut(line, " ")
				return slices.Contains(vanished, name)
			}))
		})
	}
}

// unlink removes an interface of a side.
func unlink(t *testing.T, s *netlab.Side, name string) []string {
	t.Helper()
	l, err := s.Netlink().LinkByName(name)
	if err == nil {
		err = s.Netlink().LinkDel(l)
	}
	if err != nil {
		t.Fatal(err)
	}
	return []string{name}
}

//go:build linux

package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/interop/proc"
	"github.com/goroce/roce/interop/vm/wire"
)

// await waits until a program in the guest listens. The agent asks the kernel itself, because a
// shell that runs `rdma resource show` in a loop takes most of an emulated processor.
func (a *agent) await(r wire.Request) {
	listens := func(port int) (bool, error) { return proc.Listens("self", port) }
	if r.Op == wire.AwaitRDMA {
		listens = rdmaListens
	}
	end := time.Now().Add(time.Duration(r.TimeoutMS) * time.Millisecond)
	for {
		ok, err := listens(r.Port)
		switch {
		case err != nil:
			a.send(wire.Event{Kind: wire.Exit, ID: r.ID, Code: -1, Error: err.Error()})
			return
		case ok:
			a.send(wire.Event{Kind: wire.Exit, ID: r.ID})
			return
		case time.Now().After(end):
			a.send(wire.Event{Kind: wire.Exit, ID: r.ID, Code: 1, TimedOut: true})
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Constants of <rdma/rdma_netlink.h> and of the kernel's enum rdma_cm_state.
const (
	nldev        = 5 << 10 // RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, 0)
	getIDs       = nldev | 11
	attrDevice   = 1
	attrIDs      = 30
	attrState    = 27
	attrSource   = 33
	stateListen  = 8
	nested       = 0x8000
	mostDevices  = 4
	sockaddrPort = 2 // offset of the port in a sockaddr_in and a sockaddr_in6
)

// rdmaListens reports whether an identifier of rdma_cm listens on a port, by the kernel's
// resource tracking (`rdma resource show cm_id`).
func rdmaListens(port int) (bool, error) {
	for device := range uint32(mostDevices) {
		dump := nl.NewNetlinkRequest(getIDs, unix.NLM_F_DUMP)
		dump.AddData(nl.NewRtAttr(attrDevice, nl.Uint32Attr(device)))
		answers, err := dump.Execute(unix.NETLINK_RDMA, 0)
		if err != nil && !errors.Is(err, unix.ENODEV) && !errors.Is(err, unix.EINVAL) && !errors.Is(err, nl.ErrDumpInterrupted) {
			return false, fmt.Errorf("netlink: %w", err)
		}
		if slices.ContainsFunc(answers, func(b []byte) bool { return listener(b, port) }) {
			return true, nil
		}
	}
	return false, nil
}

// listener reports whether an answer has an identifier that listens on a port.
func listener(b []byte, port int) bool {
	for kind, ids := range attributes(b) {
		if kind != attrIDs {
			continue
		}
		for _, id := range attributes(ids) {
			state, at := -1, 0
			for kind, v := range attributes(id) {
				switch {
				case kind == attrState && len(v) > 0:
					state = int(v[0])
				case kind == attrSource && len(v) >= sockaddrPort+2:
					at = int(binary.BigEndian.Uint16(v[sockaddrPort:]))
				}
			}
			if state == stateListen && at == port {
				return true
			}
		}
	}
	return false
}

// attributes yields the netlink attributes in b.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= 4 {
			n := int(binary.NativeEndian.Uint16(b))
			if n < 4 || n > len(b) || !yield(binary.NativeEndian.Uint16(b[2:])&^nested, b[4:n]) {
				return
			}
			b = b[min((n+3)&^3, len(b)):]
		}
	}
}

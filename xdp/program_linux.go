package xdp

import (
	"cmp"
	"encoding/binary"
	"net/netip"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
)

const (
	ethernetLen = 14
	vlanLen     = 4
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8

	xdpPass = 2

	// maxAddrs is how many addresses an interface may have. Linux' GID tables
	// have 1024 entries.
	maxAddrs = 1024
)

// filter is the program and its two maps.
type filter struct {
	prog  *ebpf.Program
	xsks  *ebpf.Map // queue → socket
	addrs *ebpf.Map // address, IPv4 mapped → Ethernet address; nil: any
	early earlyDrop
}

// loadFilter loads the program for an interface with a number of receive queues, and for
// a VLAN; 0 means no VLAN. any: the program accepts every destination address. frags: it supports
// frames in pieces.
func loadFilter(queues int, vlan uint16, any, frags bool) (*filter, error) {
	f := new(filter)
	if err := f.load(queues, vlan, any, frags); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// load does the work of loadFilter. f has all that was opened, also after an error.
func (f *filter) load(queues int, vlan uint16, any, frags bool) (err error) {
	if f.xsks, err = ebpf.NewMap(&ebpf.MapSpec{Name: "roce_xsks", Type: ebpf.XSKMap, KeySize: 4, ValueSize: 4, MaxEntries: uint32(queues)}); err != nil {
		return err
	}
	if !any {
		if f.addrs, err = ebpf.NewMap(&ebpf.MapSpec{Name: "roce_addrs", Type: ebpf.Hash, KeySize: 16, ValueSize: 8, MaxEntries: maxAddrs}); err != nil {
			return err
		}
	}
	if err := f.early.load(); err != nil {
		return err
	}
	spec := &ebpf.ProgramSpec{Name: "roce_filter", Type: ebpf.XDP, License: "Apache-2.0", Instructions: f.code(vlan)}
	if frags {
		spec.Flags = unix.BPF_F_XDP_HAS_FRAGS
	}
	f.prog, err = ebpf.NewProgram(spec)
	return err
}

// Close closes the program and the maps. An attached program stays attached.
func (f *filter) Close() {
	f.xsks.Close() // a nil map or program has nothing to close
	f.addrs.Close()
	f.early.close()
	f.prog.Close()
}

// code returns the program.
//
//	R6 IP header   R7 Ethernet header   R8 end of the frame   R9 context
//
// It sees only the first piece of a frame in several pieces; that piece has
// all headers.
func (f *filter) code(vlan uint16) asm.Instructions {
	const (
		ip, eth, end, ctx = asm.R6, asm.R7, asm.R8, asm.R9
		key               = -16 // on the stack
		pass              = labelPass
		lookup            = labelLookup
		redirect          = labelRedirect
	)
	// need passes the frame on if it has no n bytes from r on.
	need := func(r asm.Register, n int32) asm.Instructions {
		return asm.Instructions{
			asm.Mov.Reg(asm.R1, r),
			asm.Add.Imm(asm.R1, n),
			asm.JGT.Reg(asm.R1, end, pass),
		}
	}
	// half loads a 16-bit field into R0.
	half := func(r asm.Register, off int16) asm.Instructions {
		return asm.Instructions{asm.LoadMem(asm.R0, r, off, asm.Half), asm.HostTo(asm.BE, asm.R0, asm.Half)}
	}
	octet := func(off int16) asm.Instruction { return asm.LoadMem(asm.R0, ip, off, asm.Byte) }
	unless := func(v int32) asm.Instruction { return asm.JNE.Imm(asm.R0, v, pass) }

	var c asm.Instructions
	add := func(parts ...asm.Instructions) {
		for _, p := range parts {
			c = append(c, p...)
		}
	}
	one := func(i ...asm.Instruction) { c = append(c, i...) }

	one(
		asm.Mov.Reg(ctx, asm.R1),
		asm.LoadMem(eth, ctx, 0, asm.Word),
		asm.LoadMem(end, ctx, 4, asm.Word),
		asm.Mov.Reg(ip, eth),
		asm.Add.Imm(ip, ethernetLen),
	)
	add(need(eth, ethernetLen), half(eth, 12))
	// With a VLAN the program accepts only frames of that VLAN. Without one it also
	// accepts frames whose tag has only a priority.
	if vlan == 0 {
		one(asm.JNE.Imm(asm.R0, unix.ETH_P_8021Q, "plain"))
	} else {
		one(unless(unix.ETH_P_8021Q))
	}
	add(need(eth, ethernetLen+vlanLen), half(eth, ethernetLen))
	one(asm.And.Imm(asm.R0, 0x0FFF), unless(int32(vlan)))
	add(half(eth, 12+vlanLen))
	one(
		asm.Add.Imm(ip, vlanLen),
		asm.JEq.Imm(asm.R0, unix.ETH_P_IP, "ipv4").WithSymbol("plain"),
		unless(unix.ETH_P_IPV6),
	)

	// IPv6: version, next header, port, destination.
	add(need(ip, ipv6Len+udpLen))
	one(octet(0), asm.And.Imm(asm.R0, 0xF0), unless(6<<4), octet(6), unless(unix.IPPROTO_UDP))
	add(half(ip, ipv6Len+2))
	one(unless(bth.UDPPort), octet(24), asm.JEq.Imm(asm.R0, 0xFF, redirect))
	add(copyIPv6(24, key))
	one(asm.Ja.Label(lookup))

	// IPv4: version and length, protocol, fragments, port, destination.
	ipv4 := need(ip, ipv4Len+udpLen)
	ipv4[0] = ipv4[0].WithSymbol("ipv4")
	add(ipv4)
	one(octet(0), unless(0x45), octet(9), unless(unix.IPPROTO_UDP))
	add(half(ip, 6))
	one(asm.And.Imm(asm.R0, 0x3FFF), unless(0))
	add(half(ip, ipv4Len+2))
	one(
		unless(bth.UDPPort),
		octet(16), asm.And.Imm(asm.R0, 0xF0), asm.JEq.Imm(asm.R0, 0xE0, redirect),
	)
	add(copyIPv4(16, key))

	// Both the IP address and the Ethernet address must be the device's: a
	// promiscuous interface receives other frames, too.
	early := f.early.code()
	if f.addrs == nil {
		early[0] = early[0].WithSymbol(lookup)
	} else {
		one(
			asm.LoadMapPtr(asm.R1, f.addrs.FD()).WithSymbol(lookup),
			asm.Mov.Reg(asm.R2, asm.R10),
			asm.Add.Imm(asm.R2, key),
			asm.FnMapLookupElem.Call(),
			asm.JEq.Imm(asm.R0, 0, pass),
			asm.LoadMem(asm.R1, asm.R0, 0, asm.Word),
			asm.LoadMem(asm.R2, eth, 0, asm.Word),
			asm.JNE.Reg(asm.R1, asm.R2, pass),
			asm.LoadMem(asm.R1, asm.R0, 4, asm.Half),
			asm.LoadMem(asm.R2, eth, 4, asm.Half),
			asm.JNE.Reg(asm.R1, asm.R2, pass),
		)
	}
	add(early)
	// Redirect the frame to the socket of its queue; pass it if there is
	// none.
	one(
		asm.LoadMapPtr(asm.R1, f.xsks.FD()).WithSymbol(redirect),
		asm.LoadMem(asm.R2, ctx, 16, asm.Word),
		asm.Mov.Imm(asm.R3, xdpPass),
		asm.FnRedirectMap.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, xdpPass).WithSymbol(pass),
		asm.Return(),
	)
	return c
}

// copyIPv4 copies an address of the IPv4 header in R6 to the stack, IPv4 mapped; copyIPv6 copies one of an IPv6 header.
func copyIPv4(from, to int16) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R0, 0),
		asm.StoreMem(asm.R10, to, asm.R0, asm.DWord),
		asm.StoreMem(asm.R10, to+8, asm.R0, asm.Half),
		asm.Mov.Imm(asm.R0, 0xFFFF),
		asm.StoreMem(asm.R10, to+10, asm.R0, asm.Half),
		asm.LoadMem(asm.R0, asm.R6, from, asm.Word),
		asm.StoreMem(asm.R10, to+12, asm.R0, asm.Word),
	}
}

func copyIPv6(from, to int16) (c asm.Instructions) {
	for i := range int16(4) {
		c = append(c, asm.LoadMem(asm.R0, asm.R6, from+4*i, asm.Word), asm.StoreMem(asm.R10, to+4*i, asm.R0, asm.Word))
	}
	return c
}

// setAddrs makes the map contain addrs and no other addresses. An address that stays is
// in the map at all times. setAddrs first removes the old ones, to make room. If there
// are more addresses than the map holds, it stores as many as fit and fails.
func (f *filter) setAddrs(mac frame.MAC, addrs []netip.Addr) error {
	if f.addrs == nil {
		return nil
	}
	want := make(map[[16]byte]bool)
	for _, a := range addrs {
		want[a.As16()] = true
	}
	var gone [][16]byte
	var key [16]byte
	var value [8]byte
	for all := f.addrs.Iterate(); all.Next(&key, &value); {
		if !want[key] {
			gone = append(gone, key)
		}
	}
	for _, k := range gone {
		if err := f.addrs.Delete(k); err != nil {
			return err
		}
	}
	value = [8]byte{}
	copy(value[:], mac[:])
	var first error
	for _, a := range addrs {
		first = cmp.Or(first, f.addrs.Put(a.As16(), value))
	}
	return first
}

// clearChecksum sets the UDP checksum of a redirected frame to zero.
func clearChecksum(b []byte) {
	if len(b) < ethernetLen+vlanLen+ipv4Len+udpLen {
		return
	}
	at := ethernetLen
	proto := binary.BigEndian.Uint16(b[12:])
	if proto == unix.ETH_P_8021Q {
		proto = binary.BigEndian.Uint16(b[12+vlanLen:])
		at += vlanLen
	}
	if at += ipv4Len; proto == unix.ETH_P_IPV6 {
		at += ipv6Len - ipv4Len
	}
	if len(b) >= at+udpLen && b[at+6]|b[at+7] != 0 { // usually it is zero; a needless store would delay a later load of eight bytes there
		b[at+6], b[at+7] = 0, 0
	}
}

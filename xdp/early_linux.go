package xdp

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// Early drop: the XDP program drops packets that no queue pair of the device can accept. It
// runs before the rings, on a veth even on the sender's processor, so a flood of such packets
// uses up neither the entries of the rings nor the time of the receiving process.

const (
	// maxAdmitted is how many queue pairs the map holds: twice the default limit of
	// connections of a device. With more queue pairs early drop stops.
	maxAdmitted = 1 << 17

	// madShares is how many groups of sources share the rate of management datagrams: 2 to
	// the power of madShareBits.
	madShareBits = 6
	madShares    = 1 << madShareBits

	// busyHold is the time that is added to the limit's time for which a connection counts as
	// transferring data. A connection that loses its packets in a flood sends none until its
	// ACK timer expires; if it counted as idle, the flood would get the higher rate just
	// then. busyHold is longer than a tick of the kernel's clock, because the program notes
	// once a tick that data packets came.
	busyHold = 250 * time.Millisecond

	xdpDrop = 1
)

// Offsets in the value of the map of the configuration, in bytes.
const (
	configOn      = 0
	configSeed    = 8
	configBusyFor = 16
	configIdle    = 24 // gap, burst
	configBusy    = 40
	configLen     = 56
)

// Offsets in the value of the map of the limiter's state. The fields that data packets read
// are in a cache line of their own.
const (
	stateDataTick = 0 // tick of the kernel's clock in which a data packet came last
	stateDataAt   = 8 // time of the first one in that tick
	stateIdle     = 64
	stateBusy     = stateIdle + stateRate
	stateRate     = 8 + 8*madShares // bytes of a rate: the time until which it is used up, then that time for each share
	stateLen      = stateBusy + stateRate
)

// Offsets in the value of the map of counters: one for each reason.
const (
	dropMalformed = 8 * iota
	dropNoQP
	dropWrongPeer
	dropNoReceive
	dropMADFlood
	dropsLen
)

// earlyDrop is the part of the filter that checks queue pairs. It implements
// link.Filter.
type earlyDrop struct {
	qps    *ebpf.Map // queue pair number → source address, IPv4 mapped; zero: any
	config *ebpf.Map // one entry: offsets config…
	state  *ebpf.Map // one entry: offsets state…
	drops  *ebpf.Map // one entry for each processor: offsets drop…

	mu     sync.Mutex
	value  [configLen]byte // of config
	status earlyStatus
	last   link.FilterDrops // as of the time when the maps were closed
}

// earlyStatus is the state of early drop. The value never decreases.
type earlyStatus uint8

const (
	earlyUnused  earlyStatus = iota // the program takes packets to every queue pair
	earlyOn                         //
	earlyStopped                    // off until the Ports are closed: the map was full
	earlyClosed                     // the Ports are closed
)

// load makes the maps.
func (e *earlyDrop) load() error {
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&e.qps, ebpf.MapSpec{Name: "roce_qps", Type: ebpf.Hash, KeySize: 4, ValueSize: 16, MaxEntries: maxAdmitted, Flags: unix.BPF_F_NO_PREALLOC}},
		{&e.config, ebpf.MapSpec{Name: "roce_config", Type: ebpf.Array, KeySize: 4, ValueSize: configLen, MaxEntries: 1}},
		{&e.state, ebpf.MapSpec{Name: "roce_limits", Type: ebpf.Array, KeySize: 4, ValueSize: stateLen, MaxEntries: 1}},
		{&e.drops, ebpf.MapSpec{Name: "roce_drops", Type: ebpf.PerCPUArray, KeySize: 4, ValueSize: dropsLen, MaxEntries: 1}},
	} {
		var err error
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return err
		}
	}
	return nil
}

// close closes the maps. The program keeps them as long as it is attached.
func (e *earlyDrop) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.last, e.status = e.count(), earlyClosed
	for _, m := range []*ebpf.Map{e.qps, e.config, e.state, e.drops} {
		m.Close() // a nil map has nothing to close
	}
}

// Filter implements link.Filterer.
func (p *Port) Filter(l link.MADLimit) (link.Filter, error) {
	if !p.gate.Enter() {
		return nil, link.ErrClosed
	}
	defer p.gate.Leave()
	e := &p.card.filter.early
	if err := e.start(l); err != nil {
		return nil, p.card.failedStep("early drop", err)
	}
	return e, nil
}

// start makes the program drop early.
func (e *earlyDrop) start(l link.MADLimit) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status != earlyUnused {
		return errors.New("early drop was started before")
	}
	set := func(at int, v uint64) { binary.NativeEndian.PutUint64(e.value[at:], v) }
	set(configOn, 1)
	set(configSeed, rand.Uint64()|1)
	set(configBusyFor, uint64(l.BusyFor+busyHold))
	for at, r := range map[int]link.MADRate{configIdle: l.Idle, configBusy: l.Busy} {
		set(at, uint64(r.Gap))
		set(at+8, uint64(r.Burst))
	}
	if err := e.config.Put(uint32(0), e.value[:]); err != nil {
		return err
	}
	e.status = earlyOn
	return nil
}

// Admit implements link.Filter.
func (e *earlyDrop) Admit(n bth.QPN, from bth.GID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status != earlyOn || e.qps.Put(uint32(n), [16]byte(from)) == nil {
		return
	}
	// The map is full. From now on every packet passes.
	binary.NativeEndian.PutUint64(e.value[configOn:], 0)
	e.config.Put(uint32(0), e.value[:])
	e.status = earlyStopped
}

// paused is the source address that the map holds for a paused queue pair. No
// packet has it.
var paused = [16]byte{0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF}

// Pause implements link.Filter.
func (e *earlyDrop) Pause(n bth.QPN) { e.Admit(n, paused) }

// Forget implements link.Filter.
func (e *earlyDrop) Forget(n bth.QPN) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status == earlyOn {
		e.qps.Delete(uint32(n))
	}
}

// Drops implements link.Filter.
func (e *earlyDrop) Drops() link.FilterDrops {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.status == earlyClosed {
		return e.last
	}
	return e.count()
}

// count adds up the counters of all processors. The caller holds the lock.
func (e *earlyDrop) count() (d link.FilterDrops) {
	var each [][dropsLen]byte
	if e.drops == nil || e.drops.Lookup(uint32(0), &each) != nil {
		return e.last
	}
	for i := range each {
		get := func(at int) uint64 { return binary.NativeEndian.Uint64(each[i][at:]) }
		d.Malformed += get(dropMalformed)
		d.NoQP += get(dropNoQP)
		d.WrongPeer += get(dropWrongPeer)
		d.NoReceive += get(dropNoReceive)
		d.MADFlood += get(dropMADFlood)
	}
	return d
}

// mode returns the part of Info().Mode about early drop.
func (e *earlyDrop) mode() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return [...]string{earlyOn: ", early drop", earlyStopped: ", early drop stopped", earlyClosed: ""}[e.status]
}

// Labels of the program that early drop jumps to.
const (
	labelPass     = "pass"
	labelLookup   = "lookup"
	labelRedirect = "redirect"
)

// code is the part of the program after the check of the addresses. It begins with the IP header
// in R6, the end of the frame in R8 and the context in R9. It jumps to the redirection or drops
// the frame.
func (e *earlyDrop) code() asm.Instructions {
	const (
		source = -32 // on the stack: the source address, IPv4 mapped
		key    = -40 // and the key of a map
		ipv6   = "early-ipv6"
		bthAt  = "early-bth"
		mad    = "early-mad"
		busy   = "early-busy"
		admit  = "early-admit"
		count  = "early-count"
		done   = "early-done"

		malformed = "early-malformed"
		noQP      = "early-no-qp"
		wrongPeer = "early-wrong-peer"
		noReceive = "early-no-receive"
		madFlood  = "early-mad-flood"
	)
	var c asm.Instructions
	one := func(i ...asm.Instruction) { c = append(c, i...) }

	// The source address, and R7, the UDP payload.
	one(
		asm.LoadMapValue(asm.R1, e.config.FD(), configOn),
		asm.LoadMem(asm.R0, asm.R1, 0, asm.DWord),
		asm.JEq.Imm(asm.R0, 0, labelRedirect),
		asm.Mov.Reg(asm.R7, asm.R6),
		asm.LoadMem(asm.R0, asm.R6, 0, asm.Byte),
		asm.And.Imm(asm.R0, 0xF0),
		asm.JEq.Imm(asm.R0, 6<<4, ipv6),
	)
	one(copyIPv4(12, source)...)
	one(
		asm.Add.Imm(asm.R7, ipv4Len+udpLen),
		asm.Ja.Label(bthAt),
		asm.Mov.Reg(asm.R1, asm.R6).WithSymbol(ipv6),
		asm.Add.Imm(asm.R1, ipv6Len+udpLen),
		asm.JGT.Reg(asm.R1, asm.R8, labelPass), // for the verifier: not every path to here has checked it
	)
	one(copyIPv6(8, source)...)
	one(asm.Add.Imm(asm.R7, ipv6Len+udpLen))

	// The BTH. If the UDP length has room for a BTH, but the first piece of the frame does not
	// contain all of it, the program passes the frame to the receiver, which checks it.
	one(
		asm.LoadMem(asm.R0, asm.R7, -4, asm.Half).WithSymbol(bthAt),
		asm.HostTo(asm.BE, asm.R0, asm.Half),
		asm.JLT.Imm(asm.R0, udpLen+bth.BTHLen+bth.ICRCLen, malformed),
		asm.Mov.Reg(asm.R1, asm.R7),
		asm.Add.Imm(asm.R1, bth.BTHLen),
		asm.JGT.Reg(asm.R1, asm.R8, labelRedirect),
		asm.LoadMem(asm.R0, asm.R7, 1, asm.Byte),
		asm.And.Imm(asm.R0, 0x0F),
		asm.JNE.Imm(asm.R0, 0, malformed),
		asm.LoadMem(asm.R0, asm.R7, 4, asm.Word),
		asm.HostTo(asm.BE, asm.R0, asm.Word),
		asm.And.Imm(asm.R0, bth.PSNMask),
		asm.JEq.Imm(asm.R0, int32(bth.QPNGSI), mad),
	)

	// The queue pair, and its peer.
	one(
		asm.StoreMem(asm.R10, key, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, e.qps.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, noQP),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.LoadMem(asm.R2, asm.R0, 8, asm.DWord),
		asm.Mov.Reg(asm.R3, asm.R1),
		asm.Or.Reg(asm.R3, asm.R2),
		asm.JEq.Imm(asm.R3, 0, labelRedirect),
		asm.JEq.Imm(asm.R1, -1, noReceive),
		asm.LoadMem(asm.R3, asm.R10, source, asm.DWord),
		asm.JNE.Reg(asm.R1, asm.R3, wrongPeer),
		asm.LoadMem(asm.R3, asm.R10, source+8, asm.DWord),
		asm.JNE.Reg(asm.R2, asm.R3, wrongPeer),
		// A connection transfers data: note it once a tick.
		asm.FnJiffies64.Call(),
		asm.LoadMapValue(asm.R6, e.state.FD(), stateDataTick),
		asm.LoadMem(asm.R1, asm.R6, 0, asm.DWord),
		asm.JEq.Reg(asm.R0, asm.R1, labelRedirect),
		asm.StoreMem(asm.R6, 0, asm.R0, asm.DWord),
		asm.FnKtimeGetNs.Call(),
		asm.StoreMem(asm.R6, stateDataAt-stateDataTick, asm.R0, asm.DWord),
		asm.Ja.Label(labelRedirect),
	)

	// A management datagram: the same limiter as in internal/gsi, with a separate state for each of
	// the two rates. Other processors may run this code at the same time: a lost update lets one
	// more datagram pass, and no stored time is later than the present time plus a burst.
	//
	//	R6 now   R7 state of the rate   R3 gap   R4 burst   R5 time until which the rate is used up
	one(
		asm.FnKtimeGetNs.Call().WithSymbol(mad),
		asm.Mov.Reg(asm.R6, asm.R0),
		asm.LoadMapValue(asm.R8, e.config.FD(), 0),
		asm.LoadMapValue(asm.R1, e.state.FD(), stateDataTick),
		asm.LoadMem(asm.R1, asm.R1, stateDataAt, asm.DWord),
		asm.LoadMem(asm.R2, asm.R8, configBusyFor, asm.DWord),
		asm.Mov.Reg(asm.R0, asm.R6),
		asm.Sub.Reg(asm.R0, asm.R1),
		asm.LoadMapValue(asm.R7, e.state.FD(), stateBusy),
		asm.LoadMem(asm.R3, asm.R8, configBusy, asm.DWord),
		asm.LoadMem(asm.R4, asm.R8, configBusy+8, asm.DWord),
		asm.JEq.Imm(asm.R1, 0, "early-idle"),
		asm.JSLE.Reg(asm.R0, asm.R2, busy),
		asm.LoadMapValue(asm.R7, e.state.FD(), stateIdle).WithSymbol("early-idle"),
		asm.LoadMem(asm.R3, asm.R8, configIdle, asm.DWord),
		asm.LoadMem(asm.R4, asm.R8, configIdle+8, asm.DWord),

		asm.LoadMem(asm.R5, asm.R7, 0, asm.DWord).WithSymbol(busy),
		asm.JGE.Reg(asm.R5, asm.R6, "early-all"),
		asm.Mov.Reg(asm.R5, asm.R6),
		asm.Add.Reg(asm.R5, asm.R3).WithSymbol("early-all"),
		asm.Mov.Reg(asm.R2, asm.R5),
		asm.Sub.Reg(asm.R2, asm.R6),
		asm.JGT.Reg(asm.R2, asm.R4, madFlood),
		asm.RSh.Imm(asm.R4, 1),
		asm.JLE.Reg(asm.R2, asm.R4, admit),

		// The group of the source: by its first eight bytes, of IPv4 by the last.
		asm.LoadMem(asm.R2, asm.R10, source, asm.DWord),
		asm.JNE.Imm(asm.R2, 0, "early-group"),
		asm.LoadMem(asm.R2, asm.R10, source+8, asm.DWord),
		asm.LoadMem(asm.R0, asm.R8, configSeed, asm.DWord).WithSymbol("early-group"),
		asm.Mul.Reg(asm.R2, asm.R0),
		asm.Mov.Reg(asm.R1, asm.R2),
		asm.RSh.Imm(asm.R1, 32),
		asm.Xor.Reg(asm.R2, asm.R1),
		asm.Mul.Reg(asm.R2, asm.R0),
		asm.RSh.Imm(asm.R2, 64-madShareBits),
		asm.LSh.Imm(asm.R2, 3),
		asm.Add.Reg(asm.R2, asm.R7),
		asm.LoadMem(asm.R0, asm.R2, 8, asm.DWord),
		asm.JGE.Reg(asm.R0, asm.R6, "early-share"),
		asm.Mov.Reg(asm.R0, asm.R6),
		asm.LSh.Imm(asm.R3, madShareBits).WithSymbol("early-share"),
		asm.Add.Reg(asm.R0, asm.R3),
		asm.Mov.Reg(asm.R1, asm.R0),
		asm.Sub.Reg(asm.R1, asm.R6),
		asm.JGT.Reg(asm.R1, asm.R4, madFlood),
		asm.StoreMem(asm.R2, 8, asm.R0, asm.DWord),
		asm.StoreMem(asm.R7, 0, asm.R5, asm.DWord).WithSymbol(admit),
		asm.Ja.Label(labelRedirect),
	)

	// Drop and count.
	for _, d := range []struct {
		label string
		at    int32
	}{{malformed, dropMalformed}, {noQP, dropNoQP}, {wrongPeer, dropWrongPeer}, {noReceive, dropNoReceive}, {madFlood, dropMADFlood}} {
		one(asm.Mov.Imm(asm.R6, d.at).WithSymbol(d.label), asm.Ja.Label(count))
	}
	one(
		asm.Mov.Imm(asm.R0, 0).WithSymbol(count),
		asm.StoreMem(asm.R10, key, asm.R0, asm.Word),
		asm.LoadMapPtr(asm.R1, e.drops.FD()),
		asm.Mov.Reg(asm.R2, asm.R10),
		asm.Add.Imm(asm.R2, key),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, done),
		asm.Add.Reg(asm.R0, asm.R6),
		asm.LoadMem(asm.R1, asm.R0, 0, asm.DWord),
		asm.Add.Imm(asm.R1, 1),
		asm.StoreMem(asm.R0, 0, asm.R1, asm.DWord),
		asm.Mov.Imm(asm.R0, xdpDrop).WithSymbol(done),
		asm.Return(),
	)
	return c
}

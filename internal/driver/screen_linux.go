package driver

import (
	"encoding/binary"
	"slices"
	"sync"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/link"
)

// Screen drops packets early, for drivers whose sockets take classic BPF programs. These need no privilege. It
// implements link.FloodFilter.
//
// The program accepts packets from the peers of connected queue pairs, and packets to queue pairs that take them
// from every address. It sees only the first packet of a super-packet, and the others may be to other queue pairs.
// So it does not check that a peer's packet is to the queue pair of that peer. While there are queue pairs that
// take packets from every address, it also accepts packets to paused and closed queue pairs: their senders may not
// know that, and may send to both kinds in one super-packet. A sender to a queue pair that never existed is no peer.
//
// The kernel counts packets that a classic program drops as drops of the socket, or not at all, and each change
// needs a new program. So the program is attached only during a flood: for screenFirst after [Screen.Flooded],
// twice as long if the flood continues, and so on.
type Screen struct {
	count   *link.Counters
	install func(*Screened) error // attaches the program; nil: the sockets accept everything again

	mu      sync.Mutex
	accepts Screened
	on      bool
	closed  bool
	timer   *time.Timer   // detaches the program
	length  time.Duration // how long the program is attached
	ended   time.Time     // when the program was last detached
}

const (
	// maxProgram is the maximum length of a program in instructions. Linux permits 4096, but a change of a queue
	// pair must not take long.
	maxProgram = 1000

	screenFirst = time.Second
	screenMost  = time.Minute
	screenAgain = 5 * time.Second // a flood within this time continues the last one
)

// NewScreen returns the screen of a device. install attaches a program to all sockets of the device. The screen
// counts floods in count.
func NewScreen(count *link.Counters, install func(*Screened) error) *Screen {
	return &Screen{count: count, install: install, accepts: Screened{admitted: map[bth.QPN]peer{}, byAddress: map[bth.GID]peer{}}}
}

// Admit implements link.Filter.
func (s *Screen) Admit(n bth.QPN, from bth.GID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepts.admit(n, from) {
		s.attach()
	}
}

// Pause implements link.Filter.
func (s *Screen) Pause(n bth.QPN) { s.Forget(n) }

// Forget implements link.Filter.
func (s *Screen) Forget(n bth.QPN) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.accepts.forget(n) {
		s.attach()
	}
}

// Drops implements link.Filter. The drops that the kernel counts are among those of the Port.
func (s *Screen) Drops() link.FilterDrops { return link.FilterDrops{} }

// Flooded implements link.FloodFilter.
func (s *Screen) Flooded() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on || s.closed {
		return
	}
	if s.length == 0 || time.Since(s.ended) > screenAgain {
		s.length = screenFirst
	} else {
		s.length = min(2*s.length, screenMost)
	}
	s.on = true
	s.count.RxFloods.Add(1)
	s.attach()
	s.timer = time.AfterFunc(s.length, s.detach)
}

// attach attaches the program during a flood. It attaches none if the program would be too long, or if the kernel
// has no memory for it. The caller holds the lock.
func (s *Screen) attach() {
	if s.on {
		s.attachBy(s.install)
	}
}

// Change calls f, which changes what install attaches, with what the program accepts now, or nil if there is none, and
// must attach it. A nil Screen has no program.
func (s *Screen) Change(f func(*Screened) error) error {
	if s == nil {
		return f(nil)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attachBy(f)
}

// attachBy attaches the program, if there is one now, by f, or otherwise nil. The memory for the programs of a socket is
// limited (net.core.optmem_max), and the kernel keeps the old one until it has the new one. So if there is no room for both,
// install(nil) makes room first: before a screen there was room for it and the screen. The caller holds the lock.
func (s *Screen) attachBy(f func(*Screened) error) error {
	fits := s.on && s.accepts.size() <= maxProgram
	if fits && f(&s.accepts) == nil {
		return nil
	}
	if s.on {
		s.install(nil)
		if fits && f(&s.accepts) == nil {
			return nil
		}
	}
	return f(nil)
}

// detach removes the program.
func (s *Screen) detach() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.on {
		s.on, s.ended = false, time.Now()
		s.install(nil)
	}
}

// Close detaches the program for good. A nil Screen does nothing.
func (s *Screen) Close() {
	if s == nil {
		return
	}
	s.detach()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
}

// Screened lists the queue pairs and peers whose packets a Screen accepts. There may be many queue pairs and few
// peers, so a queue pair has the number of its peer, not the address.
type Screened struct {
	admitted  map[bth.QPN]peer
	open      int // how many of these queue pairs take packets from every address
	peers     []peerAddress
	byAddress map[bth.GID]peer
	unused    []peer    // free numbers of peers
	left      []bth.QPN // the last maxLeft paused or closed queue pairs, oldest first
}

// peer is a place in Screened.peers, plus 1. anyPeer stands for every address.
type peer uint32

const anyPeer peer = 0

// peerAddress is the address of a peer.
type peerAddress struct {
	addr  bth.GID
	users int // queue pairs with this peer; 0: the place is free
}

// maxLeft is how many paused or closed queue pairs a screen remembers. Each makes the program longer.
const maxLeft = 64

// admit adds a queue pair, or changes its source. It reports whether the set of accepted packets has changed.
func (s *Screened) admit(n bth.QPN, from bth.GID) (changed bool) {
	old, known := s.admitted[n]
	if known && s.address(old) == from {
		return false
	}
	if i := slices.Index(s.left, n); i >= 0 {
		s.left = slices.Delete(s.left, i, i+1)
	}
	p, fresh := s.retain(from)
	s.admitted[n] = p
	return known && s.release(old) || fresh
}

// forget removes a queue pair and reports whether the set of accepted packets has changed.
func (s *Screened) forget(n bth.QPN) (changed bool) {
	old, known := s.admitted[n]
	if !known {
		return false
	}
	delete(s.admitted, n)
	fewer := s.release(old)
	if len(s.left) == maxLeft {
		s.left = slices.Delete(s.left, 0, 1)
	}
	s.left = append(s.left, n)
	return fewer || s.open > 0
}

// address returns the address of a peer; zero: every address.
func (s *Screened) address(p peer) (addr bth.GID) {
	if p != anyPeer {
		addr = s.peers[p-1].addr
	}
	return addr
}

// retain counts one more queue pair of a source, and reports whether more packets are accepted.
func (s *Screened) retain(from bth.GID) (p peer, more bool) {
	if from == (bth.GID{}) {
		s.open++
		return anyPeer, true
	}
	p = s.byAddress[from]
	if p == anyPeer {
		if k := len(s.unused); k > 0 {
			p, s.unused = s.unused[k-1], s.unused[:k-1]
		} else {
			s.peers = append(s.peers, peerAddress{})
			p = peer(len(s.peers))
		}
		s.peers[p-1].addr, s.byAddress[from] = from, p
	}
	s.peers[p-1].users++
	return p, s.peers[p-1].users == 1
}

// release counts one queue pair less, and reports whether fewer packets are accepted.
func (s *Screened) release(p peer) (fewer bool) {
	if p == anyPeer {
		s.open--
		return true
	}
	a := &s.peers[p-1]
	if a.users--; a.users > 0 {
		return false
	}
	delete(s.byAddress, a.addr)
	s.unused = append(s.unused, p)
	return true
}

// openNumbers lists the queue pairs that get packets from every address: those that take such packets and, if
// there are any, the paused and closed ones.
func (s *Screened) openNumbers() (list []bth.QPN) {
	if s.open == 0 {
		return nil
	}
	for n, p := range s.admitted {
		if p == anyPeer {
			list = append(list, n)
		}
	}
	return append(list, s.left...)
}

// Instructions of the program.
const (
	netOff   = 0xFFF00000 // SKF_NET_OFF: offsets from the IP header on
	v4Source = netOff + 12
	v6Source = netOff + 8

	prologLen = 16 // at most, of Program
	openLen   = 2  // for a queue pair in open or left
	peerLen   = 9  // at most, for a peer
)

// size returns the maximum length of the program in instructions.
func (s *Screened) size() int {
	return prologLen + openLen*(s.open+len(s.left)) + peerLen*len(s.byAddress)
}

// Program returns the program. load loads the word of the BTH that ends with the destination
// queue pair. Packets to groups pass, and mads says whether those to queue pair 1 do.
func (s *Screened) Program(load bpf.Instruction, mads bool) []bpf.Instruction {
	accept, reject := bpf.RetConstant{Val: 1 << 18}, bpf.RetConstant{Val: 0}
	gsi := reject
	if mads {
		gsi = accept
	}
	mask := bpf.ALUOpConstant{Op: bpf.ALUOpAnd, Val: uint32(bth.QPNMulticast)}
	var v4, v6 []bpf.Instruction
	for from := range s.byAddress {
		if from.Is4() {
			v4 = append(v4, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(from[12:]), SkipTrue: 1}, accept)
			continue
		}
		for i := range uint32(4) {
			v6 = append(v6, bpf.LoadAbsolute{Off: v6Source + 4*i, Size: 4},
				bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: binary.BigEndian.Uint32(from[4*i:]), SkipTrue: uint8(7 - 2*i)})
		}
		v6 = append(v6, accept)
	}
	v4 = append([]bpf.Instruction{bpf.LoadAbsolute{Off: v4Source, Size: 4}}, v4...)
	p := slices.Concat([]bpf.Instruction{
		load, mask,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(bth.QPNGSI), SkipTrue: 1}, gsi,
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(bth.QPNMulticast), SkipTrue: 1}, accept,
		bpf.LoadExtension{Num: bpf.ExtProto},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.ETH_P_IP, SkipTrue: 1}, bpf.Jump{Skip: uint32(len(v4)) + 1},
	}, v4, []bpf.Instruction{bpf.Jump{Skip: uint32(len(v6))}}, v6, []bpf.Instruction{load, mask})
	for _, n := range s.openNumbers() {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(n), SkipTrue: 1}, accept)
	}
	return append(p, reject)
}

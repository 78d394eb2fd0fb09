package mr

import (
	"fmt"
	"strings"
)

// Access is a set of rights, with the values of enum ibv_access_flags.
type Access uint32

const (
	LocalWrite      Access = 1 << 0 // receives and READs may write here
	RemoteWrite     Access = 1 << 1 // needs LocalWrite
	RemoteRead      Access = 1 << 2
	RemoteAtomic    Access = 1 << 3 // needs LocalWrite
	MWBind          Access = 1 << 4 // windows may be bound to it
	ZeroBased       Access = 1 << 5 // remote addresses count from 0
	OnDemand        Access = 1 << 6 // not offered
	HugeTLB         Access = 1 << 7 // not offered
	FlushGlobal     Access = 1 << 8
	FlushPersistent Access = 1 << 9 // needs persistent memory
	RelaxedOrdering Access = 1 << 20

	// Watched is not a right of the verbs. It says that the program reads or
	// changes the memory while peers and the engine do. See the package
	// comment.
	Watched Access = 1 << 31

	// optional rights are hints that any device accepts (IBV_ACCESS_OPTIONAL_RANGE).
	optional    Access = 0x3FF << 20
	windowAcc   Access = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | ZeroBased | FlushGlobal | FlushPersistent | optional
	supported   Access = LocalWrite | RemoteWrite | RemoteRead | RemoteAtomic | MWBind | ZeroBased | FlushGlobal | FlushPersistent | optional
	unsupported Access = OnDemand | HugeTLB
)

// AllRemote are all rights that a region can grant a peer.
const AllRemote = RemoteWrite | RemoteRead | RemoteAtomic | FlushGlobal | FlushPersistent

var accessNames = [...]string{"LOCAL_WRITE", "REMOTE_WRITE", "REMOTE_READ", "REMOTE_ATOMIC", "MW_BIND", "ZERO_BASED", "ON_DEMAND",
	"HUGETLB", "FLUSH_GLOBAL", "FLUSH_PERSISTENT", 20: "RELAXED_ORDERING", 31: "WATCHED"}

// String lists the rights by their verbs names.
func (a Access) String() string {
	if a == 0 {
		return "0"
	}
	var s []string
	for i, n := range accessNames {
		if n != "" && a&(1<<i) != 0 {
			s = append(s, n)
			a &^= 1 << i
		}
	}
	if a != 0 {
		s = append(s, fmt.Sprintf("%#x", uint32(a)))
	}
	return strings.Join(s, "|")
}

// Fault is the reason why an access was refused. The zero value is no fault.
// It is a number and not an error because it selects the NAK or the status.
type Fault uint8

const (
	OK             Fault = iota
	BadKey               // no such key: never given, deregistered, invalidated, or an old variant
	BadPD                // of another protection domain
	BadAccess            // the right is not granted
	BadRange             // not inside the region
	BadQP                // a type 2 window of another queue pair
	NotInvalidable       // a user's region or a type 1 window: no work request invalidates it
	BadState             // wrong state for the operation: the window to bind is bound, or the region is VALID
	HasWindows           // windows are bound to the region
	Unmapped             // the program has unmapped foreign memory
)

var faultNames = [...]string{"OK", "bad key", "bad protection domain", "access right missing", "out of range", "bound to another queue pair", "not invalidatable",
	"wrong state", "windows are bound to it", "not mapped"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("Fault(%d)", uint8(f))
}

package share

import (
	"encoding/binary"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// groupFile names the group whose users may share an address with each other, as the group of a
// device node may use the device. An administrator writes it. Without it only processes of one
// user share.
var groupFile = "/etc/goroce/share-group"

// sharingGroup returns the group of groupFile. It ignores a file that users other than root can
// write.
func sharingGroup() (gid uint32, ok bool) {
	st, err := os.Stat(groupFile)
	if err != nil || st.Mode()&0o022 != 0 || st.Sys().(*syscall.Stat_t).Uid != 0 {
		return 0, false
	}
	text, err := os.ReadFile(groupFile)
	if err != nil {
		return 0, false
	}
	name := strings.TrimSpace(string(text))
	if g, err := user.LookupGroup(name); err == nil {
		name = g.Gid
	}
	n, err := strconv.ParseUint(name, 10, 32)
	return uint32(n), err == nil
}

// trusts reports whether this process shares with the process at the other end: both have the
// same user, or both are in the group that may share.
func (l *line) trusts() bool {
	me := self()
	if l.peer.Pid == me.Pid {
		return true
	}
	if !isUser(l.peer.Uid) {
		return false
	}
	if l.peer.Uid == me.Uid {
		return true
	}
	g, ok := sharingGroup()
	if !ok || !isGroup(g) {
		return false
	}
	mine, err := os.Getgroups()
	return err == nil && (me.Uid == 0 || me.Gid == g || slices.Contains(mine, int(g))) && (l.peer.Uid == 0 || l.peer.Gid == g || slices.Contains(l.peerGroups(), g))
}

// The user namespace of this process may not map some users and groups. The kernel shows all of
// these as one number, that of the user nobody. A process with that number may belong to any of
// them.
var (
	isUser  = certain("/proc/self/uid_map", "/proc/sys/kernel/overflowuid")
	isGroup = certain("/proc/self/gid_map", "/proc/sys/kernel/overflowgid")
)

// certain returns a function that reports whether a number belongs to a single user or group.
// The file idMap has the mapping of the namespace, the file overflow the number of all
// unmapped ones.
func certain(idMap, overflow string) func(id uint32) bool {
	read := sync.OnceValues(func() (others uint32, all bool) {
		known, _ := os.ReadFile(idMap) // on an error there are no user namespaces: all are mapped
		text, _ := os.ReadFile(overflow)
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
		if err != nil {
			n = 65534
		}
		f := strings.Fields(string(known))
		return uint32(n), len(f) == 0 || len(f) == 3 && f[2] == "4294967295"
	})
	return func(id uint32) bool {
		others, all := read()
		return all || id != others
	}
}

// peerGroups returns the supplementary groups of the process at the other end.
func (l *line) peerGroups() (groups []uint32) {
	raw, err := l.SyscallConn()
	if err != nil {
		return nil
	}
	raw.Control(func(fd uintptr) {
		const most = 65536 // NGROUPS_MAX
		b := make([]byte, 4*most)
		size := uint32(len(b))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS, uintptr(unsafe.Pointer(&b[0])), uintptr(unsafe.Pointer(&size)), 0)
		if errno != 0 {
			return
		}
		for b = b[:size]; len(b) >= 4; b = b[4:] {
			groups = append(groups, binary.NativeEndian.Uint32(b))
		}
	})
	return groups
}

// hasUser reports whether a process of a user has a slot.
func (b *board) hasUser(uid uint32) bool {
	for s := range Slot(Slots) {
		if b.owned(s) && b.pages[s].uid.Load() == uid {
			return true
		}
	}
	return false
}

package share

import (
	"bufio"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Any user can bind the name of a slot when its owner has died, before the keeper does. The keeper
// must not take this user for the owner: the slot would never become free, the peers of the dead
// process would not be told, and the user would receive the packets that other processes pass to
// the slot. So the board has the inode of the granted socket, and the kernel tells which socket has
// the name.

// strangerTime is the time after which another socket with the name counts as a stranger's. A
// keeper that cleans up enters its own socket in the board right after it has bound the name.
const strangerTime = 100 * time.Millisecond

// strangers are sockets with names of slots that are not the sockets in the
// board.
type strangers struct {
	since [Slots]int64 // on clock; 0: there is none
}

// find returns those of the given slots whose names strangers have. The slots have owners, and
// their names cannot be bound.
func (x *strangers) find(p *Place, slots []Slot) (strange []Slot) {
	names := map[Slot][]uint32{}
	p.ns.do(func() error { return slotInodes(p.config.Key, names) }) // on an error none is found
	for _, s := range slots {
		now := clock()
		switch list := names[s]; {
		case len(list) == 0 || slices.Contains(list, p.board.pages[s].inode.Load()):
			x.since[s] = 0
		case x.since[s] == 0:
			x.since[s] = now
		case now-x.since[s] >= int64(strangerTime):
			x.since[s] = 0
			strange = append(strange, s)
		}
	}
	return strange
}

// slotInodes adds the sockets that have the names of slots. A stranger can choose a name that
// looks like several lines of the kernel's list, so a slot may have several sockets.
func slotInodes(key string, names map[Slot][]uint32) error {
	f, err := os.Open(unixNames)
	if err != nil {
		return err
	}
	defer f.Close()
	prefix := fmt.Sprintf(" %s%s#", namePrefix, key)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		columns, slot, ok := strings.Cut(lines.Text(), prefix)
		f := strings.Fields(columns)
		if !ok || len(f) < 7 {
			continue
		}
		s, err := strconv.ParseUint(slot, 10, 8)
		inode, err2 := strconv.ParseUint(f[6], 10, 32)
		if err == nil && err2 == nil {
			names[Slot(s)] = append(names[Slot(s)], uint32(inode))
		}
	}
	return lines.Err()
}

// inodeOf returns the inode of a socket, 0 if there is none. Inode numbers of sockets have 32 bits.
func inodeOf(sock int) uint32 {
	var st unix.Stat_t
	if unix.Fstat(sock, &st) != nil {
		return 0
	}
	return uint32(st.Ino)
}

package share

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce/errs"
)

// listTime is the time that a keeper has to list the processes on its address. The keeper
// itself waits a shorter time for each process.
const listTime = 2 * time.Second

// maxForeign is how many sockets of one other user List asks, unless that user is root: a hostile user can make very
// many sockets.
const maxForeign = 64

// List returns the addresses of devices in the network namespace of the calling thread, and the processes on each. If
// the keeper or owner of an address does not answer, List returns only that process, as the kernel knows it, and the
// reason. To other users, keepers and owners list the processes without their reports. detail also requests the queue
// pairs; processes of older versions, or with a keeper of an older version, do not report them.
func List(detail bool) ([]Address, error) {
	// Names and connections belong to the namespace of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	names, err := tellers()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []Address
	var asking sync.WaitGroup
	foreign := map[uint32]int{} // sockets by user
	failed, me := 0, self().Uid
	for _, name := range names {
		key, exclusive := strings.CutPrefix(name, ownerPrefix)
		if exclusive {
			key, _, _ = strings.Cut(key, "+") // behind it is the number of a further owner
		} else {
			key = strings.TrimPrefix(name, namePrefix)
		}
		l, err := dial(name)
		if errors.Is(err, errNoKeeper) {
			continue // it has left
		}
		if err != nil {
			if failed++; failed > maxForeign {
				continue
			}
		} else if user := l.peer.Uid; user != 0 && user != me {
			if foreign[user]++; foreign[user] > maxForeign {
				if l.Close(); foreign[user] == maxForeign+1 {
					a := Address{Key: key, Exclusive: exclusive, Error: fmt.Sprintf("user %d has more than %d addresses: the others are not asked", user, maxForeign)}
					mu.Lock()
					all = append(all, a)
					mu.Unlock()
				}
				continue
			}
		}
		asking.Go(func() {
			a := Address{Key: key, Exclusive: exclusive}
			if err == nil {
				a.Members, err = l.list(detail)
				a.Members = l.known(a.Members, exclusive)
				l.Close()
			}
			if err != nil {
				a.Error = explain(err, exclusive)
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, a)
		})
	}
	asking.Wait()
	slices.SortFunc(all, func(a, b Address) int { return strings.Compare(a.Key, b.Key) })
	return all, nil
}

// explain says why a keeper or an owner did not answer.
func explain(err error, exclusive bool) string {
	who := "the keeper does not answer: "
	if exclusive {
		who = "the process that has it for itself does not answer: "
	}
	if isTimeout(err) || errors.Is(err, syscall.EAGAIN) {
		return who + "is it stopped?"
	}
	return who + err.Error()
}

// list asks the keeper or owner at the other end of a new line for the processes on its address. On an error it
// returns only the keeper or owner.
func (l *line) list(detail bool) ([]Member, error) {
	keeper := []Member{{PID: int(l.peer.Pid), UID: int(l.peer.Uid), Keeper: true}}
	if err := l.send(message{Op: opList, Seq: 1, Detail: detail}); err != nil {
		return keeper, err
	}
	l.SetReadDeadline(time.Now().Add(listTime))
	m, err := l.receiveText()
	if err == nil {
		err = m.err()
	}
	if err == nil && (m.Op != opList || len(m.Members) == 0) {
		err = syscall.EPROTO
	}
	if err != nil {
		return keeper, err
	}
	return m.Members, nil
}

// known replaces the PID and UID that the process at the other end reports for itself by those that the kernel knows:
// the process may be hostile, or have another PID in its namespace. It ignores what an owner reports about other
// processes.
func (l *line) known(members []Member, exclusive bool) []Member {
	if exclusive && len(members) > 1 {
		members = members[:1]
	}
	keeper := false
	for i := range members {
		m := &members[i]
		if m.Keeper = (m.Keeper || exclusive) && !keeper; m.Keeper {
			m.PID, m.UID = int(l.peer.Pid), int(l.peer.Uid)
			keeper, m.Keeper = true, !exclusive
		}
	}
	return members
}

// unixNames has the Unix sockets of the namespace of the calling thread.
const unixNames = "/proc/thread-self/net/unix"

// tellers returns the names of the sockets of all keepers and owners.
func tellers() (names []string, err error) {
	f, err := os.Open(unixNames)
	if err != nil {
		return nil, errs.New("list", err, "names of the processes that hand out places")
	}
	defer f.Close()
	seen := map[string]bool{}
	for s := bufio.NewScanner(f); ; {
		if !s.Scan() {
			return names, s.Err()
		}
		if name, ok := tellerOf(s.Text()); ok && !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
}

// tellerOf returns the name in a line of the kernel's list of Unix sockets, if the line is a keeper's or an owner's
// socket: one that accepts connections. The columns are number, references, protocol, flags, type,
// state, inode and name.
func tellerOf(line string) (name string, ok bool) {
	const accepts = "00010000"
	f := strings.Fields(line)
	if len(f) < 8 || f[3] != accepts {
		return "", false
	}
	for _, prefix := range []string{namePrefix, ownerPrefix} {
		if _, key, found := strings.Cut(line, " "+prefix); found && key != "" {
			return prefix + key, true
		}
	}
	return "", false
}

// dial connects to the socket of a keeper or an owner, of any user.
func dial(name string) (*line, error) {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: name})
	if err != nil {
		if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ENOENT) {
			return nil, errNoKeeper
		}
		return nil, err
	}
	l, err := newLine(c)
	if err != nil {
		c.Close()
	}
	return l, err
}

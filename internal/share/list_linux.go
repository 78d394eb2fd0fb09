package share

import (
	"bufio"
	"errors"
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

// List returns the shared addresses in the network namespace of the calling thread, with the
// processes on each. If the keeper of an address does not answer, List returns the keeper, which the
// kernel knows, and the reason. A keeper lists the processes for any user, but their reports only
// for its own. detail also asks for their queue pairs; processes of older versions, and those whose
// keeper has an older version, do not report them.
func List(detail bool) ([]Address, error) {
	// Names and connections belong to the namespace of the thread.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	keys, err := sharedKeys()
	if err != nil {
		return nil, err
	}
	var mu sync.Mutex
	var all []Address
	var asking sync.WaitGroup
	for _, key := range keys {
		l, err := dial(key)
		if errors.Is(err, errNoKeeper) {
			continue // it has left
		}
		asking.Go(func() {
			a := Address{Key: key}
			if err == nil {
				a.Members, err = l.list(detail)
				l.Close()
			}
			if err != nil {
				a.Error = explain(err)
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

// explain describes why a keeper did not answer.
func explain(err error) string {
	if isTimeout(err) || errors.Is(err, syscall.EAGAIN) {
		return "the keeper does not answer: is it stopped?"
	}
	return "the keeper does not answer: " + err.Error()
}

// list asks the keeper at the other end of a new line for the processes on its address. If
// that fails, it returns the keeper alone.
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

// unixNames has the Unix sockets of the namespace of the calling thread.
const unixNames = "/proc/thread-self/net/unix"

// sharedKeys returns the keys of all keepers.
func sharedKeys() (keys []string, err error) {
	f, err := os.Open(unixNames)
	if err != nil {
		return nil, errs.New("list", err, "names of the processes that hand out places")
	}
	defer f.Close()
	for s := bufio.NewScanner(f); ; {
		if !s.Scan() {
			return keys, s.Err()
		}
		if key, ok := keyOf(s.Text()); ok && !slices.Contains(keys, key) {
			keys = append(keys, key)
		}
	}
}

// keyOf returns the key in a line of the kernel's list of Unix sockets, if the line is a keeper's
// socket: one that accepts connections. The columns are number, references, protocol, flags, type,
// state, inode and name.
func keyOf(line string) (key string, ok bool) {
	const accepts = "00010000"
	f := strings.Fields(line)
	if len(f) < 8 || f[3] != accepts {
		return "", false
	}
	_, key, ok = strings.Cut(line, " "+namePrefix)
	return key, ok && key != ""
}

// dial connects to the keeper of an address, of any user.
func dial(key string) (*line, error) {
	c, err := net.DialUnix("unixpacket", nil, keeperName(key))
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

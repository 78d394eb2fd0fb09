// Package scarce makes resources of the system scarce in tests, to check that a failed open leaves nothing open. It
// needs Linux.
package scarce

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/sockfilter"
)

// most is the maximum number of descriptors of a tested object.
const most = 200

// descriptors returns the open file descriptors, in order.
func descriptors(t testing.TB) []int {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	var fds []int
	for _, e := range dir {
		n, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if _, err := unix.FcntlInt(uintptr(n), unix.F_GETFD, 0); err == nil { // skips the descriptor of the directory
			fds = append(fds, n)
		}
	}
	slices.Sort(fds)
	return fds
}

// settled waits until at most want descriptors are open, and returns them: finalizers and the kernel close some a
// little later.
func settled(t testing.TB, want int) []int {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		fds := descriptors(t)
		if len(fds) <= want || time.Now().After(deadline) {
			return fds
		}
	}
}

// Descriptors calls open with room for no descriptor, then for one, for two, and so on, until open succeeds. Each time
// open fails it must leave no descriptor open.
func Descriptors(t testing.TB, open func() (io.Closer, error)) {
	t.Helper()
	first, err := open() // opens descriptors that stay open after the first use
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	before := descriptors(t)
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	failed := 0
	for room := range most {
		low := limit
		low.Cur = limitFor(before, room)
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
			t.Fatal(err)
		}
		c, err := open()
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
			t.Fatal(err)
		}
		if err == nil {
			c.Close()
		} else {
			failed++
		}
		if after := settled(t, len(before)); len(after) > len(before) {
			t.Errorf("with room for %d descriptors (%v): %v are open, before %v", room, err, after, before)
			before = after
		}
		if err == nil {
			if failed == 0 {
				t.Error("it needs no descriptor")
			}
			return
		}
	}
	t.Errorf("it has more than %d descriptors", most)
}

// limitFor returns the limit that lets the process open room more descriptors, if it has those in open.
func limitFor(open []int, room int) uint64 {
	n := 0
	for free := 0; ; n++ {
		if !slices.Contains(open, n) {
			if free == room {
				return uint64(n)
			}
			free++
		}
	}
}

// Call is a system call that fails if its first argument is Arg0-1 (any if Arg0 is 0), and its second and third
// arguments are Arg1 and Arg2 (any if negative).
type Call struct {
	Name             string
	Number           uintptr
	Arg0, Arg1, Arg2 int
	Errno            unix.Errno
}

// Calls calls open once for each of the calls, on a thread in which that call fails. If open fails, it must leave no
// descriptor open; otherwise Close must leave none. in prepares the thread.
func Calls(t testing.TB, calls []Call, in func(func()), open func() (io.Closer, error)) (failed map[string]error) {
	t.Helper()
	failed = make(map[string]error)
	before := descriptors(t)
	for _, call := range calls {
		without(t, call, in, func() {
			c, err := open()
			if err == nil {
				c.Close()
			}
			failed[call.Name] = err
		})
		if after := settled(t, len(before)); len(after) > len(before) {
			t.Errorf("without %s (%v): %d descriptors are open, before %d", call.Name, failed[call.Name], len(after), len(before))
			before = after
		}
	}
	return failed
}

// Without calls f on a thread in which a system call fails. in prepares the thread, as in [Calls]. It skips the test where
// the call cannot be made to fail.
func Without(t testing.TB, call Call, in func(func()), f func()) {
	t.Helper()
	if runtime.GOARCH == "386" {
		t.Skip("on 386 calls of sockets are socketcall(2), whose arguments seccomp does not see")
	}
	without(t, call, in, f)
}

func without(t testing.TB, call Call, in func(func()), f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		in(func() {
			if err := deny(call); err != nil {
				t.Errorf("seccomp: %v", err)
				return
			}
			f()
		})
	}()
	<-done
}

// Opens tests an open that binds sockets and waits for them: nothing may stay open if there are too few descriptors, or
// if one of its system calls is not permitted. more lists calls that only this open makes. in is as in [Calls].
func Opens(t testing.TB, more []Call, in func(func()), open func() (io.Closer, error)) {
	t.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // no finalizer closes leaked descriptors
	in(func() { Descriptors(t, open) })
	for _, c := range []struct {
		name   string
		number uintptr
	}{{"bind", unix.SYS_BIND}, {"ioctl", unix.SYS_IOCTL}, {"epoll_create1", unix.SYS_EPOLL_CREATE1}, {"epoll_ctl", unix.SYS_EPOLL_CTL},
		{"eventfd2", unix.SYS_EVENTFD2}, {"getsockopt", unix.SYS_GETSOCKOPT}, {"sendmsg", unix.SYS_SENDMSG}, {"recvmsg", unix.SYS_RECVMSG},
		{"memfd_create", unix.SYS_MEMFD_CREATE}} {
		more = append(more, Call{Name: c.name, Number: c.number, Arg1: -1, Arg2: -1, Errno: unix.EPERM})
	}
	Calls(t, more, in, open)
}

// Setsockopts returns the calls of setsockopt with one of the options at one of the levels.
func Setsockopts(levels, options []int) (calls []Call) {
	for _, level := range levels {
		for _, option := range options {
			calls = append(calls, Call{Name: fmt.Sprintf("setsockopt %d %d", level, option), Number: unix.SYS_SETSOCKOPT, Arg1: level, Arg2: option, Errno: unix.EPERM})
		}
	}
	return calls
}

// deny makes a call fail in this thread until the thread ends.
func deny(c Call) error {
	const number, first = 0, 16 // struct seccomp_data
	ins := []bpf.Instruction{
		bpf.LoadAbsolute{Off: number, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(c.Number), SkipTrue: 1},
		bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW},
	}
	for i, v := range []int{c.Arg0 - 1, c.Arg1, c.Arg2} {
		if v >= 0 {
			ins = append(ins, bpf.LoadAbsolute{Off: uint32(first + 8*i), Size: 4},
				bpf.JumpIf{Cond: bpf.JumpEqual, Val: uint32(v), SkipTrue: 1},
				bpf.RetConstant{Val: unix.SECCOMP_RET_ALLOW})
		}
	}
	ins = append(ins, bpf.RetConstant{Val: unix.SECCOMP_RET_ERRNO | uint32(c.Errno)})
	prog, err := sockfilter.Assemble(ins)
	if err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

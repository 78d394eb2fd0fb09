package share

import (
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// namespace is a network namespace. Names of abstract sockets belong to a namespace, and a
// socket belongs to the namespace of the thread that makes it. So a later keeper must make
// its sockets in the namespace in which the device was opened, on any thread.
type namespace struct{ file *os.File }

const threadNamespace = "/proc/thread-self/ns/net"

// currentNamespace returns the namespace of the calling thread.
func currentNamespace() (namespace, error) {
	f, err := os.Open(threadNamespace)
	return namespace{f}, err
}

func (n namespace) close() { n.file.Close() }

// is reports whether the calling thread is in the namespace.
func (n namespace) is() bool {
	var here, there unix.Stat_t
	return unix.Stat(threadNamespace, &here) == nil && unix.Fstat(int(n.file.Fd()), &there) == nil && here.Ino == there.Ino
}

// do runs f in the namespace.
func (n namespace) do(f func() error) error {
	runtime.LockOSThread()
	if n.is() {
		defer runtime.UnlockOSThread()
		return f()
	}
	back, err := os.Open(threadNamespace)
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer back.Close()
	if err := unix.Setns(int(n.file.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	err = f()
	if unix.Setns(int(back.Fd()), unix.CLONE_NEWNET) == nil {
		runtime.UnlockOSThread() // otherwise the runtime ends the thread with the goroutine
	}
	return err
}

package share

import (
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// dialAs connects to a keeper, but sends nothing.
func dialAs(t *testing.T, k string) *line {
	t.Helper()
	l, err := dialKeeper(k)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// descriptors returns the number of open descriptors of this process.
func descriptors(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// write writes a message that may be empty, to which package net would add a byte.
func write(l *line, text, rights []byte) error {
	if len(text) > 0 {
		_, _, err := l.WriteMsgUnix(text, rights, nil)
		return err
	}
	raw, err := l.SyscallConn()
	if err != nil {
		return err
	}
	h := unix.Msghdr{Control: &rights[0]}
	h.SetControllen(len(rights))
	var errno unix.Errno
	err = raw.Control(func(fd uintptr) { _, _, errno = unix.Syscall(unix.SYS_SENDMSG, fd, uintptr(unsafe.Pointer(&h)), 0) })
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

// The keeper refuses a process with another version, with an error that names both versions.
func TestVersions(t *testing.T) {
	k := key(t)
	join(t, k, 1, new(fakeMedium))
	l := dialAs(t, k)
	if err := l.send(message{Op: opJoin, Protocol: protocol + 1, Version: "v7.8.9", Want: 1}); err != nil {
		t.Fatal(err)
	}
	m, files, err := l.receive()
	if err != nil || len(files) != 0 {
		t.Fatal(files, err)
	}
	for _, want := range []string{"v7.8.9", fmt.Sprintf("protocol %d)", protocol+1), moduleVersion(), fmt.Sprintf("protocol %d,", protocol), fmt.Sprintf("process %d", os.Getpid())} {
		if err := m.err(); err == nil || m.Errno != syscall.EADDRINUSE || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
}

// Messages that violate the protocol cost the keeper only the connection on which they arrive.
func TestGarbage(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	a := join(t, k, 1, d)
	b := join(t, k, 1, d)
	before := descriptors(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	rights := unix.UnixRights(int(null.Fd()), int(null.Fd()), int(null.Fd()))
	long := []byte(fmt.Sprintf(`{"op":"join","protocol":%d,"want":1,"version":%q}`, protocol, strings.Repeat("x", maxMessage)))
	for _, text := range []string{"", "{", "null", `{"op":"dance"}`, `{"op":"ready"}`, `{"op":"claim","service":99}`, string(long),
		fmt.Sprintf(`{"op":"join","protocol":%d,"want":0}`, protocol), fmt.Sprintf(`{"op":"join","protocol":%d,"want":1000}`, protocol),
		fmt.Sprintf(`{"op":"back","protocol":%d,"slots":[%d]}`, protocol, a.Slots()[0]), fmt.Sprintf(`{"op":"back","protocol":%d,"slots":[%d]}`, protocol, b.Slots()[0]),
		fmt.Sprintf(`{"op":"back","protocol":%d,"slots":[255]}`, protocol)} {
		l := dialAs(t, k)
		l.SetWriteBuffer(1 << 20)
		if err := write(l, []byte(text), rights); err != nil {
			t.Fatalf("%.40s: %v", text, err)
		}
		if m, files, err := l.receive(); err == nil && (m.Op != opRefuse || len(files) > 0) {
			t.Errorf("%.40s: answer %+v with %d descriptors", text, m, len(files))
		}
		l.Close()
	}
	from, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(from)
	for _, data := range []string{"", "x", "\xff\xff\xff", "\x00\x05\x02hello", "\x00\x01\x02\x00", strings.Repeat("\x00\x00\x03", 9999)} {
		if err := unix.Sendmsg(from, []byte(data), rights, slotName(k, b.Slots()[0]), 0); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Receive(func(*Packet) {}); err != nil {
		t.Fatal(err)
	}
	if err := b.Claim(77); err != nil {
		t.Error(err)
	}
	join(t, k, 1, d).Close()
	eventually(t, "all descriptors are closed", func() bool { return descriptors(t) <= before+3 }) // null, from and that of Receive
}

// If a process dies between the grant of slots and its answer, its slots become free, also if the
// keeper dies at the same time.
func TestDiesWhileJoining(t *testing.T) {
	d := new(fakeMedium)
	for _, keeperDies := range []bool{false, true} {
		k := fmt.Sprint(key(t), keeperDies)
		a, b := join(t, k, 1, d), join(t, k, 1, d)
		l := dialAs(t, k)
		if err := l.send(message{Op: opJoin, Protocol: protocol, Want: 3}); err != nil {
			t.Fatal(err)
		}
		m, files, err := l.receive()
		if err != nil || len(m.Slots) != 3 || len(files) != 5 {
			t.Fatal(m, files, err)
		}
		free := func() (n int) {
			for _, s := range m.Slots {
				if !b.board.owned(s) {
					n++
				}
			}
			return n
		}
		if keeperDies {
			a.Close()
			eventually(t, "another keeper", func() bool { b.mu.Lock(); defer b.mu.Unlock(); return b.keeper != nil })
		}
		l.Close()
		if free() != 0 {
			t.Error("slots are free whose names are bound")
		}
		closeAll(files)
		eventually(t, "the slots are free", func() bool { return free() == 3 })
	}
}

// If the keeper leaves before it has answered, the joining process tries again.
func TestKeeperDiesInJoin(t *testing.T) {
	k := key(t)
	l, err := net.ListenUnix("unixpacket", keeperName(k))
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for i := range 3 {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			if i > 0 {
				c.Read(make([]byte, 1000))
			}
			c.Close()
		}
		l.Close()
	}()
	join(t, k, 1, new(fakeMedium))
}

// Close ends the calls in progress, and later calls do not access the memory of the Place.
func TestUseAfterClose(t *testing.T) {
	d := new(fakeMedium)
	k := key(t)
	for _, first := range []bool{true, false} {
		var keeper *Place
		if !first {
			keeper = join(t, k, 1, d)
		}
		p := join(t, k, 1, d)
		h := p.Connected(Conn{LocalID: 1})
		var wg sync.WaitGroup
		for id := range uint64(4) {
			wg.Go(func() {
				for p.Claim(100+id) == nil {
					p.Drop(100 + id)
				}
			})
		}
		if err := p.Close(); err != nil {
			t.Error(err)
		}
		wg.Wait()
		p.Drop(5)
		p.Disconnected(&h)
		h = p.Connected(Conn{LocalID: 2})
		p.Disconnected(&h)
		if err := p.Claim(5); err == nil {
			t.Error("Claim on a closed Place succeeds")
		}
		if keeper != nil {
			keeper.Close()
		}
	}
}

package share

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// says makes a socket that answers each question with a text.
func says(t *testing.T, name *net.UnixAddr, text string) {
	t.Helper()
	l, err := net.ListenUnix("unixpacket", name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c.Read(make([]byte, maxMessage))
			c.Write([]byte(text))
			c.Close()
		}
	}()
}

// TestListPretender: List takes the PID and UID of a keeper or owner from the kernel, not from its answer, and ignores
// what an owner reports about other processes.
func TestListPretender(t *testing.T) {
	const lies = `{"op":"list","seq":1,"members":[{"pid":1,"uid":4,"keeper":true,"report":{"queue_pairs":3}},{"pid":2,"uid":5,"keeper":true},{"pid":3,"uid":6}]}`
	k := key(t)
	says(t, ownerName(k), lies)
	says(t, keeperName(k), lies)
	all, err := List(true)
	if err != nil {
		t.Fatal(err)
	}
	me, found := self(), 0
	for _, a := range all {
		if a.Key != k {
			continue
		}
		found++
		want := 3
		if a.Exclusive {
			want = 1
		}
		if len(a.Members) != want || a.Error != "" {
			t.Fatalf("%+v", a)
		}
		for i, m := range a.Members {
			if real := m.PID == int(me.Pid) && m.UID == int(me.Uid); real != (i == 0) || m.Keeper != (i == 0 && !a.Exclusive) {
				t.Errorf("exclusive %v: member %d is %+v", a.Exclusive, i, m)
			}
		}
	}
	if found != 2 {
		t.Errorf("%d addresses", found)
	}
}

// TestListFlood: if another user makes very many sockets, List asks only a few of them, and still lists the addresses
// of other users.
func TestListFlood(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to become another user")
	}
	k := key(t)
	o, err := Occupy(k + "mine")
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	const user, many = 54321, 3 * maxForeign
	made := make(chan error)
	var listeners []*net.UnixListener
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which has another user, ends with the goroutine
		if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, user, user, user); e != 0 {
			made <- e
			return
		}
		for i := range many {
			l, err := net.ListenUnix("unixpacket", ownerName(fmt.Sprint(k, i)))
			if err != nil {
				made <- err
				return
			}
			listeners = append(listeners, l)
		}
		made <- nil
	}()
	err = <-made
	defer func() {
		for _, l := range listeners {
			l.Close()
		}
	}()
	if err != nil {
		t.Fatal(err)
	}
	all, err := List(false)
	if err != nil {
		t.Fatal(err)
	}
	foreign, mine := 0, false
	for _, a := range all {
		if a.Key == k+"mine" {
			mine = a.Error == "" && len(a.Members) == 1
			continue
		}
		if len(a.Key) > len(k) && a.Key[:len(k)] == k {
			foreign++
		}
	}
	if !mine || foreign != maxForeign+1 {
		t.Errorf("mine is listed: %v; %d of the other user", mine, foreign)
	}
}

package mmsg

import (
	"testing"

	"golang.org/x/sys/unix"
)

// After polls that find nothing a Receiver requests one message, gets it whole, and then requests many again.
func TestReceive(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[0])
	defer unix.Close(fds[1])

	var r Receiver
	var msgs [8]unix.Mmsghdr
	var iov [8]unix.Iovec
	room := make([]byte, 8*16)
	for i := range msgs {
		iov[i].Base = &room[16*i]
		iov[i].SetLen(16)
		msgs[i].Hdr.Iov = &iov[i]
		msgs[i].Hdr.SetIovlen(1)
	}
	receive := func(want ...string) {
		t.Helper()
		n, errno := r.Receive(fds[1], msgs[:r.Most(len(msgs))])
		if len(want) == 0 && (n != 0 || errno != unix.EAGAIN) || len(want) > 0 && (n != len(want) || errno != 0) {
			t.Fatalf("%d messages, %v; want %d", n, errno, len(want))
		}
		for i, s := range want {
			if got := string(room[16*i : 16*i+int(msgs[i].Len)]); got != s {
				t.Errorf("message %d is %q, want %q", i, got, s)
			}
		}
	}
	send := func(what ...string) {
		t.Helper()
		for _, s := range what {
			if err := unix.Send(fds[0], []byte(s), 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 3 {
		for range patience - 1 {
			receive()
		}
		send("one", "two")
		receive("one", "two")
	}
	for range 3 {
		for range patience + 5 {
			receive()
		}
		send("three", "four", "five")
		receive("three")
		receive("four", "five")
	}
	if r.Most(0) != 0 || r.Most(8) != 8 {
		t.Errorf("Most: %d of 0, %d of 8", r.Most(0), r.Most(8))
	}
}

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/netlab"
)

// TestImpairRatesSpareTCP: random faults apply only to RoCE packets. A TCP connection between the ends works and none of its frames is
// delayed, although the frames are super-packets without checksums and each RoCE packet is delayed.
func TestImpairRatesSpareTCP(t *testing.T) {
	a, b, near, far := netlab.Bridged(t, netlab.Config{})
	stop := startImpair(t, []string{"--delay", "100%", "--delay-time", "10us"}, near, far)
	var l net.Listener
	b.Do(t, func() {
		var err error
		if l, err = new(net.ListenConfig).Listen(t.Context(), "tcp", net.JoinHostPort(b.IP4.String(), "7000")); err != nil {
			t.Error(err)
		}
	})
	if l == nil {
		t.FailNow()
	}
	defer l.Close()
	text := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	var got []byte
	served := make(chan struct{})
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		got, _ = io.ReadAll(c)
	}()
	a.Do(t, func() {
		d := net.Dialer{Timeout: time.Minute}
		c, err := d.DialContext(context.Background(), "tcp", l.Addr().String())
		if err != nil {
			t.Error(err)
			return
		}
		tc := c.(*net.TCPConn)
		raw, _ := tc.SyscallConn()
		raw.Control(func(fd uintptr) { unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, 60_000) })
		if _, err := c.Write(text); err != nil {
			t.Error(err)
		}
		c.Close()
	})
	if t.Failed() {
		l.Close()
	}
	<-served
	r := stop()
	if !slices.Equal(got, text) {
		t.Errorf("%d of %d bytes came", len(got), len(text))
	}
	if r.A.Unsent+r.B.Unsent > 0 || r.AToB["delayed"]+r.BToA["delayed"] > 0 {
		t.Errorf("%d and %d frames were not sent, %d and %d were delayed", r.A.Unsent, r.B.Unsent, r.AToB["delayed"], r.BToA["delayed"])
	}
}

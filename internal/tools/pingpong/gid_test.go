package pingpong

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestGIDChoice(t *testing.T) {
	sd, _ := tooltest.Pair(t, fault.Config{})
	loopback, peer6 := netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr(tooltest.Client6)
	for _, tt := range []struct {
		text string
		peer netip.Addr
		want int
		err  error
	}{
		{"-1", peer6, 1, nil},
		{"-1", loopback, 0, nil},
		{"0", peer6, 0, nil},
		{"1", loopback, 1, nil},
		{"2", loopback, 0, syscall.EINVAL},
		{tooltest.Server6, loopback, 1, nil},
		{tooltest.Server4, peer6, 0, nil},
		{tooltest.Client4, loopback, 0, syscall.EADDRNOTAVAIL},
	} {
		if got, err := gidIndex(sd, tt.text, tt.peer); got != tt.want || !errors.Is(err, tt.err) {
			t.Errorf("%s towards %v: %d, %v, want %d, %v", tt.text, tt.peer, got, err, tt.want, tt.err)
		}
	}
	if _, err := gidIndex(sd, "eth0", loopback); err == nil {
		t.Error("eth0 is no address")
	}
}

package scenario_test

import (
	"bytes"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/netlab"
)

// TestInterfaceTransfer moves data between interfaces by every driver, also from
// one to the other, over both IP versions and with the largest and the usual path
// MTU.
func TestInterfaceTransfer(t *testing.T) {
	for _, test := range []struct {
		near, far string
		mtu       int
		queues    int
	}{
		{"raw", "raw", 1500, 1},
		{"xdp", "xdp", 1500, 1},
		{"xdp", "xdp", 4200, 1},
		{"xdp", "xdp", 4200, 2},
		{"raw", "xdp", 4200, 1},
		{"xdp", "raw", 1500, 1},
		{"raw", "raw", 1500, 2},
	} {
		t.Run(fmt.Sprintf("%s to %s, MTU %d, queues %d", test.near, test.far, test.mtu, test.queues), func(t *testing.T) {
			x, y := netlab.Pair(t, netlab.Config{MTU: test.mtu, Queues: test.queues})
			da := openOn(t, x, roce.InterfaceConfig{Driver: test.near, Queues: test.queues})
			db := openOn(t, y, roce.InterfaceConfig{Driver: test.far, Queues: test.queues})
			if mtu := da.Query().PathMTU; (mtu == bth.MTU4096) != (test.mtu > 4096) {
				t.Errorf("path MTU %v on an interface of %d", mtu, test.mtu)
			}
			for i, v6 := range []bool{false, true} {
				from, to := x.IP4, y.IP4
				if v6 {
					from, to = x.IP6, y.IP6
				}
				const size = 1 << 20
				a, b := newPeerOn(t, da, i%test.queues, size), newPeerOn(t, db, 0, size)
				connectFrom(t, a, ofAddr(t, da, from), b, ofAddr(t, db, to), 18)
				// READ comes last: the responder may execute a repeated READ later, when the
				// memory must not change.
				for n, op := range []roce.Opcode{roce.Write, roce.Send, roce.Read} {
					fill(a.buf, n)
					fill(b.buf, n+100)
					if op == roce.Send {
						b.recv(0, size)
					}
					a.post(op, 0, size, b, 0)
					a.wait()
					if op == roce.Send {
						b.wait()
					}
					db.Counters() // takes the locks: the race detector does not see that the peer is done
					if !bytes.Equal(a.buf, b.buf) {
						t.Errorf("v6=%v, %v: the data differs", v6, op)
					}
				}
			}
		})
	}
}

// TestInterfaceDriver: the error of an unknown driver or interface names it.
func TestInterfaceDriver(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{})
	x.Do(t, func() {
		_, err := roce.OpenInterface(x.Interface, roce.InterfaceConfig{Driver: "carrier-pigeon"})
		wantErr(t, "OpenInterface", err, syscall.EINVAL)
		if err == nil || !strings.Contains(err.Error(), "raw, ") {
			t.Errorf("error %v does not say what there is", err)
		}
	})
}

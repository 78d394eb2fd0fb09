package scenario_test

import (
	"bytes"
	"errors"
	"syscall"
	"testing"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/xdp"
)

// inPlace is a device that sends data in its link's memory in place.
func inPlace(size int) roce.InterfaceConfig {
	return roce.InterfaceConfig{Driver: "xdp", XDP: xdp.Config{Memory: size, InPlace: 1}}
}

// TestInPlaceTransfer: payload sent in place arrives, even if packets are lost, and all other operations work with the
// same memory.
func TestInPlaceTransfer(t *testing.T) {
	const size = 1 << 20
	for _, test := range []struct {
		name string
		mtu  int
		loss float64
	}{{"MTU 1500", 1500, 0}, {"MTU 4200", 4200, 0}, {"loss", 4200, 0.01}} {
		t.Run(test.name, func(t *testing.T) {
			x, y := netlab.Pair(t, netlab.Config{MTU: test.mtu})
			da := openOn(t, x, inPlace(size))
			far := inPlace(size)
			if test.loss > 0 { // a wrapper sees whole frames: this end copies
				far.Wrap = func(p link.Port) (link.Port, error) {
					return fault.Wrap(p, fault.Config{Seed: 1, Rx: fault.Rates{Loss: test.loss}})
				}
			}
			db := openOn(t, y, far)
			a, b := newPeerOn(t, da, 0, size), newPeerOn(t, db, 0, size)
			connectFrom(t, a, ofAddr(t, da, x.IP4), b, ofAddr(t, db, y.IP4), 14)
			const off, n = 1, size - 3 // the payload of nearly every packet lies in two chunks
			for i, op := range []roce.Opcode{roce.Write, roce.Send, roce.Write, roce.Read} {
				fill(a.buf, i)
				fill(b.buf, i+100)
				if op == roce.Send {
					b.recv(off, n)
				}
				before := da.Counters()
				a.post(op, off, n, b, off)
				a.wait()
				if op == roce.Send {
					b.wait()
				}
				db.Counters() // takes the locks: the race detector does not see that the peer is done
				if !bytes.Equal(a.buf[off:off+n], b.buf[off:off+n]) {
					t.Errorf("%v: the data differs", op)
				}
				after := da.Counters()
				sent := after.Link.TxInPlace - before.Link.TxInPlace
				mtu := da.Query().PathMTU.Bytes()
				want := (n + mtu - 1) / mtu
				if op == roce.Read {
					want = 0
				}
				if int(sent) != want {
					t.Errorf("%v: %d packets were sent in place, want %d", op, sent, want)
				}
			}
			fill(a.buf, 1)
			check(t, a.mr.Close())
			a.mr = ok(a.pd.AllocMR(size, roce.LocalWrite))(t)
			if !bytes.Equal(a.mr.Bytes(), make([]byte, size)) {
				t.Error("memory that another region used before is not zero")
			}
		})
	}
}

// TestAllocMRLimits: the device has the configured amount of memory, and a region keeps its memory.
func TestAllocMRLimits(t *testing.T) {
	x, _ := netlab.Pair(t, netlab.Config{})
	d := openOn(t, x, inPlace(64<<10))
	pd := d.AllocPD()
	_, err := pd.AllocMR(64<<10+1, 0)
	wantErr(t, "more than there is", err, syscall.ENOMEM)
	m := ok(pd.AllocMR(64<<10, 0))(t)
	wantErr(t, "other memory", m.Reregister(roce.MRChange{Change: roce.ReregTranslation, Mem: make([]byte, 8)}), syscall.EINVAL)
	check(t, m.Reregister(roce.MRChange{Change: roce.ReregAccess, Access: roce.LocalWrite}))
	_, err = pd.AllocMR(1, 0)
	wantErr(t, "nothing left", err, syscall.ENOMEM)
	check(t, m.Close())
	_, err = pd.AllocMR(8, roce.RemoteWrite)
	wantErr(t, "impossible rights", err, syscall.EINVAL)
	ok(pd.AllocMR(64<<10, 0))(t) // all of it came back
	check(t, d.Close())
	if _, err := pd.AllocMR(1, 0); !errors.Is(err, roce.ErrClosed) && !errors.Is(err, link.ErrClosed) {
		t.Errorf("AllocMR on a closed device: %v", err)
	}
}

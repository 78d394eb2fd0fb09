package scenario_test

import (
	"syscall"
	"testing"

	"github.com/goroce/roce"
)

// TestAllocMR: if the link has no memory of its own, AllocMR returns ordinary memory.
func TestAllocMR(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	pd := d.AllocPD()
	m := ok(pd.AllocMR(4097, allRights))(t)
	if b := m.Bytes(); len(b) != 4097 || m.Len() != 4097 || b[0] != 0 {
		t.Errorf("%d bytes, region of %d", len(b), m.Len())
	}
	check(t, m.Reregister(roce.MRChange{Change: roce.ReregTranslation, Mem: make([]byte, 8)}))
	check(t, m.Close())

	for _, n := range []int{0, -1} {
		_, err := pd.AllocMR(n, 0)
		wantErr(t, "no memory", err, syscall.EINVAL)
	}
	_, err := pd.AllocMR(8, roce.RemoteWrite)
	wantErr(t, "impossible rights", err, syscall.EINVAL)
	check(t, pd.Close()) // nothing of what was refused is left in it
	_, err = pd.AllocMR(8, 0)
	wantErr(t, "closed domain", err, roce.ErrClosed)
}

package roce_test

import (
	"syscall"
	"testing"

	"github.com/goroce/roce"
)

// TestAllocMR: on a device whose link has no memory of its own it is ordinary memory.
func TestAllocMR(t *testing.T) {
	d := newNetwork(t).device("10.0.0.1")
	pd := d.AllocPD()
	m := ok(d.AllocMR(pd, 4097, allRights))(t)
	if b := m.Bytes(); len(b) != 4097 || m.Len() != 4097 || b[0] != 0 {
		t.Errorf("%d bytes, region of %d", len(b), m.Len())
	}
	check(t, m.Reregister(roce.ReregTranslation, roce.MRChange{Mem: make([]byte, 8)}))
	check(t, m.Close())

	_, err := d.AllocMR(nil, 1, 0)
	wantErr(t, "no domain", err, syscall.EINVAL)
	_, err = d.AllocMR(newNetwork(t).device("10.0.0.1").AllocPD(), 1, 0)
	wantErr(t, "domain of another device", err, syscall.EINVAL)
	for _, n := range []int{0, -1} {
		_, err = d.AllocMR(pd, n, 0)
		wantErr(t, "no memory", err, syscall.EINVAL)
	}
	_, err = d.AllocMR(pd, 8, roce.RemoteWrite)
	wantErr(t, "impossible rights", err, syscall.EINVAL)
	check(t, pd.Close()) // nothing of what was refused is left in it
}

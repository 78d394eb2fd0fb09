package devinfo

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/link/fault"
)

func TestOfDevice(t *testing.T) {
	d, _ := tooltest.Pair(t, fault.Config{})
	i := OfDevice("roce0", d)
	if i.State != "PORT_ACTIVE" || i.ActiveMTU != 1024 || i.PathMTU != 1024 || i.EtherMTU != 1500 || i.Driver != "mem" {
		t.Errorf("%+v", i)
	}
	if len(i.GIDs) != 2 || i.GIDs[0] != "::ffff:10.77.0.1" || i.GIDs[1] != "fd77::1" {
		t.Errorf("GIDs %v", i.GIDs)
	}
	for _, verbose := range []bool{false, true} {
		var b strings.Builder
		if err := i.WriteText(&b, verbose); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"hca_id:", "roce0", "node_guid:", "PORT_ACTIVE (4)", "1024 (3)", "GID[  0]:", "::ffff:10.77.0.1, RoCE v2"} {
			if !strings.Contains(b.String(), want) {
				t.Errorf("no %q in\n%s", want, b.String())
			}
		}
		if got := strings.Contains(b.String(), "max_qp_wr:"); got != verbose {
			t.Errorf("verbose %v, limits printed %v", verbose, got)
		}
	}
	if _, err := json.Marshal(i); err != nil {
		t.Error(err)
	}
}

func TestOfInterface(t *testing.T) {
	if _, err := OfInterface("no-such-if"); err == nil {
		t.Error("no error about an interface that does not exist")
	}
}

func TestGUID(t *testing.T) {
	// As rxe prints it for this MAC address.
	if got := guidString(guidOf(frame.MAC{0x52, 0x54, 0, 0, 0, 0x0a})); got != "5054:00ff:fe00:000a" {
		t.Errorf("GUID %s", got)
	}
}

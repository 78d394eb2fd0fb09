package devinfo

import (
	"encoding/json"
	"net/netip"
	"regexp"
	"strings"
	"testing"

	"github.com/goroce/roce"
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
	var b strings.Builder
	if err := i.WriteText(&b, true); err != nil {
		t.Fatal(err)
	}
	// As ibv_devinfo -v prints them.
	for name, want := range map[string]string{
		"vendor_id": "0xffffff", "atomic_cap": "ATOMIC_GLOB (2)", "max_qp_rd_atom": "252", "phys_state": "LINK_UP (5)", "gid_tbl_len": "1024",
		"active_width": "1X (1)", "active_speed": "2.5 Gbps (1)", "max_msg_sz": "0x80000000", "port_cap_flags": "0x00010000", "local_ca_ack_delay": "15",
	} {
		if !regexp.MustCompile(`(?m)^\t+` + name + `: +` + regexp.QuoteMeta(want) + `$`).MatchString(b.String()) {
			t.Errorf("no %s with %s in\n%s", name, want, b.String())
		}
	}
	if !regexp.MustCompile(`(?m)^\tdevice_cap_flags: +0x[0-9a-f]+\n\t +BAD_PKEY_CNTR\n\t +BAD_QKEY_CNTR$`).MatchString(b.String()) {
		t.Errorf("the flags are not listed in\n%s", b.String())
	}
	data, err := json.Marshal(i)
	if err != nil {
		t.Fatal(err)
	}
	var back struct {
		Limits struct {
			MaxQP int `json:"max_qp"`
		}
		Port struct {
			Phys int `json:"phys_state"`
		}
	}
	if err := json.Unmarshal(data, &back); err != nil || back.Limits.MaxQP == 0 || back.Port.Phys != 5 {
		t.Errorf("%+v, %v from %s", back, err, data)
	}
	check := d.SetAddrs([]netip.Addr{netip.MustParseAddr(tooltest.Server6)})
	b.Reset()
	OfDevice("roce0", d).WriteText(&b, false)
	if check != nil || strings.Contains(b.String(), "GID[  0]") || !strings.Contains(b.String(), "GID[  1]:") {
		t.Errorf("an empty slot is printed (%v):\n%s", check, b.String())
	}
}

func TestOfInterface(t *testing.T) {
	if _, err := OfInterface("no-such-if", roce.InterfaceConfig{Driver: "raw"}); err == nil {
		t.Error("no error about an interface that does not exist")
	}
}

func TestGUID(t *testing.T) {
	// As rxe prints it for this MAC address.
	if got := GUIDString(guidOf(frame.MAC{0x52, 0x54, 0, 0, 0, 0x0a})); got != "5054:00ff:fe00:000a" {
		t.Errorf("GUID %s", got)
	}
}

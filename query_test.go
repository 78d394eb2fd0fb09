package roce

import (
	"testing"
)

// TestAttrStrings: flags and values are printed by their names in the verbs, unknown ones as numbers.
func TestAttrStrings(t *testing.T) {
	for _, c := range []struct{ got, want string }{
		{DeviceCaps(0x01223C76).String(), "BAD_PKEY_CNTR|BAD_QKEY_CNTR|AUTO_PATH_MIG|CHANGE_PHY_PORT|UD_AV_PORT_ENFORCE|PORT_ACTIVE_EVENT|" +
			"SYS_IMAGE_GUID|RC_RNR_NAK_GEN|SRQ_RESIZE|MEM_WINDOW|MEM_MGT_EXTENSIONS|MEM_WINDOW_TYPE_2B"}, // rxe's
		{DeviceCaps(0).String(), "0x0"},
		{(CapXRC | 1<<60).String(), "XRC|0x1000000000000000"},
		{PortCMSupport.String(), "CM_SUP"},
		{AtomicGlob.String(), "ATOMIC_GLOB"}, {AtomicCap(7).String(), "AtomicCap(7)"},
		{PortActive.String(), "PORT_ACTIVE"}, {PortDown.String(), "PORT_DOWN"},
		{PhysLinkUp.String(), "LINK_UP"}, {LinkLayerEthernet.String(), "Ethernet"}, {GIDTypeRoCEv2.String(), "RoCE v2"},
		{Width4X.String(), "4X"}, {SpeedEDR.String(), "25.0 Gbps"}, {LinkSpeed(512).String(), "LinkSpeed(512)"},
	} {
		if c.got != c.want {
			t.Errorf("got %q, want %q", c.got, c.want)
		}
	}
}

// TestWidthAndSpeed: width times speed is never less than the speed of the link.
func TestWidthAndSpeed(t *testing.T) {
	lanes := map[LinkWidth]int{Width1X: 1, Width2X: 2, Width4X: 4, Width8X: 8, Width12X: 12}
	mbps := map[LinkSpeed]int{SpeedSDR: 2500, SpeedDDR: 5000, SpeedQDR: 10000, SpeedFDR10: 10000, SpeedFDR: 14000, SpeedEDR: 25000,
		SpeedHDR: 50000, SpeedNDR: 100000, SpeedXDR: 200000}
	for _, c := range []struct {
		mbps  int
		width LinkWidth
		speed LinkSpeed
	}{
		{0, Width1X, SpeedSDR}, {1000, Width1X, SpeedSDR}, {10_000, Width1X, SpeedFDR10}, {25_000, Width1X, SpeedEDR},
		{40_000, Width4X, SpeedFDR10}, {50_000, Width1X, SpeedHDR}, {100_000, Width4X, SpeedEDR}, {200_000, Width4X, SpeedHDR},
		{400_000, Width4X, SpeedNDR}, {800_000, Width4X, SpeedXDR},
	} {
		w, s := widthAndSpeed(c.mbps)
		if w != c.width || s != c.speed || lanes[w]*mbps[s] < c.mbps {
			t.Errorf("%d Mb/s is %v %v, want %v %v", c.mbps, w, s, c.width, c.speed)
		}
	}
}

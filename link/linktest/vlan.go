package linktest

import (
	"encoding/binary"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// VLANs checks that a Port of an Ethernet interface receives only frames of its VLAN or,
// if it has none, only frames without a VLAN. open opens a sender and a receiver in a
// VLAN, path makes a path from one to the other.
func VLANs(t *testing.T, open func(t *testing.T, vlan uint16) (from, to link.Port), path func(t *testing.T, v6 bool, vlan uint16) *frame.Path) {
	const none, seven = 0, 7
	tag := func(protocol, tci uint16) func(b []byte) {
		return func(b []byte) {
			binary.BigEndian.PutUint16(b[12:], protocol)
			binary.BigEndian.PutUint16(b[14:], tci)
		}
	}
	frames := []struct {
		name   string
		tagged bool
		edit   func(b []byte)
		takes  []uint16 // VLANs in which it is taken
	}{
		{"untagged", false, nil, []uint16{none}},
		{"priority only", true, tag(0x8100, 5<<13), []uint16{none}},
		{"VLAN 7", true, nil, []uint16{seven}},
		{"VLAN 7, priority", true, tag(0x8100, 5<<13|7), []uint16{seven}},
		{"VLAN 8", true, tag(0x8100, 8), nil},
		{"VLAN 7 of 802.1ad", true, tag(0x88A8, 7), nil},
		{"the last untagged", false, nil, []uint16{none}},
		{"the last in VLAN 7", true, nil, []uint16{seven}},
	}
	for _, vlan := range []uint16{none, seven} {
		for _, v6 := range []bool{false, true} {
			t.Run(map[bool]string{false: "IPv4", true: "IPv6"}[v6]+map[uint16]string{none: "", seven: " VLAN 7"}[vlan], func(t *testing.T) {
				from, to := open(t, vlan)
				var want, got []string
				for i, f := range frames {
					p := path(t, v6, none)
					if f.tagged {
						p = path(t, v6, seven)
					}
					if !Put(from, p, bth.PSN(i), make([]byte, 1024)) {
						t.Fatal("no room")
					}
					if f.edit != nil {
						f.edit(from.Lent())
					}
					from.Commit()
					if err := from.Flush(); err != nil {
						t.Fatal(err)
					}
					if slices.Contains(f.takes, vlan) {
						want = append(want, f.name)
					}
				}
				fr := make([]link.Frame, link.Batch)
				for deadline := time.Now().Add(Patience); len(got) == 0 || got[len(got)-1] != want[len(want)-1]; {
					if time.Now().After(deadline) {
						t.Fatalf("got %q, want %q", got, want)
					}
					to.Wait(time.Second)
					n, _ := to.Recv(fr)
					for _, f := range fr[:n] {
						var q frame.Packet
						if err := f.Parse(&q, frame.LayoutEthernet); err != nil || !q.CheckICRC() || q.VLAN != vlan {
							t.Errorf("%v, VLAN %d", err, q.VLAN)
							continue
						}
						got = append(got, frames[q.PSN()].name)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

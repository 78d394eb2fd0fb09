package raw

import (
	"encoding/binary"
	"slices"
	"testing"

	"golang.org/x/net/bpf"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/sockfilter"
)

// packet makes a frame with a path's envelope and n bytes of payload.
func packet(t testing.TB, v6 bool, vlan uint16, n int) []byte {
	t.Helper()
	c := frame.PathConfig{
		Src: bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 1}, Dst: bth.GID{10: 0xFF, 11: 0xFF, 12: 10, 15: 2},
		SrcMAC: frame.MAC{2, 5: 1}, DstMAC: frame.MAC{2, 5: 2}, VLAN: vlan, SrcPort: 0xC000,
	}
	if v6 {
		c.Src, c.Dst = bth.GID{0: 0xFD, 15: 1}, bth.GID{0: 0xFD, 15: 2}
	}
	p, err := frame.NewPath(c)
	if err != nil {
		t.Fatal(err)
	}
	b := make([]byte, p.HeaderLen(frame.LayoutEthernet)+n)
	body, _ := p.Put(b, frame.LayoutEthernet, n, 0x1234)
	for i := range body {
		body[i] = byte(i)
	}
	return b
}

// at returns b with one byte changed.
func at(b []byte, i int, v byte) []byte {
	b = append([]byte(nil), b...)
	b[i] = v
	return b
}

// options returns an IPv4 frame with 4*n bytes of IP options.
func options(b []byte, n int) []byte {
	out := append([]byte(nil), b[:34]...)
	out = append(out, make([]byte, 4*n)...)
	out = append(out, b[34:]...)
	out[14] = 0x45 + byte(n)
	return out
}

func TestFilter(t *testing.T) {
	vm, err := bpf.NewVM(roceFilter(everything, nil, nil))
	if err != nil {
		t.Fatal(err)
	}
	v4, v6 := packet(t, false, 0, 64), packet(t, true, 0, 64)
	v4tag, v6tag := packet(t, false, 5, 64), packet(t, true, 5, 64)
	for _, test := range []struct {
		name  string
		frame []byte
		want  bool
	}{
		{"IPv4", v4, true},
		{"IPv6", v6, true},
		{"IPv4 in a second VLAN", v4tag, false},
		{"IPv6 in a second VLAN", v6tag, false},
		{"IPv4 in a second 802.1ad", at(at(v4tag, 12, 0x88), 13, 0xA8), false},
		{"IPv4 with options", options(v4, 1), true},
		{"IPv4 with most options", options(v4, 10), true},
		{"IPv4, do not fragment", at(v4, 20, 0x40), true},
		{"IPv4, more fragments", at(v4, 20, 0x20), false},
		{"IPv4, fragment offset", at(v4, 21, 1), false},
		{"IPv4 TCP", at(v4, 23, 6), false},
		{"IPv4, other port", at(v4, 37, 0xB8), false},
		{"IPv4, the source port is 4791", func() []byte {
			b := append([]byte(nil), v4...)
			binary.BigEndian.PutUint16(b[34:], bth.UDPPort)
			binary.BigEndian.PutUint16(b[36:], 53)
			return b
		}(), false},
		{"IPv6 TCP", at(v6, 20, 6), false},
		{"IPv6 extension header", at(v6, 20, 0), false},
		{"IPv6, other port", at(v6, 57, 0xB8), false},
		{"ARP", at(v4, 13, 6), false},
		{"ARP in VLAN", at(v4tag, 17, 6), false},
		{"two VLAN tags", append(append(append([]byte(nil), v4tag[:12]...), 0x81, 0, 0, 6), v4tag[12:]...), false},
		{"empty", nil, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := vm.Run(test.frame)
			if err != nil {
				t.Fatal(err)
			}
			if (got != 0) != test.want {
				t.Errorf("filter returns %d, want accepted: %v", got, test.want)
			}
			if test.want && got < gso.MaxSuper+18 {
				t.Errorf("filter cuts frames to %d bytes", got)
			}
		})
	}
	// The filter must reject a frame that is cut anywhere before the port number, and must not
	// fail.
	for _, whole := range [][]byte{v4, v6} {
		port := len(whole) - 64 - 4
		for n := range whole {
			got, err := vm.Run(whole[:n])
			if err != nil || (got != 0) != (n >= port) {
				t.Fatalf("first %d bytes: %d, %v", n, got, err)
			}
		}
	}
	for _, vlan := range []uint16{0, 7} {
		if _, err := bpf.Assemble(slices.Concat(notForUs(), inVLAN(vlan), roceFilter(everything, nil, nil))); err != nil {
			t.Error(err)
		}
	}
	if vm, err := bpf.NewVM(sockfilter.RejectAll); err != nil {
		t.Error(err)
	} else if n, _ := vm.Run(v4); n != 0 {
		t.Errorf("RejectAll takes %d bytes", n)
	}
}

func TestSteering(t *testing.T) {
	vm, err := bpf.NewVM(steering(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range [][]byte{packet(t, false, 0, 64), packet(t, true, 0, 64), options(packet(t, false, 0, 64), 2)} {
		for qpn, want := range map[bth.QPN]int{0x11: 2, 0x12: 0, 0x13: 1, 0xABCDEF: 0xABCDEF % 3, 0: 0, bth.QPNGSI: 0, bth.QPNMulticast: 0, bth.QPNMulticast - 1: (1<<24 - 2) % 3} {
			bth.PutBTH(b[len(b)-64:], bth.RCSendOnly, 0, 0, bth.DefaultPKey, qpn, 0)
			if got, err := vm.Run(b[14:]); err != nil || got != want {
				t.Errorf("QPN %v goes to %d, %v, want %d", qpn, got, err, want)
			}
		}
	}
}

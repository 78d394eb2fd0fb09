package impair_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/netlab"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/linktest"
)

// at returns the interface of a side.
func at(s *netlab.Side) impair.Interface {
	return impair.Interface{Name: s.Interface, Netns: s.Netns()}
}

// outcome is what Run returns.
type outcome struct {
	impair.Report
	err error
}

// begin runs a bridge. ended gets its results when it ends, after stop or by itself.
func begin(t *testing.T, c impair.Config) (stop func(), ended <-chan outcome) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	ready, done := make(chan struct{}), make(chan outcome, 1)
	c.Ready = func() { close(ready) }
	go func() {
		r, err := impair.Run(ctx, c)
		done <- outcome{r, err}
	}()
	select {
	case <-ready:
	case o := <-done:
		if strings.Contains(o.err.Error(), "TCX") {
			netlab.Lacking(t, "TCX", o.err)
		}
		t.Fatal(o.err)
	}
	return cancel, done
}

// card opens a packet socket at a side. Its frames have the header of PACKET_VNET_HDR in front.
func card(t *testing.T, s *netlab.Side) int {
	t.Helper()
	fd := -1
	var err error
	s.Do(t, func() {
		if fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return
		}
		err = errors.Join(unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VNET_HDR, 1),
			unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, 1),
			unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL}), Ifindex: s.Link().Attrs().Index}))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// roceFrame is a SEND of UC to a queue pair.
func roceFrame(t testing.TB, v6 bool, payload []byte) []byte {
	t.Helper()
	path := linktest.Path(t, v6, frame.MAC{0: 2, 5: 1}, frame.MAC{0: 2, 5: 2})
	f := bth.Fields{BTH: bth.BTHFields{Op: bth.UCSendOnly, PKey: bth.DefaultPKey, DestQPN: 0x12, PSN: 1}, Payload: payload}
	body := f.Append(nil)
	n := len(body) + bth.ICRCLen
	data := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	room, crc := path.Put(data, frame.LayoutEthernet, n, 1)
	copy(room, body)
	bth.PutICRC(room[len(body):], crc.UpdateBody(body))
	return data
}

func inject(t *testing.T, fd int, head gso.VnetHeader, data []byte) {
	t.Helper()
	b := make([]byte, gso.VnetLen, gso.VnetLen+len(data))
	head.Put(b)
	if _, err := unix.Write(fd, append(b, data...)); err != nil {
		t.Error(err)
	}
}

// await reads frames until one is RoCE.
func await(t *testing.T, fd int) (head gso.VnetHeader, data []byte) {
	t.Helper()
	b := make([]byte, 1<<16+100)
	for {
		n, err := unix.Read(fd, b)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		head.Get(b)
		if _, ok := gso.Look(b[gso.VnetLen:n]); ok {
			return head, b[gso.VnetLen:n]
		}
	}
}

// TestVanishesUnderLoad: an interface is removed while frames arrive at the other one without a pause.
func TestVanishesUnderLoad(t *testing.T) {
	_, b, near, far := netlab.Bridged(t, netlab.Config{})
	_, ended := begin(t, impair.Config{A: at(near), B: at(far)})
	fd, data := card(t, b), roceFrame(t, false, make([]byte, 64))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				inject(t, fd, gso.VnetHeader{}, data)
			}
		}
	}()
	defer func() { close(stop); <-stopped }()
	if err := near.Netlink().LinkSetDown(near.Link()); err != nil { // the socket gets an error for this, but not for the removal
		t.Fatal(err)
	}
	for range 1000 {
		inject(t, fd, gso.VnetHeader{}, data)
	}
	if err := near.Netlink().LinkDel(near.Link()); err != nil {
		t.Fatal(err)
	}
	if o := <-ended; !errors.Is(o.err, link.ErrNoDevice) {
		t.Errorf("%v, want %v", o.err, link.ErrNoDevice)
	}
}

// refused checks that a bridge does not begin, and that its error contains want.
func refused(t *testing.T, c impair.Config, want string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	began := false
	c.Ready = func() { began = true; cancel() }
	if _, err := impair.Run(ctx, c); began || err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), unix.EINVAL.Error()) {
		t.Errorf("%v and %v: began %v, %v; want %q", c.A, c.B, began, err, want)
	}
}

// TestOneCable: between the two ends of one veth pair each frame would go round for ever.
func TestOneCable(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	refused(t, impair.Config{A: at(a), B: at(b)}, "ends of one cable")
	_, _, near, far := netlab.Bridged(t, netlab.Config{})
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "loop0"}, PeerName: "loop1"}
	if err := near.Netlink().LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	refused(t, impair.Config{A: impair.Interface{Name: "loop0", Netns: near.Netns()}, B: impair.Interface{Name: "loop1", Netns: near.Netns()}}, "ends of one cable")
	stop, ended := begin(t, impair.Config{A: at(near), B: at(far)}) // two pairs
	stop()
	if o := <-ended; o.err != nil {
		t.Error(o.err)
	}
}

// TestSecondBridge: two bridges at one interface would send each frame twice or for ever, so the second one is refused.
func TestSecondBridge(t *testing.T) {
	a, b, near, far := netlab.Bridged(t, netlab.Config{})
	begin(t, impair.Config{A: at(b)}) // in another namespace, where the interface may have the same number
	for _, c := range []impair.Config{{A: at(near), B: at(far)}, {A: at(a)}} {
		for range 2 { // the interface is free again after the bridge has ended
			stop, ended := begin(t, c)
			refused(t, c, "another rocectl impair")
			if c.B != (impair.Interface{}) {
				refused(t, impair.Config{A: c.B, B: c.A}, "another rocectl impair")
				refused(t, impair.Config{A: c.A}, "another rocectl impair")
			}
			stop()
			if o := <-ended; o.err != nil {
				t.Error(o.err)
			}
		}
	}
}

// TestMTUGrows: the MTU of an interface grows while a bridge is in it. Frames of the new size pass.
func TestMTUGrows(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	stop, ended := begin(t, impair.Config{A: at(a)})
	for _, s := range []*netlab.Side{a, b} {
		if err := s.Netlink().LinkSetMTU(s.Link(), 9000); err != nil {
			t.Fatal(err)
		}
	}
	from, to := card(t, a), card(t, b)
	data := roceFrame(t, false, make([]byte, 4096))
	inject(t, from, gso.VnetHeader{}, data)
	if _, got := await(t, to); len(got) != len(data) {
		t.Errorf("%d bytes of %d came", len(got), len(data))
	}
	stop()
	if o := <-ended; o.err != nil || o.A.RoCE != 1 {
		t.Errorf("%+v, %v", o.Report, o.err)
	}
}

// TestTagged: a bridge in one interface lets frames with a VLAN tag pass unchanged. The kernel removes the tag before the programs see the
// frame.
func TestTagged(t *testing.T) {
	a, b := netlab.Pair(t, netlab.Config{})
	stop, ended := begin(t, impair.Config{A: at(a)})
	from, to := card(t, b), card(t, a)
	plain := roceFrame(t, false, make([]byte, 64))
	tagged := slices.Concat(plain[:12], []byte{0x81, 0, 0, 5}, plain[12:])
	inject(t, from, gso.VnetHeader{}, tagged)
	inject(t, from, gso.VnetHeader{}, plain)
	for range 3 { // the packet socket sees both frames as they arrive, and the plain frame again when the bridge sends it
		await(t, to)
	}
	stop()
	if o := <-ended; o.err != nil || o.B.RoCE != 1 {
		t.Errorf("%d of 2 frames were redirected, want 1; %v", o.B.RoCE, o.err)
	}
}

// TestUntouched: frames that are not RoCE pass unchanged, including their VLAN tag, although there are random faults.
func TestUntouched(t *testing.T) {
	a, b, near, far := netlab.Bridged(t, netlab.Config{MTU: 9000})
	all := fault.Rates{Corrupt: 1, ECN: 1, Delay: 1, Dup: 1}
	stop, ended := begin(t, impair.Config{A: at(near), B: at(far), Faults: fault.Config{Tx: all, Rx: all}})
	from, to := card(t, a), card(t, b)
	if err := unix.SetsockoptInt(to, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		t.Fatal(err)
	}
	plain := roceFrame(t, false, make([]byte, 64))
	v6 := roceFrame(t, true, make([]byte, 64))
	ether := func(dst byte, kind uint16, payload ...byte) []byte {
		f := binary.BigEndian.AppendUint16([]byte{dst, 0x80, 0xC2, 0, 0, 0x0E, 2, 0, 0, 0, 0, 1}, kind)
		return append(f, payload...)
	}
	changed := func(data []byte, at int, v ...byte) []byte {
		data = slices.Clone(data)
		copy(data[at:], v)
		return data
	}
	tagged := func(data []byte, kind uint16, tci uint16) []byte {
		tag := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, kind), tci)
		return slices.Concat(data[:12], tag, data[12:])
	}
	extended := slices.Concat(changed(v6, 14+6, 60)[:54], []byte{17, 0, 1, 4, 0, 0, 0, 0}, v6[54:]) // destination options
	binary.BigEndian.PutUint16(extended[18:], uint16(len(extended)-54))
	options := slices.Concat(changed(plain, 14, 0x46)[:34], []byte{1, 1, 1, 0}, plain[34:])
	frames := map[string][]byte{
		"no payload":           ether(2, 0x88B5),
		"a length, not a type": ether(1, 3, 0x42, 0x42, 3),
		"LLDP":                 ether(1, 0x88CC, 2, 7, 4, 1, 2, 3),
		"a pause":              ether(1, 0x8808, 0, 1, 0, 0),
		"RoCEv1":               ether(2, 0x8915, make([]byte, 80)...),
		"another port":         changed(plain, 14+20+2, 0x12, 0xB8),
		"a first fragment":     changed(plain, 14+6, 0x20, 0),
		"a later fragment":     changed(plain, 14+6, 0, 1),
		"IP options":           options,
		"extension headers":    extended,
		"TCP":                  changed(plain, 14+9, 6),
		"two tags":             tagged(tagged(plain, 0x8100, 6), 0x88A8, 0x6005),
		"a tag":                tagged(ether(2, 0x88B5, 1, 2, 3), 0x8100, 0xE007),
		"a priority":           tagged(ether(2, 0x88B5, 1, 2, 3), 0x8100, 0xE000),
		"a jumbo":              ether(2, 0x88B5, make([]byte, 9000)...),
		"a tagged jumbo":       tagged(ether(2, 0x88B5, make([]byte, 9000)...), 0x8100, 7),
		"not even IP":          ether(2, 0x0800, 0x45),
		"half an IP header":    plain[:30],
	}
	room, aux := make([]byte, 1<<14), make([]byte, 128)
	for name, data := range frames {
		inject(t, from, gso.VnetHeader{}, data)
		for { // skip frames that the kernels send
			n, m, _, _, err := unix.Recvmsg(to, room, aux, 0)
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Clone(room[gso.VnetLen:n])
			messages, err := unix.ParseSocketControlMessage(aux[:m])
			if err != nil || len(messages) == 0 {
				t.Fatalf("%d messages, %v", len(messages), err)
			}
			a := (*unix.TpacketAuxdata)(unsafe.Pointer(&messages[0].Data[0]))
			if a.Status&unix.TP_STATUS_VLAN_VALID != 0 {
				got = tagged(got, a.Vlan_tpid, a.Vlan_tci)
			}
			if bytes.Equal(got, data) {
				break
			}
			if len(got) > 12 && bytes.Equal(got[6:12], data[6:12]) {
				t.Errorf("%s:\n  sent %x\n  came %x", name, data, got)
				break
			}
		}
	}
	stop()
	if o := <-ended; o.err != nil || o.A.RoCE != 0 || o.AToB.Packets != 0 || o.B.Unsent != 0 {
		t.Errorf("%+v, %v", o.Report, o.err)
	}
}

// TestNotes: the bridge says that the interfaces have different MTUs, and when one goes down and up.
func TestNotes(t *testing.T) {
	_, _, near, far := netlab.Bridged(t, netlab.Config{})
	if err := far.Netlink().LinkSetMTU(far.Link(), 1400); err != nil {
		t.Fatal(err)
	}
	notes := make(chan string, 10)
	stop, ended := begin(t, impair.Config{A: at(near), B: at(far), Note: func(text string) { notes <- text }})
	want := func(text string) {
		t.Helper()
		if got := <-notes; !strings.Contains(got, text) {
			t.Errorf("%q, want %q", got, text)
		}
	}
	want("is 1500, that of " + far.Interface)
	near.SetUp(t, false)
	want("is down")
	near.SetUp(t, true)
	want("is up")
	stop()
	if o := <-ended; o.err != nil {
		t.Error(o.err)
	}
}

package impair

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"time"
	"unsafe"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/internal/ethtool"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/internal/mmsg"
	"github.com/goroce/roce/link"
)

const (
	batch   = 64
	vlanTag = 4
	rxRoom  = vlanTag + 14 + gso.MaxSuper + 1
	auxRoom = 128 // for PACKET_AUXDATA and a time stamp
)

// socket is a packet socket of one interface. The kernel ends promiscuous mode, and everything else that the socket has set, when the
// socket is closed.
type socket struct {
	of       Interface
	fd       int
	reserved int // a socket whose name is the reservation; see reserve
	index    int
	mtu      int
	count    Side

	calls mmsg.Receiver
	room  []byte // rxRoom bytes for each message; unused pages take no memory
	msgs  [batch]unix.Mmsghdr
	iov   [2 * batch]unix.Iovec
	vnets [batch][gso.VnetLen]byte
	aux   [batch][auxRoom / 8]uint64

	out     [batch]unix.Mmsghdr
	outIov  [2 * batch]unix.Iovec
	outHead [batch][gso.VnetLen]byte
	packets [batch]int
	queued  int
	wasUp   bool   // the interface was up when the kernel last told its state
	stuck   bool   // the interface has accepted no frame for maxWait
	copies  []byte // the frames of sendCopy
}

// entered runs f on a thread in the namespace of the interface.
func (i Interface) entered(f func() error) error {
	runtime.LockOSThread()
	if i.Netns == "" {
		defer runtime.UnlockOSThread()
		return f()
	}
	path := i.Netns
	if !strings.ContainsRune(path, '/') {
		path = filepath.Join("/run/netns", path)
	}
	back, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer back.Close()
	to, err := netns.GetFromPath(path)
	if err == nil {
		defer to.Close()
		err = netns.Set(to)
	}
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("network namespace %s: %w", i.Netns, err)
	}
	err = f()
	if lost := netns.Set(back); lost != nil {
		return errors.Join(err, fmt.Errorf("leaving network namespace %s: %w", i.Netns, lost)) // the thread stays locked, and dies with the goroutine
	}
	runtime.UnlockOSThread()
	return err
}

// open opens the socket of an interface. It receives nothing before begin binds it.
func open(i Interface, buffer int, stamps bool) (*socket, error) {
	s := &socket{of: i, fd: -1, reserved: -1, count: Side{Interface: i.String()}}
	err := i.entered(func() error { return s.setUp(buffer, stamps) })
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *socket) fail(step string, err error) error {
	return link.Fail("impair", step, s.of.String(), nil, err, "")
}

func (s *socket) setUp(buffer int, stamps bool) error {
	ifi, err := net.InterfaceByName(s.of.Name)
	if err != nil {
		return link.Fail("impair", "open", s.of.String(), link.ErrNoDevice, err, "")
	}
	if len(ifi.HardwareAddr) != 6 || ifi.Flags&net.FlagLoopback != 0 {
		return link.Fail("impair", "open", s.of.String(), link.ErrUnsupported, errors.New("it is no Ethernet interface"), "")
	}
	if l, err := netlink.LinkByIndex(ifi.Index); err == nil && l.Attrs().MasterIndex != 0 {
		of := "another interface"
		if m, err := netlink.LinkByIndex(l.Attrs().MasterIndex); err == nil {
			of = m.Attrs().Name
		}
		return link.Fail("impair", "open", s.of.String(), unix.EBUSY, fmt.Errorf("it is a port of %s, which would forward its frames a second time", of),
			"take it out: ip link set "+s.of.Name+" nomaster")
	}
	s.index, s.mtu = ifi.Index, ifi.MTU
	if s.reserved, err = reserve(s.of, s.index); err != nil {
		return err
	}
	if s.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0); err != nil {
		s.fd = -1
		if errors.Is(err, unix.EPERM) {
			return link.Fail("impair", "open", s.of.String(), link.ErrPermission, err, "CAP_NET_RAW is needed")
		}
		return s.fail("socket", err)
	}
	for _, o := range []struct {
		name          string
		level, option int
		wanted        bool
	}{
		{"PACKET_IGNORE_OUTGOING", unix.SOL_PACKET, unix.PACKET_IGNORE_OUTGOING, true},
		{"PACKET_AUXDATA", unix.SOL_PACKET, unix.PACKET_AUXDATA, true},
		{"PACKET_VNET_HDR", unix.SOL_PACKET, unix.PACKET_VNET_HDR, true},
		{"SO_TIMESTAMPNS", unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, stamps},
	} {
		if !o.wanted {
			continue
		}
		if err := unix.SetsockoptInt(s.fd, o.level, o.option, 1); err != nil {
			return s.fail(o.name, err)
		}
	}
	for _, o := range []struct{ force, plain int }{{unix.SO_RCVBUFFORCE, unix.SO_RCVBUF}, {unix.SO_SNDBUFFORCE, unix.SO_SNDBUF}} {
		if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o.force, buffer) != nil {
			if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, o.plain, buffer); err != nil {
				return s.fail("buffers", err)
			}
		}
	}
	s.init()
	return nil
}

// init points the messages of both directions to their buffers.
func (s *socket) init() {
	s.room = make([]byte, batch*rxRoom)
	for i := range batch {
		m, v := &s.msgs[i].Hdr, s.iov[2*i:2*i+2]
		v[0].Base = &s.vnets[i][0]
		v[0].SetLen(gso.VnetLen)
		v[1].Base = &s.frame(i)[vlanTag]
		v[1].SetLen(rxRoom - vlanTag)
		m.Iov = &v[0]
		m.SetIovlen(2)
		m.Control = (*byte)(unsafe.Pointer(&s.aux[i]))
		o, w := &s.out[i].Hdr, s.outIov[2*i:2*i+2]
		w[0].Base = &s.outHead[i][0]
		w[0].SetLen(gso.VnetLen)
		o.Iov = &w[0]
		o.SetIovlen(2)
	}
}

func (s *socket) frame(i int) []byte { return s.room[i*rxRoom : (i+1)*rxRoom : (i+1)*rxRoom] }

// begin starts to receive frames, in promiscuous mode.
func (s *socket) begin() error {
	all := binary.NativeEndian.Uint16([]byte{0, unix.ETH_P_ALL})
	if err := unix.Bind(s.fd, &unix.SockaddrLinklayer{Protocol: all, Ifindex: s.index}); err != nil {
		return s.fail("bind", err)
	}
	m := unix.PacketMreq{Ifindex: int32(s.index), Type: unix.PACKET_MR_PROMISC}
	if err := unix.SetsockoptPacketMreq(s.fd, unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m); err != nil {
		return s.fail("promiscuous mode", err)
	}
	return nil
}

func (s *socket) close() {
	for _, fd := range []*int{&s.fd, &s.reserved} {
		if *fd >= 0 {
			unix.Close(*fd)
			*fd = -1
		}
	}
}

// up reports whether the interface is up. The error says that it was removed. The kernel returns the flags only by the name of the
// interface. If the interface is being renamed, the name is not valid for a moment: up then returns the last state.
func (s *socket) up() (bool, error) {
	name, errno := ethtool.Name(s.fd, s.index)
	if errno != 0 {
		return false, link.Fail("impair", "receive", s.of.String(), link.ErrNoDevice, errors.New("the interface was removed"), "")
	}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return false, s.fail("flags", err)
	}
	switch err := unix.IoctlIfreq(s.fd, unix.SIOCGIFFLAGS, req); err {
	case nil:
		s.wasUp = req.Uint16()&unix.IFF_UP != 0
	case unix.ENODEV:
	default:
		return false, s.fail("flags", err)
	}
	return s.wasUp, nil
}

// receive reads a batch of frames; n is 0 if there are none. changed says that the interface went down
// or up.
func (s *socket) receive() (n int, changed bool, err error) {
	for i := range s.msgs {
		s.msgs[i].Hdr.SetControllen(auxRoom)
	}
	n, errno := s.calls.Receive(s.fd, s.msgs[:s.calls.Most(batch)])
	switch errno {
	case 0:
		return n, false, nil
	case unix.EAGAIN, unix.EINTR:
		return 0, false, nil
	case unix.EINVAL: // the kernel cannot describe a super-packet by a virtio_net_hdr, and drops it
		s.count.Unusable++
		return 0, false, nil
	case unix.ENETDOWN:
		return 0, true, nil
	}
	return 0, false, s.fail("receive", errno)
}

// received is a frame with the kernel's information about it.
type received struct {
	data []byte
	head gso.VnetHeader
	at   time.Time // zero: no time stamp
}

// message returns frame i of the last batch, with its VLAN tag. ok is false if it is damaged.
func (s *socket) message(i int) (f received, ok bool) {
	m := &s.msgs[i]
	n := int(m.Len) - gso.VnetLen
	room := s.frame(i)
	if n < 14 || m.Hdr.Flags&unix.MSG_TRUNC != 0 || n > len(room)-vlanTag {
		return f, false
	}
	f.data = room[vlanTag : vlanTag+n : vlanTag+n]
	f.head.Get(s.vnets[i][:])
	aux := unsafe.Slice((*byte)(unsafe.Pointer(&s.aux[i])), int(m.Hdr.Controllen))
	for len(aux) >= unix.SizeofCmsghdr {
		h, data, rest, err := unix.ParseOneSocketControlMessage(aux)
		if err != nil {
			break
		}
		switch {
		case h.Level == unix.SOL_PACKET && h.Type == unix.PACKET_AUXDATA && len(data) >= int(unsafe.Sizeof(unix.TpacketAuxdata{})):
			f.tag(room, (*unix.TpacketAuxdata)(unsafe.Pointer(&data[0])))
		case h.Level == unix.SOL_SOCKET && h.Type == unix.SO_TIMESTAMPNS && len(data) >= int(unsafe.Sizeof(unix.Timespec{})):
			f.at = time.Unix((*unix.Timespec)(unsafe.Pointer(&data[0])).Unix())
		}
		aux = rest
	}
	return f, true
}

// tag puts the VLAN tag back that the kernel has removed from the frame.
func (f *received) tag(room []byte, a *unix.TpacketAuxdata) {
	if a.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return
	}
	copy(room, f.data[:12])
	f.data = room[: vlanTag+len(f.data) : vlanTag+len(f.data)]
	proto := uint16(unix.ETH_P_8021Q)
	if a.Status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		proto = a.Vlan_tpid
	}
	binary.BigEndian.PutUint16(f.data[12:], proto)
	binary.BigEndian.PutUint16(f.data[14:], a.Vlan_tci)
	if f.head.Flags&gso.NeedsCsum != 0 {
		f.head.CsumStart += vlanTag
	}
	if f.head.HeaderLen != 0 {
		f.head.HeaderLen += vlanTag
	}
}

// send queues a frame that holds this number of packets. data must not change until flush.
func (s *socket) send(data []byte, head *gso.VnetHeader, packets int) {
	if s.queued == batch {
		s.flush()
	}
	i := s.queued
	head.Put(s.outHead[i][:])
	s.outIov[2*i+1].Base = &data[0]
	s.outIov[2*i+1].SetLen(len(data))
	s.packets[i] = packets
	s.queued++
}

// sendCopy queues a copy of data.
func (s *socket) sendCopy(data []byte) {
	if s.queued == batch || len(s.copies)+len(data) > cap(s.copies) {
		s.flush()
		if cap(s.copies) < len(data) || s.copies == nil {
			s.copies = make([]byte, 0, max(1<<20, len(data)))
		}
	}
	at := len(s.copies)
	s.copies = append(s.copies, data...)
	s.send(s.copies[at:], &gso.VnetHeader{}, 1)
}

// maxWait is how long flush waits for an interface that accepts no frame. After that it drops frames without waiting, until the interface
// accepts one again. While flush waits, the bridge forwards nothing in the other direction.
const maxWait = 100 * time.Millisecond

// flush sends all queued frames. It counts those that the interface does not accept as unsent.
func (s *socket) flush() {
	for at := 0; at < s.queued; {
		n, errno := mmsg.Send(s.fd, s.out[at:s.queued])
		switch {
		case errno == 0:
			for _, packets := range s.packets[at : at+n] {
				s.count.Sent += uint64(packets)
			}
			at += n
			s.stuck = false
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && !s.stuck:
			p := []unix.PollFd{{Fd: int32(s.fd), Events: unix.POLLOUT}}
			unix.Poll(p, int(maxWait/time.Millisecond))
			s.stuck = true
		default:
			s.count.Unsent += uint64(s.packets[at])
			at++
		}
	}
	s.queued, s.copies = 0, s.copies[:0]
}

func (s *socket) descriptor() int { return s.fd }

func (s *socket) counters() *Side { return &s.count }

// settle adds the frames that the kernel has dropped to the counters.
func (s *socket) settle() {
	if st, err := unix.GetsockoptTpacketStats(s.fd, unix.SOL_PACKET, unix.PACKET_STATISTICS); err == nil {
		s.count.Overrun += uint64(st.Drops)
	}
}

package impair

import (
	"errors"
	"fmt"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	bpflink "github.com/cilium/ebpf/link"
	"github.com/cilium/ebpf/rlimit"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/gso"
	"github.com/goroce/roce/link"
)

// A bridge can also be in one interface: its two ends are the host's stack and the wire. BPF programs on the interface
// redirect RoCE packets to two tap devices, and the bridge reads them there:
//
//	          egress                   read        packet socket
//	host  ------------> tap "host"  ---------> bridge ---------------> wire
//	host  <------------ tap "host" <---------- bridge <--------------- wire
//	        redirect to            write             read   tap "wire"   ingress
//	        its ingress
//
// The bridge marks the packets that it sends, so that the programs let them pass. The taps and the attachments of the
// programs (TCX links) belong to descriptors of the process: the kernel removes them when the process ends.

// mark is the mark (SO_MARK) of packets that the bridge has handled already.
const mark = 0x524F4345

// Offsets in struct __sk_buff, and values for the programs.
const (
	skbMark        = 8
	skbVLANPresent = 20 // the kernel takes the tag out of a frame before the hooks see it
	tcxNext        = -1
	ingress        = 1 // BPF_F_INGRESS
)

// redirected is the state that both ends share.
type redirected struct {
	of    Interface
	links []bpflink.Link
	progs []*ebpf.Program
	taps  [2]*tap // host, wire
	wire  *socket // sends to the wire
}

// redirect opens the two ends of a bridge in one interface.
func redirect(i Interface, buffer int) (ends [2]end, err error) {
	s, err := open(i, buffer, false)
	if err != nil {
		return ends, err
	}
	r := &redirected{of: i, wire: s}
	if err := i.entered(r.setUp); err != nil {
		r.close()
		return ends, err
	}
	names := (&Config{A: i}).Ends()
	s.count.Interface = names[1]
	host := &hostEnd{tapEnd{r, r.taps[0], &Side{Interface: names[0]}}}
	return [2]end{host, &wireEnd{tapEnd{r, r.taps[1], &s.count}}}, nil
}

func (r *redirected) fail(step string, err error, hint string) error {
	return link.Fail("impair", step, r.of.String(), nil, err, hint)
}

// setUp creates the taps and loads the programs. It does not attach them.
func (r *redirected) setUp() error {
	if err := unix.SetsockoptInt(r.wire.fd, unix.SOL_SOCKET, unix.SO_MARK, mark); err != nil {
		return r.fail("SO_MARK", err, "CAP_NET_ADMIN is needed")
	}
	if err := unix.Bind(r.wire.fd, &unix.SockaddrLinklayer{Ifindex: r.wire.index}); err != nil {
		return r.fail("bind", err, "")
	}
	for i := range r.taps {
		t, err := newTap(r.wire.mtu)
		if err != nil {
			return r.fail("tap device", err, "CAP_NET_ADMIN and /dev/net/tun are needed")
		}
		r.taps[i] = t
	}
	if err := rlimit.RemoveMemlock(); err != nil {
		return r.fail("locked memory", err, "")
	}
	for _, p := range []struct {
		name string
		code asm.Instructions
	}{
		{"impair_inject", inject(r.wire.index)},
		{"impair_egress", divert(r.taps[0].index)},
		{"impair_ingress", divert(r.taps[1].index)},
	} {
		prog, err := ebpf.NewProgram(&ebpf.ProgramSpec{Name: p.name, Type: ebpf.SchedCLS, License: "MIT", Instructions: p.code})
		if err != nil {
			return r.fail("program "+p.name, err, "CAP_BPF and CAP_NET_ADMIN are needed")
		}
		r.progs = append(r.progs, prog)
	}
	return nil
}

// begin attaches the programs for both ends. The second call does nothing.
func (r *redirected) begin() error {
	if len(r.links) > 0 {
		return nil
	}
	return r.of.entered(func() error {
		for i, a := range []struct {
			index int
			at    ebpf.AttachType
		}{{r.taps[0].index, ebpf.AttachTCXIngress}, {r.wire.index, ebpf.AttachTCXEgress}, {r.wire.index, ebpf.AttachTCXIngress}} {
			l, err := bpflink.AttachTCX(bpflink.TCXOptions{Interface: a.index, Program: r.progs[i], Attach: a.at})
			if err != nil {
				return r.fail("redirect", err, "one interface needs Linux 6.6 (TCX); with two interfaces any Linux will do")
			}
			r.links = append(r.links, l)
		}
		return nil
	})
}

// close detaches the programs, so that packets pass again, and removes the taps.
func (r *redirected) close() {
	for _, l := range r.links {
		l.Close()
	}
	for _, p := range r.progs {
		p.Close()
	}
	for _, t := range r.taps {
		if t != nil {
			t.close()
		}
	}
	r.links, r.progs, r.taps = nil, nil, [2]*tap{}
	r.wire.close()
}

// divert returns a program that redirects RoCE packets to an interface, except those that the bridge has handled. It lets packets
// with a VLAN tag, IP options or extension headers, and fragments, pass.
func divert(to int) asm.Instructions {
	const ethernet, next, ours, ipv4, take = 14, "next", "ours", "ipv4", "take"
	return asm.Instructions{
		asm.Mov.Reg(asm.R6, asm.R1), // LoadAbs needs the context in R6
		asm.LoadMem(asm.R0, asm.R6, skbMark, asm.Word),
		asm.JEq.Imm(asm.R0, mark, ours),
		asm.LoadMem(asm.R0, asm.R6, skbVLANPresent, asm.Word),
		asm.JNE.Imm(asm.R0, 0, next),
		asm.LoadAbs(12, asm.Half),
		asm.JEq.Imm(asm.R0, 0x0800, ipv4),
		asm.JNE.Imm(asm.R0, 0x86DD, next),
		asm.LoadAbs(ethernet+6, asm.Byte),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, next),
		asm.LoadAbs(ethernet+40+2, asm.Half),
		asm.JNE.Imm(asm.R0, bth.UDPPort, next),
		asm.Ja.Label(take),
		asm.LoadAbs(ethernet, asm.Byte).WithSymbol(ipv4),
		asm.JNE.Imm(asm.R0, 0x45, next),
		asm.LoadAbs(ethernet+6, asm.Half),
		asm.And.Imm(asm.R0, 0x3FFF),
		asm.JNE.Imm(asm.R0, 0, next),
		asm.LoadAbs(ethernet+9, asm.Byte),
		asm.JNE.Imm(asm.R0, unix.IPPROTO_UDP, next),
		asm.LoadAbs(ethernet+20+2, asm.Half),
		asm.JNE.Imm(asm.R0, bth.UDPPort, next),
		asm.Mov.Imm(asm.R1, int32(to)).WithSymbol(take),
		asm.Mov.Imm(asm.R2, 0),
		asm.FnRedirect.Call(),
		asm.Return(),
		asm.Mov.Imm(asm.R0, 0).WithSymbol(ours),
		asm.StoreMem(asm.R6, skbMark, asm.R0, asm.Word),
		asm.Mov.Imm(asm.R0, tcxNext).WithSymbol(next),
		asm.Return(),
	}
}

// inject returns a program that passes the frames that are written to a tap on to the stack, as if interface to had received them.
func inject(to int) asm.Instructions {
	return asm.Instructions{
		asm.Mov.Imm(asm.R0, mark),
		asm.StoreMem(asm.R1, skbMark, asm.R0, asm.Word),
		asm.Mov.Imm(asm.R1, int32(to)),
		asm.Mov.Imm(asm.R2, ingress),
		asm.FnRedirect.Call(),
		asm.Return(),
	}
}

// tapEnd is what both ends have in common: the bridge receives with a tap.
type tapEnd struct {
	*redirected
	tap   *tap
	count *Side
}

func (e *tapEnd) message(i int) (received, bool) { return e.tap.message(i) }
func (e *tapEnd) up() (bool, error)              { return e.wire.up() }
func (e *tapEnd) counters() *Side                { return e.count }
func (e *tapEnd) settle()                        { e.count.Overrun += e.dropped(e.tap) }
func (e *tapEnd) descriptor() int                { return e.tap.fd }

func (e *tapEnd) receive() (n int, changed bool, err error) {
	n, err = e.tap.receive()
	if err != nil {
		err = e.fail("receive", fmt.Errorf("tap device: %w", err), "")
	}
	return n, false, err
}

// hostEnd is the end towards the host's stack. The bridge also sends with the tap.
type hostEnd struct{ tapEnd }

func (e *hostEnd) send(b []byte, _ *gso.VnetHeader, _ int) { e.sendCopy(b) }
func (e *hostEnd) flush()                                  {}

func (e *hostEnd) sendCopy(data []byte) {
	if _, err := unix.Write(e.tap.fd, data); err != nil {
		e.count.Unsent++
		return
	}
	e.count.Sent++
}

// wireEnd is the end towards the wire. The bridge sends with the packet socket.
type wireEnd struct{ tapEnd }

func (e *wireEnd) send(b []byte, head *gso.VnetHeader, n int) { e.wire.send(b, head, n) }
func (e *wireEnd) sendCopy(data []byte)                       { e.wire.sendCopy(data) }
func (e *wireEnd) flush()                                     { e.wire.flush() }
func (e *wireEnd) close()                                     {} // hostEnd closes what both ends share

// tap is a tap device that lives as long as its descriptor.
type tap struct {
	fd    int
	index int
	room  [batch][]byte
	size  [batch]int
}

// tapQueue is the length of a tap's queue, in frames.
const tapQueue = 8192

// newTap creates a tap device in the network namespace of the thread.
func newTap(mtu int) (*tap, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	t := &tap{fd: fd}
	req, err := unix.NewIfreq("impair%d")
	if err == nil {
		req.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err == nil {
		err = t.start(req.Name(), mtu)
	}
	if err != nil {
		t.close()
		return nil, err
	}
	for i := range t.room { // large enough for any frame, because the MTU of the interface may grow; unused pages take no memory
		t.room[i] = make([]byte, rxRoom)
	}
	return t, nil
}

// start brings the device up, without addresses.
func (t *tap) start(name string, mtu int) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	t.index = l.Attrs().Index
	return errors.Join(
		netlink.LinkSetIP6AddrGenMode(l, 1), // none
		netlink.LinkSetMTU(l, mtu),
		netlink.LinkSetTxQLen(l, tapQueue),
		netlink.LinkSetUp(l))
}

func (t *tap) close() { unix.Close(t.fd) }

// receive reads the frames that the programs have redirected.
func (t *tap) receive() (n int, err error) {
	for n < batch {
		size, err := unix.Read(t.fd, t.room[n])
		switch err {
		case nil:
			t.size[n] = size
			n++
		case unix.EAGAIN:
			return n, nil
		case unix.EINTR:
		default:
			return n, err
		}
	}
	return n, nil
}

// message returns frame i. ok is false for frames that the kernel itself sends on the tap, for example neighbour discovery.
func (t *tap) message(i int) (f received, ok bool) {
	f.data = t.room[i][:t.size[i]]
	_, ok = gso.Look(f.data)
	return f, ok
}

// dropped returns how many frames a tap has dropped because its queue was full.
func (r *redirected) dropped(t *tap) (n uint64) {
	r.of.entered(func() error {
		l, err := netlink.LinkByIndex(t.index)
		if err == nil && l.Attrs().Statistics != nil {
			n = l.Attrs().Statistics.TxDropped
		}
		return err
	})
	return n
}

// Package fipingpong is fi_pingpong of libfabric, over connected endpoints of the verbs
// provider (-p verbs -e msg): two ends exchange their addresses over TCP, connect by package
// ofi and send messages back and forth.
package fipingpong

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/ofi"
)

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 47592

// AllSizes is the value of Config.Size for six sizes from 64 bytes to 1 MiB, fi_pingpong's default.
const AllSizes = -1

// Config are fi_pingpong's options.
type Config struct {
	Iterations int          // -I; 0: 10
	Size       int          // -S bytes of a message, or AllSizes
	Check      bool         // -c: check the data
	Local      netip.Addr   // address of the NIC to use; invalid: the first
	Out        io.Writer    // the table; nil: nowhere
	Result     func(Result) // called for each line of the table; may be nil
}

// DefaultIterations is how often a message of each size is sent to and fro.
const DefaultIterations = 10

var defaultSizes = []int{64, 256, 1024, 4096, 65536, 1048576}

// Result is one line of the table.
type Result struct {
	Size    int           `json:"bytes"`
	Sent    int           `json:"sent"`
	Elapsed time.Duration `json:"elapsed_ns"`
}

const header = "bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec"

// String is the line as fi_pingpong prints it.
func (r Result) String() string {
	us := float64(r.Elapsed) / float64(time.Microsecond)
	total := 2 * r.Size * r.Sent
	perXfer := us / float64(2*r.Sent)
	return fmt.Sprintf("%-8s%-8s=%-8s%-8s%8.2fs%10.2f%11.2f%11.2f", sizeText(r.Size), countText(r.Sent), countText(r.Sent), sizeText(total),
		r.Elapsed.Seconds(), float64(total)/us, perXfer, 1/perXfer)
}

// end is one end of a test.
type end struct {
	Config
	client bool
	ctl    *oob.Conn
	fabric *ofi.Fabric
	domain *ofi.Domain
	eq     *ofi.EQ
	tx, rx *ofi.CQ
	ep     *ofi.Endpoint
	mr     *ofi.MR
	send   []byte
	recv   []byte
	filled int
	seen   int
}

// Server serves one client. It calls listening when the client can connect to the TCP address
// addr ("host:port").
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) error {
	ctl, err := oob.Accept(ctx, addr, listening)
	if err != nil {
		return err
	}
	return run(ctx, d, c, ctl, false, (*end).serve)
}

// Client runs the test with a server, whose TCP address is addr ("host:port").
func Client(ctx context.Context, d *roce.Device, addr string, c Config) error {
	ctl, err := oob.Dial(ctx, addr)
	if err != nil {
		return err
	}
	return run(ctx, d, c, ctl, true, (*end).dial)
}

func run(ctx context.Context, d *roce.Device, c Config, ctl *oob.Conn, client bool, connect func(*end, context.Context, *roce.Device) error) (err error) {
	defer ctl.Close()
	c.Iterations = cmp.Or(c.Iterations, DefaultIterations)
	if c.Out == nil {
		c.Out = io.Discard
	}
	e := &end{Config: c, client: client, ctl: ctl}
	info, err := ofi.GetInfo(d, "", "", 0, nil)
	if err != nil {
		return err
	}
	if e.fabric, err = ofi.OpenFabric(info); err != nil {
		return err
	}
	e.eq = e.fabric.OpenEQ()
	defer func() {
		if e.ep != nil {
			err = errors.Join(err, e.ep.Close())
		}
		err = errors.Join(err, e.eq.Close())
	}()
	if e.domain, err = e.fabric.OpenDomain(info); err != nil {
		return err
	}
	room := max(c.Size, defaultSizes[len(defaultSizes)-1])
	e.send, e.recv = make([]byte, room), make([]byte, room)
	if err := connect(e, ctx, d); err != nil {
		return err
	}
	return e.test(ctx)
}

// open creates the endpoint, and posts the first receive.
func (e *end) open(info *ofi.Info) (err error) {
	for _, q := range []**ofi.CQ{&e.tx, &e.rx} {
		if *q, err = e.domain.OpenCQ(0, ofi.FormatMsg); err != nil {
			return err
		}
	}
	if e.ep, err = e.domain.OpenEndpoint(info, nil); err != nil {
		return err
	}
	if e.mr, err = e.domain.RegMR(e.recv, ofi.RecvAccess); err != nil {
		return err
	}
	return errors.Join(e.ep.BindEQ(e.eq), e.ep.BindCQ(e.tx, true, false), e.ep.BindCQ(e.rx, false, true), e.ep.Enable(), e.post())
}

func (e *end) post() error { return e.ep.Recv(e.recv, e.mr.Desc(), nil) }

// serve sends the address of an endpoint to the client and accepts its connection.
func (e *end) serve(ctx context.Context, d *roce.Device) error {
	local := e.Local
	if !local.IsValid() {
		i, err := oob.ChooseGID(d, -1, e.ctl.Peer())
		if err != nil {
			return err
		}
		local = d.GIDs()[i].Addr()
	}
	info, err := ofi.GetInfo(d, local.String(), "0", ofi.Source, nil)
	if err != nil {
		return err
	}
	pep, err := e.fabric.OpenPassive(info, e.eq, nil)
	if err != nil {
		return err
	}
	if err := pep.Listen(); err != nil {
		return err
	}
	defer pep.Close()
	if _, err := e.ctl.Write(appendName(nil, netip.AddrPortFrom(local, pep.Name().Port()))); err != nil {
		return err
	}
	ev, err := e.event(ctx, ofi.ConnRequest)
	if err != nil {
		return err
	}
	if err := errors.Join(e.open(ev.Info), e.ep.Accept(nil)); err != nil {
		return errors.Join(err, ev.Info.Request.Reject(nil))
	}
	_, err = e.event(ctx, ofi.Connected)
	return err
}

// dial connects to the endpoint whose address the server sends.
func (e *end) dial(ctx context.Context, d *roce.Device) error {
	to, err := readName(e.ctl)
	if err != nil {
		return err
	}
	info, err := ofi.GetInfo(d, to.Addr().String(), fmt.Sprint(to.Port()), 0, &ofi.Info{Src: netip.AddrPortFrom(e.Local, 0)})
	if err != nil {
		return err
	}
	if err := e.open(info); err != nil {
		return err
	}
	if err := e.ep.Connect(to, nil); err != nil {
		return err
	}
	_, err = e.event(ctx, ofi.Connected)
	return err
}

func (e *end) event(ctx context.Context, want ofi.EventType) (ofi.Event, error) {
	ev, err := e.eq.Read(ctx)
	if err == nil && ev.Type != want {
		err = fmt.Errorf("event %v, expected %v: %w", ev.Type, want, syscall.EPROTO)
	}
	return ev, err
}

// test sends messages of every size, then "fin".
func (e *end) test(ctx context.Context) error {
	mr, err := e.domain.RegMR(e.send, ofi.SendAccess)
	if err != nil {
		return err
	}
	sizes := defaultSizes
	if e.Size >= 0 {
		sizes = []int{e.Size}
	}
	fmt.Fprintln(e.Out, header)
	for _, size := range sizes {
		r, err := e.round(ctx, mr, size)
		if err != nil {
			return fmt.Errorf("%d bytes: %w", size, err)
		}
		fmt.Fprintln(e.Out, r)
		if e.Result != nil {
			e.Result(r)
		}
	}
	copy(e.send, "fin\x00")
	// A peer that disconnects has received it, even if the acknowledgement was lost.
	if err := e.transmit(ctx, mr, 4); err != nil && !errors.Is(err, syscall.ECANCELED) {
		return err
	}
	n, err := e.arrived(ctx)
	if err == nil && (n != 4 || string(e.recv[:4]) != "fin\x00") {
		err = fmt.Errorf("the peer sent %d bytes at the end, want fin: %w", n, syscall.EPROTO)
	}
	if err == nil {
		e.ctl.Linger(lingerLimit)
	}
	return err
}

// lingerLimit is how long an end lingers for a peer that did not receive its last acknowledgement: a few times the
// acknowledgement timeout.
const lingerLimit = 5 * time.Second

// round is the test of one size: the ends synchronise by TCP, send to and fro, and compare how
// many messages arrived.
func (e *end) round(ctx context.Context, mr *ofi.MR, size int) (r Result, err error) {
	if err := e.converse("q\x00", "a\x00"); err != nil {
		return r, err
	}
	out := func() error {
		if e.Check {
			e.filled = pattern(e.send[:size], e.filled, nil)
		}
		return e.transmit(ctx, mr, size)
	}
	in := func() error {
		n, err := e.arrived(ctx)
		switch {
		case err != nil:
			return err
		case n != size:
			return fmt.Errorf("a message of %d bytes: %w: give both ends the same -S", n, syscall.EPROTO)
		}
		if e.Check {
			if e.seen = pattern(e.recv[:size], e.seen, &err); err != nil {
				return err
			}
		}
		return e.post()
	}
	start := time.Now()
	for range e.Iterations {
		if err := oob.InOrder(e.client, out, in); err != nil {
			return r, err
		}
	}
	r = Result{size, e.Iterations, time.Since(start)}
	count := append([]byte(fmt.Sprint(e.Iterations)), make([]byte, countLen)...)[:countLen]
	return r, e.converse(string(count), "cnt ok\x00")
}

// countLen is the length of the number of messages that the client sends, with NULs behind it.
const countLen = 10

func (e *end) transmit(ctx context.Context, mr *ofi.MR, n int) error {
	if err := e.ep.Send(e.send[:n], mr.Desc(), nil); err != nil {
		return err
	}
	_, err := e.tx.SRead(ctx, make([]ofi.Entry, 1))
	return err
}

// arrived waits for a message and returns its length.
func (e *end) arrived(ctx context.Context) (int, error) {
	var entry [1]ofi.Entry
	_, err := e.rx.SRead(ctx, entry[:])
	return entry[0].Len, err
}

// converse makes the client send a question, and the server the answer.
func (e *end) converse(question, answer string) error {
	mine, theirs := question, answer
	if !e.client {
		mine, theirs = answer, question
	}
	send := func() error {
		_, err := io.WriteString(e.ctl, mine)
		return err
	}
	return oob.InOrder(e.client, send, func() error {
		b := make([]byte, len(theirs))
		if _, err := io.ReadFull(e.ctl, b); err != nil {
			return err
		}
		if string(b) != theirs && len(b) != countLen { // like fi_pingpong, the server accepts any count
			return fmt.Errorf("the peer sent %q instead of %q: %w: give both ends the same -I and -S", b, theirs, syscall.EPROTO)
		}
		return nil
	})
}

// alphabet fills messages with -c. Each message begins 7 letters after the one before.
const alphabet = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// pattern fills b as the message with a number and returns the next number. If wrong is not nil
// it compares b instead and sets wrong to the first difference.
func pattern(b []byte, number int, wrong *error) int {
	for i := range b {
		c := alphabet[(number*7+i)%len(alphabet)]
		switch {
		case wrong == nil:
			b[i] = c
		case b[i] != c && *wrong == nil:
			*wrong = fmt.Errorf("message %d, byte %d is %q, want %q: %w", number, i, b[i], c, syscall.EBADMSG)
		}
	}
	return number + 1
}

// Address formats of libfabric.
const (
	formatIPv4 = 2 // FI_SOCKADDR_IN
	formatIPv6 = 3 // FI_SOCKADDR_IN6
)

// appendName appends an address as fi_pingpong sends it: its length, its format in
// the host's byte order, a struct sockaddr_in or sockaddr_in6.
func appendName(b []byte, a netip.AddrPort) []byte {
	var sa []byte
	format := uint32(formatIPv4)
	if a.Addr().Is4() {
		sa = binary.NativeEndian.AppendUint16(sa, syscall.AF_INET)
		sa = binary.BigEndian.AppendUint16(sa, a.Port())
		ip := a.Addr().As4()
		sa = append(append(sa, ip[:]...), make([]byte, 8)...)
	} else {
		format = formatIPv6
		sa = binary.NativeEndian.AppendUint16(sa, linuxAFInet6)
		sa = binary.BigEndian.AppendUint16(sa, a.Port())
		ip := a.Addr().As16()
		sa = append(append(append(sa, 0, 0, 0, 0), ip[:]...), 0, 0, 0, 0)
	}
	b = binary.BigEndian.AppendUint32(b, uint32(len(sa)))
	b = binary.NativeEndian.AppendUint32(b, format)
	return append(b, sa...)
}

// linuxAFInet6 is the value of AF_INET6 on the wire, on all systems.
const linuxAFInet6 = 10

// readName reads an address in the format of appendName.
func readName(r io.Reader) (netip.AddrPort, error) {
	var head [8]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return netip.AddrPort{}, err
	}
	n, format := binary.BigEndian.Uint32(head[:]), binary.NativeEndian.Uint32(head[4:])
	if !(format == formatIPv4 && n == 16 || format == formatIPv6 && n == 28) {
		return netip.AddrPort{}, fmt.Errorf("an address of %d bytes in format %d is no IP address: %w", n, format, syscall.EPROTO)
	}
	sa := make([]byte, n)
	if _, err := io.ReadFull(r, sa); err != nil {
		return netip.AddrPort{}, err
	}
	ip := sa[4:8]
	if format == formatIPv6 {
		ip = sa[8:24]
	}
	a, _ := netip.AddrFromSlice(ip)
	return netip.AddrPortFrom(a, binary.BigEndian.Uint16(sa[2:])), nil
}

// sizeText prints bytes as fi_pingpong does: "64", "4k", "1m".
func sizeText(n int) string { return scaled(n, 1<<10, 1<<20, 1<<30) }

// countText prints a number as fi_pingpong does: "10", "100k".
func countText(n int) string { return scaled(n, 1e3, 1e6, 1e9) }

func scaled(n int, k, m, g int) string {
	for _, u := range []struct {
		base int
		unit string
	}{{g, "g"}, {m, "m"}, {k, "k"}} {
		switch {
		case n < u.base:
		case n%u.base == 0:
			return fmt.Sprintf("%d%s", n/u.base, u.unit)
		default:
			return fmt.Sprintf("%.1f%s", float64(n)/float64(u.base), u.unit)
		}
	}
	return fmt.Sprint(n)
}

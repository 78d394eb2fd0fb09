package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
)

// Test is one of perftest's programs.
type Test struct {
	Name  string // the program's, without "ib_"
	Title string // what it says it is
	Size  int    // bytes of a message, unless told otherwise
	Fixed bool   // no other size is possible
	Iters int    // messages, unless told otherwise

	// What the server's queue pair and memory allow.
	access roce.Access
	// reads: the operation is answered with data, so it counts against what the
	// other end answers at a time.
	reads bool
	// twoSided: the server has its part in the work. It asks for one more handshake
	// before and measures for itself; otherwise the client reports to it.
	twoSided bool
	// work makes the client's part, serve the server's.
	work  func(e *end, remote Dest) (work, error)
	serve func(e *end) (service, error)
}

// work is what a client does, once the connection stands.
type work interface {
	// prepare and verify go before and behind what is measured.
	prepare(ctx context.Context) error
	verify(ctx context.Context) error
	// fill makes the i-th work request; check looks at what it has brought.
	fill(i int, wr *roce.SendWR)
	check(i int) error
}

// service is what a server does meanwhile.
type service interface {
	// serve returns when the client has finished, with what was measured.
	serve(ctx context.Context, s *session) (Report, error)
}

// Reads reports whether the operation is answered with data, which -o limits.
func (t Test) Reads() bool { return t.reads }

// TwoSided reports whether the server receives messages.
func (t Test) TwoSided() bool { return t.twoSided }

// Atomics reports whether there is an operation to choose.
func (t Test) Atomics() bool { return t.access == roce.RemoteAtomic }

// Tests are the programs there are.
var Tests = []Test{
	{Name: "send_bw", Title: "Send BW Test", Size: 65536, Iters: 1000, twoSided: true,
		work: newSends, serve: newReceives},
	{Name: "write_bw", Title: "RDMA_Write BW Test", Size: 65536, Iters: 5000, access: roce.RemoteWrite,
		work: newWrites, serve: newTarget},
	{Name: "read_bw", Title: "RDMA_Read BW Test", Size: 65536, Iters: 1000, access: roce.RemoteRead, reads: true,
		work: newReads, serve: newSource},
	{Name: "atomic_bw", Title: "Atomic %s BW Test", Size: 8, Fixed: true, Iters: 1000, access: roce.RemoteAtomic, reads: true,
		work: newAtomics, serve: newCells},
}

// Find returns a test by its name.
func Find(name string) (Test, bool) {
	for _, t := range Tests {
		if t.Name == name {
			return t, true
		}
	}
	return Test{}, false
}

// Config are the options of perftest's programs. [Test.Config] has the defaults.
type Config struct {
	Test     Test
	Atomic   AtomicType // -A
	Size     int        // bytes of a message (-s)
	Iters    int        // messages (-n)
	TxDepth  int        // messages under way (-t)
	RxDepth  int        // receives kept posted (-r)
	OutReads int        // READs and atomics under way, and answered at a time (-o)
	MTU      roce.MTU   // path MTU (-m); 0: the port's
	GIDIndex int        // own address (-x); negative: one that suits the peer
	Timeout  uint8      // ACK timeout code of the queue pair (-u)
	NoPeak   bool       // look for no peak (-N)
	Out      io.Writer  // where the course of things is printed; nil: nowhere
}

// Config returns what the program does without flags.
func (t Test) Config() Config {
	c := Config{Test: t, Atomic: FetchAndAdd, Size: t.Size, Iters: t.Iters, TxDepth: 128, RxDepth: 1, OutReads: maxOutReads, GIDIndex: -1, Timeout: 14}
	if t.twoSided {
		c.RxDepth = 512
	}
	return c
}

// Limits of the options: perftest's, and those of a queue pair.
const (
	minIters    = 5
	maxIters    = 100_000_000
	maxTxDepth  = 15000
	maxRxDepth  = 16384
	maxMemory   = 1 << 30 // for all that is under way
	maxOutReads = 128
	maxSize     = 1 << 23
)

func (c *Config) check(d *roce.Device) error {
	active := d.Query().PathMTU
	if c.MTU == 0 {
		c.MTU = active
	}
	switch {
	case c.Iters < minIters || c.Iters > maxIters:
		return fmt.Errorf("perftest: %d messages: want %d to %d", c.Iters, minIters, maxIters)
	case c.TxDepth < 1 || c.TxDepth > maxTxDepth:
		return fmt.Errorf("perftest: TX depth %d: want 1 to %d", c.TxDepth, maxTxDepth)
	case c.RxDepth < 1 || c.RxDepth > maxRxDepth:
		return fmt.Errorf("perftest: RX depth %d: want 1 to %d", c.RxDepth, maxRxDepth)
	case c.OutReads < 1 || c.OutReads > maxOutReads:
		return fmt.Errorf("perftest: %d outstanding READs and atomics: want 1 to %d", c.OutReads, maxOutReads)
	case c.Size < 1 || c.Size > maxSize:
		return fmt.Errorf("perftest: size %d: want 1 to %d", c.Size, maxSize)
	case c.Size*max(c.TxDepth, c.RxDepth) > maxMemory:
		return fmt.Errorf("perftest: size %d, %d sent and %d received at a time: that takes more than %d bytes", c.Size, c.TxDepth, c.RxDepth, maxMemory)
	case c.Test.Fixed && c.Size != c.Test.Size:
		return fmt.Errorf("perftest: size %d: %s has %d only", c.Size, c.Test.Name, c.Test.Size)
	case !c.MTU.Valid() || c.MTU > active:
		return fmt.Errorf("perftest: path MTU %v: want 256, 512, 1024, 2048 or 4096, at most the port's %v", c.MTU, active)
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return nil
}

// ErrMismatch is memory that holds something else than the operations must have
// left there, or an operation that has returned something else than was there.
var ErrMismatch = errors.New("perftest: data mismatch")

// Client connects to a server over TCP and does its work. addr is "host:port".
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (Report, error) {
	if err := c.check(d); err != nil {
		return Report{}, err
	}
	tcp, err := oob.Dial(ctx, addr)
	if err != nil {
		return Report{}, err
	}
	defer tcp.Close()
	return c.meet(ctx, d, tcp, &session{ReadWriter: tcp})
}

// Server waits for one client on a TCP address ("host:port", host may be empty),
// exports memory to it, and returns what the client has measured. listening is called
// when it can be connected to.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (Report, error) {
	if err := c.check(d); err != nil {
		return Report{}, err
	}
	tcp, err := oob.Accept(ctx, addr, listening)
	if err != nil {
		return Report{}, err
	}
	defer tcp.Close()
	return c.meet(ctx, d, tcp, &session{ReadWriter: tcp, server: true})
}

// meet is what both ends do: they agree, make their queue pairs, connect them, do
// what is theirs, and part.
func (c *Config) meet(ctx context.Context, d *roce.Device, tcp *oob.Conn, s *session) (Report, error) {
	t, err := s.negotiate(c.MTU)
	if err != nil {
		return Report{}, err
	}
	e, err := newEnd(d, c, t, tcp.Peer())
	if err != nil {
		return Report{}, err
	}
	defer e.close()
	c.announce(t)
	remote, err := s.handshake(e.local)
	if err != nil {
		return Report{}, err
	}
	fmt.Fprintf(c.Out, " local address:  %v\n remote address: %v\n%s\n", e.local, remote, rule)
	if err := e.connect(ctx, remote); err != nil {
		return Report{}, err
	}
	part := e.client
	if s.server {
		part = e.server
	}
	r, err := part(ctx, s, remote)
	if err != nil {
		return Report{}, err
	}
	return r, s.finish(e.local)
}

// client is the client's part, once its queue pair is connected.
func (e *end) client(ctx context.Context, s *session, remote Dest) (Report, error) {
	w, err := e.cfg.Test.work(e, remote)
	if err != nil {
		return Report{}, err
	}
	if err := e.ready(s); err != nil {
		return Report{}, err
	}
	if err := w.prepare(ctx); err != nil {
		return Report{}, err
	}
	posted, completed, err := e.run(ctx, e.cfg.Iters, w)
	if err != nil {
		return Report{}, err
	}
	if err := w.verify(ctx); err != nil {
		return Report{}, err
	}
	r := newReport(e.cfg.Size, posted, completed, !e.cfg.NoPeak)
	if !e.cfg.Test.twoSided {
		_, err = e.swapReports(s, r)
	}
	return r, err
}

// server is the server's.
func (e *end) server(ctx context.Context, s *session, _ Dest) (Report, error) {
	v, err := e.cfg.Test.serve(e)
	if err != nil {
		return Report{}, err
	}
	if err := e.ready(s); err != nil {
		return Report{}, err
	}
	return v.serve(ctx, s)
}

// ready makes the handshakes behind the first: this end is connected and can begin.
func (e *end) ready(s *session) error {
	n := 2
	if e.cfg.Test.twoSided {
		n++
	}
	for range n {
		if _, err := s.handshake(e.local); err != nil {
			return err
		}
	}
	return nil
}

// swapReports ends the work of a test whose server sees nothing of it.
func (e *end) swapReports(s *session, mine Report) (Report, error) {
	if _, err := s.handshake(e.local); err != nil {
		return Report{}, err
	}
	return s.report(mine)
}

// announce prints what will be done.
func (c *Config) announce(t terms) {
	title := c.Test.Title
	if c.Test.Atomics() {
		title = fmt.Sprintf(title, c.Atomic)
	}
	fmt.Fprintf(c.Out, "%s\n                    %s\n TX depth        : %d\n Mtu             : %d[B]\n", rule, title, c.TxDepth, t.mtu.Bytes())
	if c.Test.twoSided {
		fmt.Fprintf(c.Out, " RX depth        : %d\n", c.RxDepth)
	}
	if c.Test.reads {
		fmt.Fprintf(c.Out, " Outstand reads  : %d\n", c.OutReads)
	}
	fmt.Fprintln(c.Out, rule)
}

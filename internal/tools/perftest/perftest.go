package perftest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

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
	// work makes the client's part, serve the server's.
	work  func(e *end, remote Dest) work
	serve func(e *end) service
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

// service is what a server has exported.
type service interface {
	// verify looks at it when the client has finished.
	verify(r Report) error
}

// Tests are the programs there are.
var Tests = []Test{
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
	OutReads int        // READs and atomics under way, and answered at a time (-o)
	MTU      roce.MTU   // path MTU (-m); 0: the port's
	GIDIndex int        // own address (-x); negative: one that suits the peer
	Timeout  uint8      // ACK timeout code of the queue pair (-u)
	NoPeak   bool       // look for no peak (-N)
	Out      io.Writer  // where the course of things is printed; nil: nowhere
}

// Config returns what the program does without flags.
func (t Test) Config() Config {
	return Config{Test: t, Atomic: FetchAndAdd, Size: t.Size, Iters: t.Iters, TxDepth: 128, OutReads: maxOutReads, GIDIndex: -1, Timeout: 14}
}

// Limits of the options: perftest's, and those of a queue pair.
const (
	minIters    = 5
	maxIters    = 100_000_000
	maxTxDepth  = 15000
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
	case c.OutReads < 1 || c.OutReads > maxOutReads:
		return fmt.Errorf("perftest: %d outstanding READs and atomics: want 1 to %d", c.OutReads, maxOutReads)
	case c.Size < 1 || c.Size > maxSize:
		return fmt.Errorf("perftest: size %d: want 1 to %d", c.Size, maxSize)
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
	return c.meet(ctx, d, tcp, &session{ReadWriter: tcp}, func(e *end, s *session, remote Dest) (Report, error) {
		w := c.Test.work(e, remote)
		if err := w.prepare(ctx); err != nil {
			return Report{}, err
		}
		posted, completed, err := e.run(ctx, c.Iters, w)
		if err != nil {
			return Report{}, err
		}
		if err := w.verify(ctx); err != nil {
			return Report{}, err
		}
		r := newReport(c.Size, posted, completed, !c.NoPeak)
		if _, err := s.handshake(e.local); err != nil {
			return Report{}, err
		}
		_, err = s.report(r)
		return r, err
	})
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
	return c.meet(ctx, d, tcp, &session{ReadWriter: tcp, server: true}, func(e *end, s *session, _ Dest) (Report, error) {
		if _, err := s.handshake(e.local); err != nil {
			return Report{}, err
		}
		r, err := s.report(Report{})
		if err != nil {
			return Report{}, err
		}
		return r, e.service.verify(r)
	})
}

// meet is what both ends do: they agree, make their queue pairs, connect them, do
// what is theirs, and part.
func (c *Config) meet(ctx context.Context, d *roce.Device, tcp *oob.Conn, s *session, body func(*end, *session, Dest) (Report, error)) (Report, error) {
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
	for range 2 { // both are connected; both know
		if _, err := s.handshake(e.local); err != nil {
			return Report{}, err
		}
	}
	r, err := body(e, s, remote)
	if err != nil {
		return Report{}, err
	}
	fmt.Fprintln(c.Out, head)
	return r, s.finish(e.local)
}

// announce prints what will be done.
func (c *Config) announce(t terms) {
	title := c.Test.Title
	if c.Test.access == roce.RemoteAtomic {
		title = fmt.Sprintf(title, c.Atomic)
	}
	fmt.Fprintf(c.Out, "%s\n                    %s\n TX depth        : %d\n Mtu             : %d[B]\n Outstand reads  : %d\n%s\n",
		rule, title, c.TxDepth, t.mtu.Bytes(), c.OutReads, rule)
}

// run posts n work requests, TxDepth of them at a time, and says when each was
// posted and completed.
func (e *end) run(ctx context.Context, n int, w work) (posted, completed []time.Duration, err error) {
	posted, completed = make([]time.Duration, 0, n), make([]time.Duration, 0, n)
	start := time.Now()
	var wr roce.SendWR
	var wcs [16]roce.WC
	for len(completed) < n {
		for len(posted) < n && len(posted)-len(completed) < e.cfg.TxDepth {
			i := len(posted)
			w.fill(i, &wr)
			wr.ID = uint64(i)
			posted = append(posted, time.Since(start))
			if err := e.qp.PostSend(&wr); err != nil {
				return nil, nil, err
			}
		}
		got := e.cq.Poll(wcs[:])
		if got == 0 {
			if err := e.cq.Wait(ctx); err != nil {
				return nil, nil, err
			}
		}
		for _, wc := range wcs[:got] {
			i := len(completed)
			if err := wc.Status.Err(); err != nil {
				return nil, nil, fmt.Errorf("perftest: message %d of %d: %w", wc.ID, n, err)
			}
			if wc.ID != uint64(i) {
				return nil, nil, fmt.Errorf("%w: message %d completes when %d is due", ErrMismatch, wc.ID, i)
			}
			completed = append(completed, time.Since(start))
			if err := w.check(i); err != nil {
				return nil, nil, err
			}
		}
	}
	return posted, completed, nil
}

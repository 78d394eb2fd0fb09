package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/qp"
)

// Config are the options of ibv_*_pingpong. [Kind.Defaults] has their defaults.
type Config struct {
	Kind    Kind
	Size    int       // bytes of a message (-s)
	MTU     roce.MTU  // path MTU (-m), but of UD, which takes the port's
	RxDepth int       // receives kept posted (-r)
	Iters   int       // exchanges (-n)
	GID     GIDChoice // own address (-g)
	Check   bool      // compare what is received (-c)
	Out     io.Writer // where the addresses are printed; nil: nowhere
}

// Defaults is what a program does without flags.
func (k Kind) Defaults() Config {
	return Config{Kind: k, Size: kinds[k].size, MTU: bth.MTU1024, RxDepth: 500, Iters: 1000, GID: AnyGID}
}

func (c *Config) check() error {
	switch {
	case int(c.Kind) >= len(kinds):
		return fmt.Errorf("pingpong: no kind %d", c.Kind)
	case c.Size < 1 || c.Iters < 1 || c.RxDepth < 1:
		return fmt.Errorf("pingpong: size %d, %d exchanges, %d receives: want at least 1 of each", c.Size, c.Iters, c.RxDepth)
	case !c.MTU.Valid():
		return fmt.Errorf("pingpong: path MTU %v: want 256, 512, 1024, 2048 or 4096", c.MTU)
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	return nil
}

// ErrMismatch is a message that was received other than it was sent.
var ErrMismatch = errors.New("pingpong: data mismatch")

// Client connects to a server over TCP and plays. addr is "host:port".
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	tcp, err := oob.Dial(ctx, addr)
	if err != nil {
		return Result{}, err
	}
	defer tcp.Close()
	e, err := newEnd(d, &c, tcp.Peer())
	if err != nil {
		return Result{}, err
	}
	defer e.close()
	remote, err := exchangeClient(tcp, e.local)
	if err != nil {
		return Result{}, err
	}
	fmt.Fprintf(c.Out, "  remote address: %v\n", remote)
	if err := e.connect(ctx, remote); err != nil {
		return Result{}, err
	}
	return e.finish(ctx, true)
}

// Server waits for one client on a TCP address ("host:port", host may be empty)
// and plays. listening is called when it can be connected to.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (Result, error) {
	if err := c.check(); err != nil {
		return Result{}, err
	}
	tcp, err := oob.Accept(ctx, addr, listening)
	if err != nil {
		return Result{}, err
	}
	defer tcp.Close()
	e, err := newEnd(d, &c, tcp.Peer())
	if err != nil {
		return Result{}, err
	}
	defer e.close()
	_, err = exchangeServer(tcp, e.local, func(remote Addr) error {
		fmt.Fprintf(c.Out, "  remote address: %v\n", remote)
		return e.connect(ctx, remote)
	})
	if err != nil {
		return Result{}, err
	}
	return e.finish(ctx, false)
}

// end is one side: a queue pair and its buffer.
type end struct {
	cfg   *Config
	dev   *roce.Device
	cq    *roce.CQ
	qp    *roce.QP
	send  *roce.MR
	recv  *roce.MR
	local Addr
	index int         // of the own address
	to    roce.SendWR // UD: where messages go
	owned []io.Closer
}

// newEnd makes a queue pair with its receives posted. peer is the address the
// other side is reached at by TCP.
func newEnd(d *roce.Device, c *Config, peer netip.Addr) (e *end, err error) {
	e = &end{cfg: c, dev: d}
	kind := &kinds[c.Kind]
	defer func() {
		if err != nil {
			e.close()
		}
	}()
	if e.index, err = c.GID.index(d, peer); err != nil {
		return e, fmt.Errorf("pingpong: %w", err)
	}
	if mtu := d.Query().ActiveMTU; kind.typ == qp.UD && c.Size > mtu.Bytes() {
		return e, fmt.Errorf("pingpong: messages of %d bytes are larger than the port's MTU of %d", c.Size, mtu.Bytes())
	}
	pd := d.AllocPD()
	e.own(pd)
	for _, m := range []struct {
		mr   **roce.MR
		size int
	}{{&e.send, c.Size}, {&e.recv, kind.head + c.Size}} {
		if *m.mr, err = pd.RegMR(make([]byte, m.size), roce.LocalWrite); err != nil {
			return e, err
		}
		e.own(*m.mr)
	}
	fillMessage(e.send.Bytes(), c.Check)
	if e.cq, err = d.CreateCQ(c.RxDepth + 1); err != nil {
		return e, err
	}
	e.own(e.cq)
	e.qp, err = pd.CreateQP(roce.QPConfig{Type: kind.typ, SendCQ: e.cq, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return e, err
	}
	e.own(e.qp)
	if err := e.qp.Init(0, qkey); err != nil {
		return e, err
	}
	if err := e.postRecvs(c.RxDepth); err != nil {
		return e, err
	}
	e.local = Addr{QPN: e.qp.Num(), PSN: d.RandomPSN(), GID: d.GIDs()[e.index]}
	fmt.Fprintf(c.Out, "  local address:  %v\n", e.local)
	return e, nil
}

func (e *end) own(c io.Closer) { e.owned = append(e.owned, c) }

// close frees everything, the last made first.
func (e *end) close() {
	for i := len(e.owned) - 1; i >= 0; i-- {
		e.owned[i].Close()
	}
}

func (e *end) postRecvs(n int) error {
	for range n {
		if err := e.qp.PostRecv(&roce.RecvWR{ID: recvID, SG: []roce.SGE{e.recv.SGE(0, len(e.recv.Bytes()))}}); err != nil {
			return err
		}
	}
	return nil
}

// Result is how a game went.
type Result struct {
	Iters int           `json:"iters"`
	Bytes int64         `json:"bytes"` // both ways
	Time  time.Duration `json:"nanoseconds"`
}

// String prints it in the two lines of ibv_*_pingpong.
func (r Result) String() string {
	s, us := r.Time.Seconds(), float64(r.Time)/float64(time.Microsecond)
	return fmt.Sprintf("%d bytes in %.2f seconds = %.2f Mbit/sec\n%d iters in %.2f seconds = %.2f usec/iter",
		r.Bytes, s, float64(r.Bytes)*8/us, r.Iters, s, us/float64(r.Iters))
}

package pingpong

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

// Config are the options of ibv_*_pingpong. [Kind.Defaults] has their defaults.
type Config struct {
	Kind    Kind
	Size    int       // bytes of a message (-s)
	MTU     roce.MTU  // path MTU (-m), but of UD, which takes the port's
	RxDepth int       // receives kept posted (-r)
	QPs     int       // queue pairs (-q), of SRQ; others have one
	Iters   int       // exchanges (-n), of all queue pairs together
	GID     GIDChoice // own address (-g)
	Check   bool      // compare what is received (-c)
	Out     io.Writer // where the addresses are printed; nil: nowhere
}

// Defaults is what a program does without flags.
func (k Kind) Defaults() Config {
	c := Config{Kind: k, Size: kinds[k].size, MTU: roce.MTU1024, RxDepth: 500, QPs: 1, Iters: 1000, GID: AnyGID}
	if kinds[k].shared {
		c.QPs = 16
	}
	return c
}

func (c *Config) check() error {
	switch {
	case int(c.Kind) >= len(kinds):
		return fmt.Errorf("pingpong: no kind %d", c.Kind)
	case c.Size < 1 || c.Iters < 1 || c.RxDepth < 1:
		return fmt.Errorf("pingpong: size %d, %d exchanges, %d receives: want at least 1 of each", c.Size, c.Iters, c.RxDepth)
	case c.QPs < 1 || c.QPs > maxQPs || c.QPs > 1 && !kinds[c.Kind].shared:
		return fmt.Errorf("pingpong: %d queue pairs: want 1, with a shared receive queue up to %d", c.QPs, maxQPs)
	case c.QPs > c.RxDepth:
		return fmt.Errorf("pingpong: %d receives are too few for %d queue pairs", c.RxDepth, c.QPs)
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
	remote, err := exchangeClient(tcp, e.addrs())
	if err != nil {
		return Result{}, err
	}
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
	if err := exchangeServer(tcp, e.addrs(), func(remote []Addr) error { return e.connect(ctx, remote) }); err != nil {
		return Result{}, err
	}
	return e.finish(ctx, false)
}

// end is one side: its queue pairs and their buffers.
type end struct {
	cfg   *Config
	dev   *roce.Device
	cq    *roce.CQ
	srq   *roce.SRQ // nil: the queue pair has receives of its own
	lanes []*lane
	send  *roce.MR
	recv  *roce.MR
	place int   // bytes for a received message
	free  []int // places that no receive is posted for
	index int   // of the own address
	owned []io.Closer
}

// lane is a queue pair. It bounces a message of its own.
type lane struct {
	qp      *roce.QP
	local   Addr
	to      roce.SendWR // UD: where messages go
	pending int         // IDs of what is posted and not complete
}

// newEnd makes the queue pairs with their receives posted. peer is the address the
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
	if mtu := d.Query().ActiveMTU; kind.typ == roce.UD && c.Size > mtu.Bytes() {
		return e, fmt.Errorf("pingpong: messages of %d bytes are larger than the port's MTU of %d", c.Size, mtu.Bytes())
	}
	pd := d.AllocPD()
	e.own(pd)
	// All messages of one queue pair may go to one place: they come one by one.
	places := 1
	if kind.shared {
		places = c.RxDepth
	}
	e.place = kind.head + c.Size
	for _, m := range []struct {
		mr   **roce.MR
		size int
	}{{&e.send, c.Size}, {&e.recv, places * e.place}} {
		if *m.mr, err = pd.AllocMR(m.size, roce.LocalWrite); err != nil {
			return e, err
		}
		e.own(*m.mr)
	}
	fillMessage(e.send.Bytes(), kind.pattern, c.Check)
	if e.cq, err = d.CreateCQ(c.RxDepth + c.QPs); err != nil {
		return e, err
	}
	e.own(e.cq)
	config := roce.QPConfig{Type: kind.typ, SendCQ: e.cq, SignalAll: true,
		Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if kind.shared {
		if e.srq, err = pd.CreateSRQ(roce.SRQConfig{MaxWR: c.RxDepth, MaxSGE: 1}); err != nil {
			return e, err
		}
		e.own(e.srq)
		config.SRQ, config.Caps.MaxRecvWR = e.srq, 0
	}
	for range c.QPs {
		l := new(lane)
		if l.qp, err = pd.CreateQP(config); err != nil {
			return e, err
		}
		e.own(l.qp)
		e.lanes = append(e.lanes, l)
		if err := l.qp.Init(0, qkey); err != nil {
			return e, err
		}
		l.local = Addr{QPN: l.qp.Num(), PSN: d.RandomPSN(), GID: d.GIDs()[e.index]}
		fmt.Fprintf(c.Out, "  local address:  %v\n", l.local)
	}
	for i := range c.RxDepth {
		e.free = append(e.free, i%places)
	}
	return e, e.postRecvs()
}

// addrs is what is told to the peer: as many records as it expects.
func (e *end) addrs() []Addr {
	all := make([]Addr, kinds[e.cfg.Kind].records)
	for i, l := range e.lanes {
		all[i] = l.local
	}
	return all
}

func (e *end) own(c io.Closer) { e.owned = append(e.owned, c) }

// close frees everything, the last made first.
func (e *end) close() {
	for i := len(e.owned) - 1; i >= 0; i-- {
		e.owned[i].Close()
	}
}

// postRecvs posts a receive for every free place.
func (e *end) postRecvs() error {
	post := e.lanes[0].qp.PostRecv
	if e.srq != nil {
		post = e.srq.PostRecv
	}
	for _, at := range e.free {
		if err := post(&roce.RecvWR{ID: uint64(recvID | at<<idBits), SG: []roce.SGE{e.recv.SGE(at*e.place, e.place)}}); err != nil {
			return err
		}
	}
	e.free = e.free[:0]
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

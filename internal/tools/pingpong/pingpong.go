// Package pingpong is the protocol of rdma-core's ibv_rc_pingpong and its
// variants for other services, either role: the two sides exchange the addresses of
// their queue pairs over TCP, then send a message back and forth.
//
// The exchange over TCP: the client writes its [Addr] as a record of text, reads the
// server's, and writes "done". The connection carries nothing else. The message is bytes of
// 0x7b. The client sends first, and either side sends again once it has received.
package pingpong

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/usage"
)

// DefaultPort is the TCP port of the exchange.
const DefaultPort = 18515

// Config are the options of ibv_*_pingpong. [Kind.Defaults] has their defaults.
type Config struct {
	Kind    Kind
	Size    int       // bytes of a message (-s)
	MTU     roce.MTU  // path MTU (-m); UD has the port's
	RxDepth int       // receives kept posted (-r)
	QPs     int       // queue pairs (-q), of SRQ; others have one
	Iters   int       // exchanges (-n), of all queue pairs together
	GID     string    // local address, or its index; -1: the first address of the peer's IP version (-g)
	Check   bool      // compare the received messages (-c)
	Out     io.Writer // prints the addresses; nil: nowhere
}

// Defaults returns the options of a program without flags.
func (k Kind) Defaults() Config {
	c := Config{Kind: k, Size: kinds[k].size, MTU: roce.MTU1024, RxDepth: 500, QPs: 1, Iters: 1000, GID: "-1"}
	if kinds[k].shared {
		c.QPs = 16
	}
	return c
}

// Validate returns an error that names an invalid option.
func (c *Config) Validate() error {
	if int(c.Kind) >= len(kinds) {
		return usage.Errorf("no kind %d of pingpong", c.Kind)
	}
	most := 1
	if kinds[c.Kind].shared {
		most = maxQPs
	}
	if err := cmp.Or(usage.AtLeast("-s", c.Size, 1), usage.AtLeast("-n", c.Iters, 1), usage.AtLeast("-r", c.RxDepth, 1), usage.Range("-q", c.QPs, 1, most)); err != nil {
		return err
	}
	_, _, err := gidChoice(c.GID)
	switch {
	case err != nil:
		return err
	case c.QPs > c.RxDepth:
		return usage.Errorf("-r %d: too few receives for %d queue pairs (-q)", c.RxDepth, c.QPs)
	case !c.MTU.Valid():
		return usage.Errorf("-m %v: want 256, 512, 1024, 2048 or 4096", c.MTU)
	}
	return nil
}

// ErrMismatch is the error of a received message that differs from the sent one.
var ErrMismatch = errors.New("pingpong: data mismatch")

// Client connects to a server over TCP ("host:port") and sends messages back and forth.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	tcp, err := oob.Dial(ctx, addr)
	if err != nil {
		return Result{}, err
	}
	return run(ctx, d, c, tcp, true)
}

// Server waits for one client on a TCP address and sends messages back and forth. It calls
// listening when a client can connect. addr is "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (Result, error) {
	if err := c.Validate(); err != nil {
		return Result{}, err
	}
	tcp, err := oob.Accept(ctx, addr, listening)
	if err != nil {
		return Result{}, err
	}
	return run(ctx, d, c, tcp, false)
}

// run runs either end over a TCP connection, which it closes.
func run(ctx context.Context, d *roce.Device, c Config, tcp *oob.Conn, client bool) (Result, error) {
	defer tcp.Close()
	if c.Out == nil {
		c.Out = io.Discard
	}
	e, err := newEnd(d, &c, tcp.Peer())
	if err != nil {
		return Result{}, err
	}
	defer e.Close()
	if err := exchange(tcp, client, e.addrs(), func(remote []Addr) error { return e.connect(ctx, remote) }); err != nil {
		return Result{}, err
	}
	r, err := e.play(ctx, client)
	if err == nil && kinds[c.Kind].reliable {
		e.linger(ctx)
	}
	return r, err
}

// end is one side: its queue pairs and their buffers.
type end struct {
	*objects.Set
	cfg        *Config
	cq         *roce.CQ
	srq        *roce.SRQ // nil: the queue pair has its own receive queue
	lanes      []*lane
	send, recv *roce.MR
	place      int   // bytes for a received message
	free       []int // places without a posted receive
	index      int   // of the local address in the GID table
}

// lane is a queue pair. Each queue pair sends its own message back and forth.
type lane struct {
	qp      *roce.QP
	local   Addr
	to      roce.SendWR // UD: the address of the peer
	pending int         // union of the IDs of pending work requests
}

// newEnd makes the queue pairs with their receives posted. peer is the address of the other
// side of the exchange.
func newEnd(d *roce.Device, c *Config, peer netip.Addr) (e *end, err error) {
	s, kind, places := objects.New(d), &kinds[c.Kind], 1 // the messages of one queue pair come one by one
	e = &end{Set: s, cfg: c, place: kind.head + c.Size}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	if e.index, err = gidIndex(d, c.GID, peer); err != nil {
		return e, fmt.Errorf("pingpong: %w", err)
	}
	if mtu := d.Query().ActiveMTU; kind.typ == roce.UD && c.Size > mtu.Bytes() {
		return e, usage.Errorf("-s %d: a datagram has at most the port's MTU, %d bytes", c.Size, mtu.Bytes())
	}
	e.cq = s.CQ(c.RxDepth + c.QPs)
	config := roce.QPConfig{Type: kind.typ, SendCQ: e.cq, SignalAll: true, Caps: roce.Caps{MaxSendWR: 1, MaxRecvWR: c.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}}
	if kind.shared {
		places = c.RxDepth
		e.srq = s.SRQ(roce.SRQConfig{MaxWR: c.RxDepth, MaxSGE: 1})
		config.SRQ, config.Caps.MaxRecvWR = e.srq, 0
	}
	e.send, e.recv = s.MR(c.Size, roce.LocalWrite), s.MR(places*e.place, roce.LocalWrite)
	for range c.QPs {
		e.lanes = append(e.lanes, &lane{qp: s.QP(config)})
	}
	if err := s.Err(); err != nil {
		return e, err
	}
	fillMessage(e.send.Bytes(), kind.pattern, c.Check)
	for _, l := range e.lanes {
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

// addrs returns as many addresses as the peer expects: those of the queue pairs, then empty ones.
func (e *end) addrs() []Addr {
	all := make([]Addr, kinds[e.cfg.Kind].records)
	for i, l := range e.lanes {
		all[i] = l.local
	}
	return all
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

// Result is what an end has measured.
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

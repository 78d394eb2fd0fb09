package conform

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/script"
)

// Bounds of a server.
const (
	maxSessions = 8
	maxEnds     = 32               // queue pairs of a session
	idleTime    = time.Minute      // after this time without a command the tester counts as gone
	maxWait     = 20 * time.Second // the longest time that a command may wait
)

// ServeConfig are the options of [Serve].
type ServeConfig struct {
	Software string        // name and version of the peer's software
	Log      func(string)  // called with a line for each event of a session; may be nil
	Idle     time.Duration // how long a tester may send no command; 0: a minute
}

// Serve is the peer of a test. It executes the commands of testers on their control connections, with the device d, until ctx ends. addr is
// "host:port", of TCP and of the connection manager. The host may be empty.
func Serve(ctx context.Context, d *roce.Device, addr string, c ServeConfig, listening func(netip.AddrPort)) error {
	tcp, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer tcp.Close()
	at := tcp.Addr().(*net.TCPAddr).AddrPort()
	s := &server{dev: d, cfg: c, expected: map[string]chan *roce.ConnRequest{}}
	if s.cfg.Idle == 0 {
		s.cfg.Idle = idleTime
	}
	if s.cfg.Log == nil {
		s.cfg.Log = func(string) {}
	}
	cm, err := d.Listen(ctx, ":"+strconv.Itoa(int(at.Port())), roce.ListenConfig{})
	if err != nil {
		return fmt.Errorf("the connection manager: %w", err)
	}
	defer cm.Close()
	s.cmPort = int(cm.Addr().Port())
	ctx, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	running.Go(func() { s.requests(ctx, cm) })
	defer context.AfterFunc(ctx, func() { tcp.Close(); cm.Close() })()
	listening(at)
	places := make(chan struct{}, maxSessions)
	for {
		conn, err := tcp.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return err
		}
		select {
		case places <- struct{}{}:
			running.Go(func() {
				s.session(ctx, conn)
				<-places
			})
		default:
			newWire(conn).write(reply{Error: fmt.Sprintf("%d testers are here already", maxSessions)})
			conn.Close()
		}
	}
}

// server is the state of all sessions.
type server struct {
	dev    *roce.Device
	cfg    ServeConfig
	cmPort int

	mu       sync.Mutex
	expected map[string]chan *roce.ConnRequest // by the token at the beginning of a request's private data
}

// tokenLen is the length of a token in private data.
const tokenLen = 16

// requests passes each request of the connection manager to the session that expects it, and rejects the others.
func (s *server) requests(ctx context.Context, l *roce.Listener) {
	for {
		r, err := l.Accept(ctx)
		if err != nil {
			return
		}
		data := r.PrivateData()
		s.mu.Lock()
		to := s.expected[string(data[:min(tokenLen, len(data))])]
		s.mu.Unlock()
		select {
		case to <- r: // never chosen if to is nil
		default:
			r.Reject(nil)
		}
	}
}

// session is the state of one tester's control connection.
type session struct {
	*server
	peer    netip.Addr
	ends    map[int]*servedEnd
	targets map[int]script.TargetQP
	last    int
}

// servedEnd is a queue pair of a session. If the connection manager connects it, it has a token, and requests gets the tester's request.
type servedEnd struct {
	*end
	token    string
	requests chan *roce.ConnRequest
}

func (s *server) newSession(peer netip.Addr) *session {
	return &session{server: s, peer: peer, ends: map[int]*servedEnd{}, targets: map[int]script.TargetQP{}}
}

func (s *server) session(ctx context.Context, conn net.Conn) {
	x := s.newSession(conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	w := newWire(conn)
	ctx, hangUp := context.WithCancelCause(ctx)
	next, ended := make(chan command), make(chan struct{})
	go func() {
		defer close(ended)
		hangUp(w.readAll(ctx, next))
	}()
	defer func() {
		hangUp(nil)
		conn.Close()
		<-ended
	}()
	defer context.AfterFunc(ctx, func() {
		if !errors.As(context.Cause(ctx), new(*commandError)) { // after a commandError the tester first gets a reply
			conn.Close()
		}
	})()
	defer x.close()
	s.cfg.Log(fmt.Sprintf("%v: a tester", x.peer))
	for {
		conn.SetReadDeadline(time.Now().Add(s.cfg.Idle))
		var c command
		select {
		case c = <-next:
		case <-ctx.Done():
			err := context.Cause(ctx)
			s.cfg.Log(fmt.Sprintf("%v: %s", x.peer, x.parting(err)))
			if errors.As(err, new(*commandError)) {
				w.write(reply{Error: err.Error()})
			}
			return
		}
		conn.SetReadDeadline(time.Time{}) // commands limit their own time
		r, err := x.do(ctx, &c)
		if err != nil {
			r.Error = err.Error()
		}
		conn.SetWriteDeadline(time.Now().Add(s.cfg.Idle))
		if err := w.write(r); err != nil {
			if ctx.Err() != nil { // the end of ctx has closed the connection
				err = context.Cause(ctx)
			}
			s.cfg.Log(fmt.Sprintf("%v: %s", x.peer, x.parting(err)))
			return
		}
	}
}

// readAll sends the commands of a tester to next until the connection ends, and returns why it has ended. It reads also while a command is
// executed: if the tester is killed, the server notices that and ends the command.
func (w *wire) readAll(ctx context.Context, next chan<- command) error {
	for {
		var c command
		if err := w.read(&c); err != nil {
			return err
		}
		if c.Do == "bye" {
			return errBye
		}
		select {
		case next <- c:
		case <-ctx.Done():
			return nil
		}
	}
}

// errBye says that the tester has ended its connection.
var errBye = errors.New("the tester is done")

// parting describes why a session has ended, and how many queue pairs are closed with it.
func (x *session) parting(err error) string {
	why := err.Error()
	switch {
	case errors.Is(err, errBye):
		return why
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		why = "the tester is gone, it was killed or its test was ended"
	case errors.Is(err, os.ErrDeadlineExceeded):
		why = fmt.Sprintf("the tester has said nothing for %v", x.cfg.Idle)
	case errors.Is(err, context.Canceled):
		why = "the server ends"
	}
	if n := len(x.ends) + len(x.targets); n > 0 {
		why += ": " + plural(n, "queue pair") + " closed"
	}
	return why
}

// close closes all queue pairs of the session.
func (x *session) close() {
	for n := range x.ends {
		x.end(n)
	}
	for n := range x.targets {
		x.dropTarget(n)
	}
}

// end closes a queue pair.
func (x *session) end(n int) {
	e := x.ends[n]
	x.mu.Lock()
	delete(x.expected, e.token)
	x.mu.Unlock()
	select {
	case r := <-e.requests:
		r.Reject(nil)
	default:
	}
	e.Close()
	delete(x.ends, n)
}

// commands maps the names of commands to their functions. e is the queue pair that the command names, nil for commands in alone.
var commands = map[string]func(x *session, ctx context.Context, c *command, e *servedEnd) (reply, error){
	"hello":    (*session).hello,
	"create":   (*session).create,
	"counters": (*session).counters,
	"connect": func(_ *session, ctx context.Context, c *command, e *servedEnd) (reply, error) {
		if c.Peer == nil || c.Terms == nil {
			return reply{}, usage.Errorf("connect: peer and terms are missing")
		}
		return reply{}, e.connect(ctx, *c.Peer, *c.Terms)
	},
	"accept": (*session).accept,
	"dial":   (*session).dial,
	"fill": func(_ *session, _ context.Context, c *command, e *servedEnd) (reply, error) {
		return reply{}, e.fill(c.Seed, c.At, c.Size)
	},
	"sum": func(_ *session, _ context.Context, c *command, e *servedEnd) (r reply, err error) {
		r.Sum, err = e.sum(c.At, c.Size)
		return r, err
	},
	"peek": func(_ *session, _ context.Context, c *command, e *servedEnd) (r reply, err error) {
		r.Bytes, err = e.peek(c.At, c.Size)
		return r, err
	},
	"receive": func(_ *session, _ context.Context, c *command, e *servedEnd) (reply, error) {
		return reply{}, e.receive(c.At, c.Size, c.Step, c.Count)
	},
	"post": func(_ *session, _ context.Context, c *command, e *servedEnd) (reply, error) {
		if c.Work == nil {
			return reply{}, usage.Errorf("post: work is missing")
		}
		return reply{}, e.post(*c.Work)
	},
	"wait": func(_ *session, ctx context.Context, c *command, e *servedEnd) (r reply, err error) {
		ctx, stop := context.WithTimeout(ctx, waitTime(c.MS))
		defer stop()
		r.Done, err = e.wait(ctx, c.Queue, c.Count)
		return r, err
	},
	"close": func(x *session, _ context.Context, c *command, _ *servedEnd) (reply, error) {
		x.end(c.QP)
		return reply{}, nil
	},
}

// alone has the commands that need no queue pair.
var alone = map[string]bool{"hello": true, "create": true, "counters": true}

// waitTime converts milliseconds to a time, of at most maxWait.
func waitTime(ms int) time.Duration {
	return min(time.Duration(max(ms, 0))*time.Millisecond, maxWait)
}

// do executes a command.
func (x *session) do(ctx context.Context, c *command) (reply, error) {
	if f := targetCommands[c.Do]; f != nil {
		q := x.targets[c.QP]
		if q == nil && c.Do != "target" {
			return reply{}, usage.Errorf("%s: no queue pair %d", c.Do, c.QP)
		}
		return f(x, c, q)
	}
	f := commands[c.Do]
	if f == nil {
		return reply{}, usage.Errorf("command %q is unknown", c.Do)
	}
	e := x.ends[c.QP]
	if e == nil && !alone[c.Do] {
		return reply{}, usage.Errorf("%s: no queue pair %d", c.Do, c.QP)
	}
	return f(x, ctx, c, e)
}

func (x *session) hello(context.Context, *command, *servedEnd) (reply, error) {
	h := &hello{Version: protocolVersion, Software: x.cfg.Software, MTU: x.dev.Query().ActiveMTU.Bytes(), Services: []string{"rc", "uc", "ud"}, CMPort: x.cmPort}
	for _, g := range x.dev.GIDs() {
		if !g.IsZero() {
			h.Addrs = append(h.Addrs, g.Addr().String())
		}
	}
	return reply{Hello: h}, nil
}

func (x *session) create(_ context.Context, c *command, _ *servedEnd) (reply, error) {
	if c.Spec == nil {
		return reply{}, usage.Errorf("create: spec is missing")
	}
	if len(x.ends)+len(x.targets) >= maxEnds {
		return reply{}, fmt.Errorf("%d queue pairs are there already: close one", maxEnds)
	}
	e, err := newEnd(x.dev, *c.Spec, x.peer)
	if err != nil {
		return reply{}, err
	}
	s := &servedEnd{end: e}
	if c.Spec.CM {
		var b [tokenLen / 2]byte
		rand.Read(b[:])
		s.token, s.requests = hex.EncodeToString(b[:]), make(chan *roce.ConnRequest, 1)
		x.mu.Lock()
		x.expected[s.token] = s.requests
		x.mu.Unlock()
	}
	x.last++
	x.ends[x.last] = s
	return reply{QP: x.last, Address: new(e.address()), Token: s.token}, nil
}

// accept waits for the request of the connection manager for a queue pair, and accepts it.
func (x *session) accept(ctx context.Context, c *command, e *servedEnd) (reply, error) {
	if e.requests == nil || e.connection != nil {
		return reply{}, usage.Errorf("accept: queue pair %d waits for no connection", c.QP)
	}
	ctx, stop := context.WithTimeout(ctx, waitTime(c.MS))
	defer stop()
	select {
	case r := <-e.requests:
		if err := e.accept(ctx, r); err != nil {
			return reply{}, err
		}
		return reply{Address: new(e.address())}, nil
	case <-ctx.Done():
		return reply{}, fmt.Errorf("no request of the connection manager has come: %w", ctx.Err())
	}
}

// dial connects a queue pair to a listener of the tester, by the connection manager.
func (x *session) dial(ctx context.Context, c *command, e *servedEnd) (reply, error) {
	if !e.cm || e.connection != nil {
		return reply{}, usage.Errorf("dial: queue pair %d is not for the connection manager, or is already connected", c.QP)
	}
	ctx, stop := context.WithTimeout(ctx, waitTime(c.MS))
	defer stop()
	if err := e.dial(ctx, c.Addr, nil); err != nil {
		return reply{}, err
	}
	return reply{Address: new(e.address())}, nil
}

func (x *session) counters(context.Context, *command, *servedEnd) (reply, error) {
	c := x.dev.Counters()
	m := map[string]uint64{}
	for _, f := range c.Fields() {
		m[f.Name] = *f.V
	}
	m["dropped"] = c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun
	return reply{Counters: m}, nil
}

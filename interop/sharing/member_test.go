//go:build linux

package sharing

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/share"
	"github.com/goroce/roce/interop/child"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/message"
	"github.com/goroce/roce/rdmacm"
)

// childEnv is the environment variable that makes the program a member: a process whose methods the
// test calls.
const childEnv = "ROCE_SHARING_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		me := &Member{kept: map[int]*kept{}}
		if err := child.Serve(os.Stdin, os.Stdout, me, func() { os.Exit(0) }); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	flag.Parse()
	flag.Set("test.parallel", "4") // the tests wait more than they compute
	os.Exit(m.Run())
}

// Member is a process with a device. The test calls its methods.
type Member struct {
	mu       sync.Mutex
	dev      *roce.Device
	place    share.Shared
	local    netip.Addr
	listener *message.Listener
	held     []*roce.Listener
	group    *groupQP
	burst    *burstQP
	pests    []net.Conn
	host     *rdmacm.Host
	target   *servedTarget
	kept     map[int]*kept
	served   []*kept // connections that other members have dialed
}

// Failure is an error that is passed to the test.
type Failure struct {
	Text  string
	Errno syscall.Errno
}

func failure(err error) (f Failure) {
	if err != nil {
		f.Text = err.Error()
		errors.As(err, &f.Errno)
	}
	return f
}

// Open describes the device that a member opens.
type Open struct {
	Addr      netip.Addr // of the device; of an interface the address that is used
	Interface string     // empty: the device is opened by its address
	Driver    string
	Queues    int
	Polled    bool
	Exclusive bool
	Loss      float64 // share of sent packets that are dropped
}

// Opened is the result of Open.
type Opened struct {
	Failure
	Slots []share.Slot
	Notes []string
	Took  time.Duration
}

// Open opens the device.
func (m *Member) Open(o Open, r *Opened) error {
	began := time.Now()
	c := roce.InterfaceConfig{Options: roce.Options{Polled: o.Polled}, Driver: o.Driver, Queues: o.Queues, Exclusive: o.Exclusive}
	c.Wrap = func(p link.Port) (link.Port, error) {
		if s := share.Of(p).Shared; s != nil {
			m.place = s
		}
		if o.Loss == 0 {
			return p, nil
		}
		return fault.Wrap(p, fault.Config{Seed: uint64(os.Getpid()), Tx: fault.Rates{Loss: o.Loss}})
	}
	var err error
	m.place = nil
	if o.Interface == "" {
		m.dev, err = roce.OpenAddr(o.Addr, c)
	} else {
		m.dev, err = roce.OpenInterface(o.Interface, c)
	}
	r.Took = time.Since(began)
	if r.Failure = failure(err); err != nil {
		m.dev = nil
		return nil
	}
	m.local = o.Addr
	r.Notes = m.dev.Query().Link.Notes
	if m.place != nil {
		r.Slots = m.place.Slots()
	}
	return nil
}

// Close closes the device.
func (m *Member) Close(child.None, *child.None) error {
	if m.listener != nil {
		m.listener.Close()
	}
	return m.dev.Close()
}

// config is the configuration of all connections.
var config = message.Config{MaxMessage: maxMessage + header, Depth: 4, Transfers: 1, Backlog: 2048, Linger: time.Second}

const (
	header     = 8       // bytes with the pid of the dialing process, if the connection is kept
	maxMessage = 8 << 10 // bytes after the header
)

// Echo listens, and returns the messages it receives.
func (m *Member) Echo(port uint16, r *Failure) (err error) {
	l, err := message.Listen(m.dev, netip.AddrPortFrom(m.local, port).String(), config)
	if *r = failure(err); err != nil {
		return nil
	}
	m.listener = l
	go func() {
		for {
			c, err := l.Accept(context.Background())
			if err != nil {
				return
			}
			go m.echo(c)
		}
	}()
	return nil
}

func (m *Member) echo(c *message.Conn) {
	defer c.Close()
	ctx := context.Background()
	buf := make([]byte, header+maxMessage)
	k := &kept{conn: c}
	for {
		n, err := c.Recv(ctx, buf)
		if err == nil && k.state.Peer == 0 && n >= header {
			if k.state.Peer = int(binary.BigEndian.Uint64(buf)); k.state.Peer != 0 {
				m.mu.Lock()
				m.served = append(m.served, k)
				m.mu.Unlock()
			}
		}
		if err == nil {
			err = c.Send(ctx, buf[:n])
		}
		if k.note(err); err != nil {
			return
		}
	}
}

// Exchange describes the messages that a member exchanges with the echo services of others.
type Exchange struct {
	To       []string
	Conns    int // for each of them
	Messages int // of each connection
	Size     int
	Patience time.Duration // time limit for all together
}

// Exchanged is the result of Exchange.
type Exchanged struct {
	Conns    int // connections that have exchanged all messages
	Dialed   time.Duration
	Took     time.Duration
	Failures []string // the first ones
}

// Exchange connects to listeners, all at the same time, exchanges messages, and disconnects.
func (m *Member) Exchange(a Exchange, r *Exchanged) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), a.Patience)
	defer cancel()
	var mu sync.Mutex
	fail := func(what string, err error) {
		mu.Lock()
		defer mu.Unlock()
		if len(r.Failures) < 5 {
			r.Failures = append(r.Failures, fmt.Sprintf("after %v %s: %v", time.Since(began).Round(time.Millisecond), what, err))
		}
	}
	var dialing, all sync.WaitGroup
	var good atomic.Int64
	dialing.Add(len(a.To) * a.Conns)
	for i, to := range slices.Repeat(a.To, a.Conns) {
		all.Go(func() {
			c, err := message.Dial(ctx, m.dev, to, config)
			dialing.Done()
			if err != nil {
				fail("dial "+to, err)
				return
			}
			defer c.Close()
			dialing.Wait()
			p := newPattern(i, a.Size, 0)
			for k := range a.Messages {
				if err := p.exchange(ctx, c, k); err != nil {
					fail(fmt.Sprintf("message %d of connection %d to %s", k, i, to), err)
					return
				}
			}
			good.Add(1)
		})
	}
	dialing.Wait()
	r.Dialed = time.Since(began)
	all.Wait()
	r.Conns, r.Took = int(good.Load()), time.Since(began)
	return nil
}

// pattern makes messages, each with different contents.
type pattern struct {
	conn      int
	out, back []byte
}

func newPattern(conn, size, from int) *pattern {
	p := &pattern{conn, make([]byte, header+size), make([]byte, header+maxMessage)}
	binary.BigEndian.PutUint64(p.out, uint64(from))
	return p
}

// exchange sends message k, and compares it with the message that comes back.
func (p *pattern) exchange(ctx context.Context, c *message.Conn, k int) error {
	x := uint32(os.Getpid())*2654435761 ^ uint32(p.conn)<<20 ^ uint32(k)*40503
	for i := header; i < len(p.out); i++ {
		x = x*1664525 + 1013904223
		p.out[i] = byte(x >> 24)
	}
	if err := c.Send(ctx, p.out); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	n, err := c.Recv(ctx, p.back)
	if err != nil {
		return fmt.Errorf("receive: %w", err)
	}
	if !bytes.Equal(p.back[:n], p.out) {
		return fmt.Errorf("%d bytes came back, others than the %d that were sent", n, len(p.out))
	}
	return nil
}

// kept is a permanent connection: it exchanges messages until it ends.
type kept struct {
	conn *message.Conn
	mu   sync.Mutex
	state
	last time.Time
}

type state struct {
	Peer     int // process
	Messages int
	Quiet    time.Duration // since the last one
	Over     bool
	Err      string
}

// State is the state of a permanent connection.
type State = state

func (k *kept) note(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.last = time.Now(); err == nil {
		k.state.Messages++
	} else if !k.state.Over {
		k.state.Over, k.state.Err = true, err.Error()
	}
}

func (k *kept) now() state {
	k.mu.Lock()
	defer k.mu.Unlock()
	s := k.state
	s.Quiet = time.Since(k.last)
	return s
}

// Keep is the destination of a permanent connection.
type Keep struct {
	To   string
	Peer int
	Size int
}

// Keep connects to a listener and exchanges messages with it until the connection ends.
func (m *Member) Keep(a Keep, r *Failure) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	c, err := message.Dial(ctx, m.dev, a.To, config)
	if *r = failure(err); err != nil {
		return nil
	}
	k := &kept{conn: c, state: state{Peer: a.Peer}, last: time.Now()}
	m.mu.Lock()
	n := len(m.kept)
	m.kept[n] = k
	m.mu.Unlock()
	go func() {
		defer c.Close()
		p := newPattern(n, a.Size, os.Getpid())
		for i := 0; ; i++ {
			err := p.exchange(context.Background(), c, i)
			if k.note(err); err != nil {
				return
			}
			time.Sleep(2 * time.Millisecond)
		}
	}()
	return nil
}

// States has the states of the permanent connections of a member: those it has dialed, and those of
// its echo service.
type States struct {
	Dialed, Served []State
}

// States returns the states of the permanent connections.
func (m *Member) States(_ child.None, r *States) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range slices.Sorted(maps.Keys(m.kept)) {
		r.Dialed = append(r.Dialed, m.kept[n].now())
	}
	for _, k := range m.served {
		r.Served = append(r.Served, k.now())
	}
	return nil
}

// Vitals is the resource use of a process.
type Vitals struct {
	Descriptors, Goroutines int
	Heap                    uint64
	Shared                  share.Stats
}

// Vitals returns the resource use of the process.
func (m *Member) Vitals(_ child.None, r *Vitals) error {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	*r = Vitals{Descriptors: len(list) - 1, Goroutines: runtime.NumGoroutine(), Heap: s.HeapAlloc}
	if m.place != nil {
		r.Shared = m.place.Stats()
	}
	return nil
}

// Pester is the address whose keeper gets idle connections, and their number.
type Pester struct {
	Key   string
	Conns int
}

// Pester opens connections to a keeper, and sends nothing over them.
func (m *Member) Pester(a Pester, _ *child.None) error {
	for range a.Conns {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Net: "unixpacket", Name: "@goroce/" + a.Key})
		if err != nil {
			return err
		}
		m.pests = append(m.pests, c)
	}
	return nil
}

// Port is the port on which a member listens; 0: any.
type Port struct {
	Port uint16
}

// Held is the result of Hold.
type Held struct {
	Failure
	Port uint16
	Took time.Duration
}

// Hold listens on a port, and accepts no request.
func (m *Member) Hold(a Port, r *Held) error {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), patience/2)
	defer cancel()
	l, err := m.dev.Listen(ctx, netip.AddrPortFrom(m.local, a.Port).String(), roce.ListenConfig{})
	r.Took = time.Since(began)
	if r.Failure = failure(err); err == nil {
		r.Port = l.Addr().Port()
		m.held = append(m.held, l)
	}
	return nil
}

// Release ends all listeners of Hold.
func (m *Member) Release(child.None, *child.None) error {
	for _, l := range m.held {
		l.Close()
	}
	m.held = nil
	return nil
}

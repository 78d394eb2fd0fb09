//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
)

const (
	messageSize = 16 << 10
	depth       = 8 // messages under way
	rcService   = "10.90.0.1:7471"
	udService   = "10.90.0.1:7472"
	patience    = 30 * time.Second
)

// target is what the attacker is told: all that somebody could know who cannot see the
// packets of the connection, and more.
type target struct {
	QPN       roce.QPN   `json:"qpn"`
	UD        roce.QPN   `json:"ud"`
	PSN       roce.PSN   `json:"psn"` // expected next
	PeerQPN   roce.QPN   `json:"peerqpn"`
	GUID      uint64     `json:"guid"` // of the client
	Client    netip.Addr `json:"client"`
	ServerMAC frame.MAC  `json:"servermac"`
	ClientMAC frame.MAC  `json:"clientmac"`
}

// usage is what the server needs.
type usage struct {
	RSS         uint64 `json:"rss"`
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"`
	Messages    uint64 `json:"messages"`
	Strange     uint64 `json:"strange"` // messages that the client has not sent
	Met         uint64 `json:"met"`     // packets that only an attacker sends
	Lost        uint64 `json:"lost"`    // packets and super-packets that found a queue of the server full
}

// most keeps the larger of each.
func (u *usage) most(o usage) {
	u.RSS, u.Goroutines, u.Descriptors = max(u.RSS, o.RSS), max(u.Goroutines, o.Goroutines), max(u.Descriptors, o.Descriptors)
}

func openDevice(driver string) (*roce.Device, error) {
	return roce.OpenInterface(device, roce.InterfaceConfig{Driver: driver})
}

// server receives.
type server struct {
	dev      *roce.Device
	conn     atomic.Pointer[roce.Conn]
	ud       *roce.QP
	messages atomic.Uint64
	strange  atomic.Uint64
	stop     context.CancelFunc
	peak     atomic.Uint64
}

func (s *server) close() {
	if s.dev != nil {
		s.stop()
		s.dev.Close()
	}
}

func (s *server) do(c command) (any, error) {
	switch c.Do {
	case "open":
		return struct{}{}, s.open(c.Name)
	case "target":
		conn := s.conn.Load()
		if conn == nil {
			return nil, fmt.Errorf("nobody is connected")
		}
		a, _ := conn.QP().Query()
		return target{QPN: conn.QP().Num(), PeerQPN: a.DestQPN, PSN: a.RQPSN, UD: s.ud.Num()}, nil
	case "usage":
		counters := s.dev.Counters()
		u := usage{RSS: s.peak.Swap(rss()), Goroutines: runtime.NumGoroutine(), Descriptors: descriptors(), Messages: s.messages.Load(),
			Strange: s.strange.Load(), Met: met(counters), Lost: counters.Link.RxDrops}
		u.RSS = max(u.RSS, rss())
		return u, nil
	}
	return nil, fmt.Errorf("server: no command %q", c.Do)
}

// met counts what a device has seen of packets that nobody sends who means well.
func met(c roce.Counters) uint64 {
	n := c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun + c.ICRCErr + c.WrongPeer + c.WrongState +
		c.WrongTransport + c.QKeyViolation + c.GhostAck + c.DuplicateRequest + c.OutOfSeqRequest + c.UDNoReceive + c.Link.RxErrors
	for _, m := range c.CM.Received {
		n += m
	}
	return n
}

func (s *server) open(driver string) (err error) {
	if s.dev, err = openDevice(driver); err != nil {
		return err
	}
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	l, err := s.dev.Listen(ctx, rcService, roce.ListenConfig{})
	if err != nil {
		return err
	}
	go s.accept(ctx, l)
	// A UD queue pair that never has a receive, and the service that leads to it.
	pd := s.dev.AllocPD()
	q, err := s.dev.CreateCQ(1)
	if err != nil {
		return err
	}
	if s.ud, err = pd.CreateQP(roce.QPConfig{Type: roce.UD, SendCQ: q}); err != nil {
		return err
	}
	if err := s.ud.Init(0, udKey); err != nil {
		return err
	}
	if err := s.ud.Ready(1); err != nil {
		return err
	}
	u, err := s.dev.ListenUD(ctx, udService, roce.ListenConfig{})
	if err != nil {
		return err
	}
	go func() {
		for {
			r, err := u.Accept(ctx)
			if err != nil {
				return
			}
			r.Reject(nil)
		}
	}()
	go func() { // the most memory between two looks
		for ctx.Err() == nil {
			s.peak.Store(max(s.peak.Load(), rss()))
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return nil
}

// acceptors is how many requests the server accepts at a time; others it refuses.
const acceptors = 32

// accept accepts every request, as servers do. The first one is of the client.
func (s *server) accept(ctx context.Context, l *roce.Listener) {
	places := make(chan struct{}, acceptors)
	for {
		r, err := l.Accept(ctx)
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		default:
			r.Reject(nil)
			continue
		}
		go func() {
			defer func() { <-places }()
			ctx, stop := context.WithTimeout(ctx, time.Second)
			defer stop()
			var mr *roce.MR
			c, err := r.Accept(ctx, roce.AcceptConfig{Setup: func(q *roce.QP) (err error) {
				if mr, err = q.PD().RegMR(make([]byte, 2*depth*messageSize), roce.LocalWrite); err != nil {
					return err
				}
				for i := range 2 * depth {
					if err := q.PostRecv(&roce.RecvWR{ID: uint64(i), SG: []roce.SGE{mr.SGE(i*messageSize, messageSize)}}); err != nil {
						return err
					}
				}
				return nil
			}})
			if err == nil && r.RemoteAddr().Addr() == clientIP {
				s.conn.Store(c)
				go s.receive(c, mr)
				return
			}
			if mr != nil {
				mr.Close()
			}
			if c != nil {
				c.Close()
			}
		}()
	}
}

// receive checks messages: their numbers, length and data.
func (s *server) receive(c *roce.Conn, mr *roce.MR) {
	b := mr.Bytes()
	for next := uint64(1); ; next++ {
		wc, err := c.QP().RecvCQ().Next(context.Background())
		if err != nil || wc.Status != roce.StatusSuccess {
			return
		}
		m := b[wc.ID*messageSize:][:messageSize]
		if wc.ByteLen != messageSize || !intact(m, next) {
			s.strange.Add(1)
			if n := binary.BigEndian.Uint64(m); wc.ByteLen != messageSize || n > next+1<<20 {
				next-- // it was none of the client's
			} else {
				next = n
			}
		}
		s.messages.Add(1)
		if c.QP().PostRecv(&roce.RecvWR{ID: wc.ID, SG: []roce.SGE{mr.SGE(int(wc.ID)*messageSize, messageSize)}}) != nil {
			return
		}
	}
}

// stamp writes message n.
func stamp(b []byte, n uint64) {
	for i := 0; i < len(b); i += 512 {
		binary.BigEndian.PutUint64(b[i:], n)
	}
}

func intact(b []byte, n uint64) bool {
	for i := 0; i < len(b); i += 512 {
		if binary.BigEndian.Uint64(b[i:]) != n {
			return false
		}
	}
	return true
}

// window is what the client has measured since it was asked last.
type window struct {
	Goodput float64 `json:"goodput"` // bits a second
	P50     float64 `json:"p50"`     // microseconds from post to completion
	P99     float64 `json:"p99"`
	Lost    uint64  `json:"lost"` // packets sent again
}

// client sends.
type client struct {
	dev  *roce.Device
	conn *roce.Conn
	mr   *roce.MR

	mu      sync.Mutex
	since   time.Time
	bytes   uint64
	took    []time.Duration
	retrans uint64
	err     error
}

func (c *client) close() {
	if c.dev != nil {
		c.dev.Close()
	}
}

func (c *client) do(cmd command) (any, error) {
	switch cmd.Do {
	case "open":
		return struct{}{}, c.open(cmd.Name)
	case "window":
		return c.window()
	case "guid":
		return c.dev.Query().GUID, nil
	}
	return nil, fmt.Errorf("client: no command %q", cmd.Do)
}

func (c *client) open(driver string) (err error) {
	if c.dev, err = openDevice(driver); err != nil {
		return err
	}
	ctx, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if c.conn, err = c.dev.Dial(ctx, rcService, roce.DialConfig{}); err != nil {
		return err
	}
	if c.mr, err = c.conn.QP().PD().RegMR(make([]byte, depth*messageSize), 0); err != nil {
		return err
	}
	c.since = time.Now()
	go func() {
		err := c.send()
		c.mu.Lock()
		c.err = err
		c.mu.Unlock()
	}()
	return nil
}

// send keeps messages under way.
func (c *client) send() error {
	var posted [depth]time.Time
	post := func(n uint64) error {
		at := int(n % depth)
		stamp(c.mr.Bytes()[at*messageSize:][:messageSize], n)
		posted[at] = time.Now()
		return c.conn.QP().PostSend(&roce.SendWR{ID: n, Opcode: roce.Send, Flags: roce.Signaled, SG: []roce.SGE{c.mr.SGE(at*messageSize, messageSize)}})
	}
	for n := uint64(1); n <= depth; n++ {
		if err := post(n); err != nil {
			return err
		}
	}
	for next := uint64(1); ; next++ {
		wc, err := c.conn.QP().SendCQ().Next(context.Background())
		switch {
		case err != nil:
			return err
		case wc.Status != roce.StatusSuccess:
			return fmt.Errorf("message %d: %v", wc.ID, wc.Status)
		case wc.ID != next:
			return fmt.Errorf("completion %d, want %d", wc.ID, next)
		}
		c.mu.Lock()
		c.bytes += messageSize
		c.took = append(c.took, time.Since(posted[next%depth]))
		c.mu.Unlock()
		if err := post(next + depth); err != nil {
			return err
		}
	}
}

func (c *client) window() (w window, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return w, c.err
	}
	now := time.Now()
	w.Goodput = 8 * float64(c.bytes) / now.Sub(c.since).Seconds()
	if n := len(c.took); n > 0 {
		slices.Sort(c.took)
		us := func(d time.Duration) float64 { return float64(d.Nanoseconds()) / 1e3 }
		w.P50, w.P99 = us(c.took[n/2]), us(c.took[n*99/100])
	}
	retrans := c.dev.Counters().RetransPkts
	w.Lost = retrans - c.retrans
	c.since, c.bytes, c.took, c.retrans = now, 0, c.took[:0], retrans
	return w, nil
}

// rss is the memory of this process in use.
func rss() uint64 {
	b, _ := os.ReadFile("/proc/self/statm")
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(strings.TrimSpace(string(f[1])), 10, 64)
	return pages * uint64(os.Getpagesize())
}

func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}

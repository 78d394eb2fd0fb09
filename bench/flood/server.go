//go:build linux

package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/interop/child"
)

const (
	messageSize = 16 << 10
	depth       = 8 // messages in flight
	rcService   = "10.90.0.1:7471"
	udService   = "10.90.0.1:7472"
	patience    = 30 * time.Second
)

// Target has the attacker's knowledge: more than an attacker can have that does not see the packets of the connection.
type Target struct {
	QPN, UD, PeerQPN     roce.QPN
	PSN                  roce.PSN // expected next
	GUID                 uint64   // of the client
	Client               netip.Addr
	ServerMAC, ClientMAC frame.MAC
}

// Usage has the server's use of resources and its counters.
type Usage struct {
	RSS         uint64 `json:"rss"`
	Goroutines  int    `json:"goroutines"`
	Descriptors int    `json:"descriptors"`
	Messages    uint64 `json:"messages"`
	Strange     uint64 `json:"strange"` // messages that the client has not sent
	Met         uint64 `json:"met"`     // packets that only an attacker sends
	Lost        uint64 `json:"lost"`    // packets and super-packets that found a queue of the server full
	Floods      uint64 `json:"floods"`  // times the driver began to drop early because of a flood
}

// most raises the figures of memory, goroutines and descriptors to those of o, if these are larger.
func (u *Usage) most(o Usage) {
	u.RSS, u.Goroutines, u.Descriptors = max(u.RSS, o.RSS), max(u.Goroutines, o.Goroutines), max(u.Descriptors, o.Descriptors)
}

// openDevice opens the interface for one process. If processes shared it, the kernel would drop packets that are for
// none of them, and the server would not count these.
func openDevice(driver string) (*roce.Device, error) {
	return roce.OpenInterface(device, roce.InterfaceConfig{Driver: driver, Exclusive: true})
}

// server receives the client's messages.
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

// Target returns the numbers of the connection.
func (s *server) Target(_ child.None, t *Target) error {
	conn := s.conn.Load()
	if conn == nil {
		return errors.New("no client is connected")
	}
	a, _ := conn.QP().Query()
	*t = Target{QPN: conn.QP().Num(), PeerQPN: a.DestQPN, PSN: a.RQPSN, UD: s.ud.Num()}
	return nil
}

// Usage returns the server's usage, with the highest memory since the last call.
func (s *server) Usage(_ child.None, u *Usage) error {
	counters := s.dev.Counters()
	*u = Usage{RSS: max(s.peak.Swap(rss()), rss()), Goroutines: runtime.NumGoroutine(), Descriptors: descriptors(), Messages: s.messages.Load(),
		Strange: s.strange.Load(), Met: hostile(counters), Lost: counters.Link.RxDrops, Floods: counters.Link.RxFloods}
	return nil
}

// hostile returns how many packets a device has counted that no honest peer sends.
func hostile(c roce.Counters) uint64 {
	n := c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun + c.ICRCErr + c.WrongPeer + c.WrongState +
		c.WrongTransport + c.QKeyViolation + c.GhostAck + c.DuplicateRequest + c.OutOfSeqRequest + c.UDNoReceive + c.Link.RxErrors
	for _, m := range c.CM.Received {
		n += m
	}
	return n
}

// Open opens the device and begins to accept connections.
func (s *server) Open(driver string, _ *child.None) (err error) {
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
	// A UD queue pair that never has a receive, and its service.
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
	go func() { // the highest memory between two calls of Usage
		for ctx.Err() == nil {
			s.peak.Store(max(s.peak.Load(), rss()))
			time.Sleep(50 * time.Millisecond)
		}
	}()
	return nil
}

// acceptors is how many requests the server accepts at a time. It rejects others.
const acceptors = 32

// accept accepts every request, as servers do. The first one is the client's.
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

// receive checks the messages of the client: their numbers, lengths and data.
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
				next-- // expect the same number again: the client has not sent this message
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

// stamp writes the data of message n.
func stamp(b []byte, n uint64) {
	for i := 0; i < len(b); i += 512 {
		binary.BigEndian.PutUint64(b[i:], n)
	}
}

// intact reports whether b has the data of message n.
func intact(b []byte, n uint64) bool {
	for i := 0; i < len(b); i += 512 {
		if binary.BigEndian.Uint64(b[i:]) != n {
			return false
		}
	}
	return true
}

// rss returns the resident memory of this process in bytes.
func rss() uint64 {
	b, _ := os.ReadFile("/proc/self/statm")
	f := bytes.Fields(b)
	if len(f) < 2 {
		return 0
	}
	pages, _ := strconv.ParseUint(strings.TrimSpace(string(f[1])), 10, 64)
	return pages * uint64(os.Getpagesize())
}

// descriptors returns the number of open file descriptors.
func descriptors() int {
	d, _ := os.ReadDir("/proc/self/fd")
	return len(d)
}

// Package rping is the program rping of librdmacm: a client and a server that
// pass a text back and forth by RDMA READ and WRITE. It speaks rping's
// protocol, so either end may be the original.
//
//	client                                         server
//	  SEND {source address, key, size}      ->
//	                                        <-       READ size bytes of it
//	                                        <-       SEND (go ahead)
//	  SEND {sink address, key, size}        ->
//	                                        <-       WRITE the text back
//	                                        <-       SEND (go ahead)
package rping

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/acceptor"
	"github.com/goroce/roce/internal/tools/objects"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/internal/tools/usage"
)

// DefaultPort is the port rping uses.
const DefaultPort = 7174

// Sizes of the text, as in rping.
const (
	DefaultSize = 64
	MinSize     = 27         // the text without padding, at its longest
	MaxSize     = 64<<10 - 1 // RPING_BUFSIZE − 1
)

// Config are rping's options.
type Config struct {
	Count   int       // pings (-C); 0: until ctx ends
	Size    int       // bytes of the text (-S); 0: DefaultSize
	Verbose bool      // print every text (-v)
	Check   bool      // compare the text that comes back (-V)
	Out     io.Writer // where to print; nil: nowhere
}

// Result has the amounts that an end has transferred.
type Result struct {
	Pings int `json:"pings"`
	Bytes int `json:"bytes"`
}

// Validate fills in defaults and returns an error that names an invalid option.
func (c *Config) Validate() error {
	c.Size = cmp.Or(c.Size, DefaultSize)
	if c.Out == nil {
		c.Out = io.Discard
	}
	return cmp.Or(usage.AtLeast("-C", c.Count, 0), usage.Range("-S", c.Size, MinSize, MaxSize))
}

// advertLen is the length of a message: address, key and size, big-endian.
const advertLen = 16

// session is one end of a connection with its memory.
type session struct {
	*objects.Set
	conn     *roce.Conn
	qp       *roce.QP
	cq       *roce.CQ
	text     *roce.MR // rping's rdma_buf: the target of READ and WRITE
	from     *roce.MR // rping's start_buf: the text that the client sends
	msg      *roce.MR // a message to send, then room for a received one
	received int      // messages that recv has not returned
}

// newSession makes the objects of an end whose texts have at most size bytes.
func newSession(d *roce.Device, size int) (*session, error) {
	const access = roce.LocalWrite | roce.RemoteWrite | roce.RemoteRead
	o := objects.New(d)
	s := &session{Set: o, cq: o.CQ(64), text: o.MR(size, access), from: o.MR(size, access), msg: o.MR(2*advertLen, access)}
	if err := o.Err(); err != nil {
		o.Close()
		return nil, err
	}
	return s, nil
}

// config returns the queue pair of a session: rping has one work request at a time.
func (s *session) config() roce.QPConfig {
	return roce.QPConfig{SendCQ: s.cq, RecvCQ: s.cq, Caps: roce.Caps{MaxSendWR: 16, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}
}

// setup posts the first receive before the peer can send.
func (s *session) setup(q *roce.QP) error {
	s.qp = q
	return s.postRecv()
}

func (s *session) postRecv() error {
	return s.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{s.msg.SGE(advertLen, advertLen)}})
}

// errOver is the error of a connection that ended between two pings.
var errOver = errors.New("the peer has disconnected")

// next waits for one completion. A flush means that the connection has ended.
func (s *session) next(ctx context.Context) (roce.WCOpcode, error) {
	wc, err := s.cq.Next(ctx)
	switch {
	case err != nil:
		return 0, err
	case wc.Status == roce.StatusWRFlushErr:
		return 0, errOver
	case wc.Status != roce.StatusSuccess:
		return 0, fmt.Errorf("work request failed: %w", wc.Err())
	}
	if wc.Opcode == roce.WCRecv {
		s.received++
	}
	return wc.Opcode, nil
}

// recv waits for a message and posts the next receive.
func (s *session) recv(ctx context.Context) ([]byte, error) {
	for s.received == 0 {
		if _, err := s.next(ctx); err != nil {
			return nil, err
		}
	}
	s.received--
	return bytes.Clone(s.msg.Bytes()[advertLen:]), s.postRecv()
}

// do posts a work request and waits for its completion.
func (s *session) do(ctx context.Context, wr roce.SendWR, want roce.WCOpcode) error {
	wr.Flags |= roce.Signaled
	if err := s.qp.PostSend(&wr); err != nil {
		return err
	}
	for {
		if got, err := s.next(ctx); err != nil || got == want {
			return err
		}
	}
}

// send sends a message: address, key and length of memory of this side.
func (s *session) send(ctx context.Context, m *roce.MR) error {
	msg := s.msg.Bytes()
	binary.BigEndian.PutUint64(msg, m.Addr())
	binary.BigEndian.PutUint32(msg[8:], uint32(m.RKey()))
	binary.BigEndian.PutUint32(msg[12:], uint32(m.Len()))
	return s.do(ctx, roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{s.msg.SGE(0, advertLen)}}, roce.WCSend)
}

// connParam is the connection parameters of rping (rdma_connect).
var connParam = roce.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// Client connects to the server at addr ("host:port"), pings and disconnects.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (r Result, err error) {
	if err := c.Validate(); err != nil {
		return r, err
	}
	s, err := newSession(d, c.Size)
	if err != nil {
		return r, err
	}
	s.conn, err = s.Conn(d.Dial(ctx, addr, roce.DialConfig{PD: s.PD, QPConfig: s.config(), Param: connParam, Setup: s.setup}))
	if err != nil {
		return r, err
	}
	defer s.Close()
	for ; c.Count == 0 || r.Pings < c.Count; r.Pings++ {
		if err := s.ping(ctx, r.Pings, &c); err != nil {
			if c.Count == 0 && ctx.Err() != nil {
				break
			}
			return r, fmt.Errorf("ping %d: %w", r.Pings, err)
		}
		r.Bytes += 2 * c.Size
	}
	return r, s.conn.Disconnect(context.WithoutCancel(ctx))
}

// ping passes one text to the server and back.
func (s *session) ping(ctx context.Context, n int, c *Config) error {
	fill(s.from.Bytes(), n)
	clear(s.text.Bytes())
	for _, m := range []*roce.MR{s.from, s.text} {
		if err := s.send(ctx, m); err != nil {
			return err
		}
		if _, err := s.recv(ctx); err != nil {
			return err
		}
	}
	if c.Check && !bytes.Equal(s.text.Bytes(), s.from.Bytes()) {
		return errors.New("data mismatch: what came back is not what was sent")
	}
	if c.Verbose {
		fmt.Fprintf(c.Out, "ping data: %s\n", shown(oob.Text(s.text.Bytes())))
	}
	return nil
}

// fill writes rping's text: a number, then letters, of which the first depends on the number.
func fill(b []byte, n int) {
	const first, last = 'A', 'z'
	c := byte(first + n%(last-first+1))
	for i := copy(b, fmt.Sprintf("rdma-ping-%d: ", n)); i < len(b); i++ {
		b[i] = c
		if c++; c > last {
			c = first
		}
	}
	b[len(b)-1] = 0
}

// maxShown is the longest text that is printed whole.
const maxShown = 256

// shown returns a text for printing: the whole text if it is short, otherwise its beginning and its length.
func shown(text string) string {
	if len(text) <= maxShown {
		return text
	}
	return fmt.Sprintf("%s… (%d bytes)", text[:maxShown], len(text))
}

// Server accepts one connection, serves it until the client disconnects and returns. It fails if
// the client makes fewer pings than c says. It calls listening when a client can connect. addr is
// "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) (r Result, err error) {
	if err := c.Validate(); err != nil {
		return r, err
	}
	l, err := d.Listen(ctx, addr, roce.ListenConfig{})
	if err != nil {
		return r, err
	}
	defer l.Close()
	listening(l.Addr())
	s, err := acceptor.One(ctx, l, func(ctx context.Context, request *roce.ConnRequest) (*session, error) {
		s, err := newSession(d, MaxSize+1)
		if err != nil {
			return nil, errors.Join(err, request.Reject(nil))
		}
		s.conn, err = s.Conn(request.Accept(ctx, roce.AcceptConfig{PD: s.PD, QPConfig: s.config(), Param: connParam, Setup: s.setup}))
		return s, err
	})
	if err != nil {
		return r, err
	}
	defer s.Close()
	for ; ; r.Pings++ {
		n, err := s.serve(ctx, &c)
		switch {
		case errors.Is(err, errOver) && r.Pings < c.Count:
			return r, fmt.Errorf("the client disconnected after %d pings of %d: give both ends the same -C", r.Pings, c.Count)
		case errors.Is(err, errOver):
			return r, s.conn.Disconnect(context.WithoutCancel(ctx))
		case err != nil:
			return r, fmt.Errorf("ping %d: %w", r.Pings, err)
		}
		r.Bytes += 2 * n
	}
}

// serve answers one ping. It returns errOver only if the connection ended between two pings.
func (s *session) serve(ctx context.Context, c *Config) (n int, err error) {
	source, err := s.recv(ctx)
	if err != nil {
		return 0, err
	}
	inPing := func(err error) error {
		if errors.Is(err, errOver) {
			return errors.New("the client disconnected in the middle of the ping")
		}
		return err
	}
	if n, err = s.transfer(ctx, roce.Read, source); err != nil {
		return 0, inPing(err)
	}
	if c.Verbose {
		fmt.Fprintf(c.Out, "server ping data: %s\n", shown(oob.Text(s.text.Bytes()[:n])))
	}
	if err := s.send(ctx, s.text); err != nil {
		return 0, inPing(err)
	}
	sink, err := s.recv(ctx)
	if err != nil {
		return 0, inPing(err)
	}
	binary.BigEndian.PutUint32(sink[12:], uint32(len(oob.Text(s.text.Bytes()[:n]))+1))
	if _, err := s.transfer(ctx, roce.Write, sink); err != nil {
		return 0, inPing(err)
	}
	// The client has its data: the ping is complete, even if the client disconnects before its
	// acknowledgement of this message arrives.
	if err := s.send(ctx, s.text); !errors.Is(err, errOver) {
		return n, err
	}
	return n, nil
}

// transfer does a READ or WRITE of the memory that a message of the client announces.
func (s *session) transfer(ctx context.Context, op roce.Opcode, advert []byte) (n int, err error) {
	n = int(binary.BigEndian.Uint32(advert[12:]))
	if n > s.text.Len() {
		return 0, fmt.Errorf("the client advertises %d bytes, rping passes at most %d", n, s.text.Len())
	}
	want := roce.WCRead
	if op == roce.Write {
		want = roce.WCWrite
	}
	return n, s.do(ctx, roce.SendWR{Opcode: op, SG: []roce.SGE{s.text.SGE(0, n)}, RemoteAddr: binary.BigEndian.Uint64(advert),
		RKey: roce.RKey(binary.BigEndian.Uint32(advert[8:]))}, want)
}

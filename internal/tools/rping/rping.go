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
	"github.com/goroce/roce/internal/tools/usage"
)

// DefaultPort is the port rping uses.
const DefaultPort = 7174

// Sizes of the text that is passed: as in rping.
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

// Result says what a run has done.
type Result struct {
	Pings int `json:"pings"`
	Bytes int `json:"bytes"`
}

// Validate fills in defaults and returns an error that names the option which makes no sense.
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
	conn *roce.Conn
	qp   *roce.QP
	text []byte // rping's rdma_buf: what was read, what was written to
	from []byte // the client's start_buf
	msg  []byte // message to send, then message received

	textMR, fromMR, msgMR *roce.MR
	received              int // messages that have not been looked at
}

// setup registers the memory and posts the first receive.
func (s *session) setup(q *roce.QP, size int) (err error) {
	s.qp = q
	for _, m := range []struct {
		mr   **roce.MR
		buf  *[]byte
		size int
	}{{&s.textMR, &s.text, size}, {&s.fromMR, &s.from, size}, {&s.msgMR, &s.msg, 2 * advertLen}} {
		if *m.mr, err = q.PD().AllocMR(m.size, roce.LocalWrite|roce.RemoteWrite|roce.RemoteRead); err != nil {
			return err
		}
		*m.buf = (*m.mr).Bytes()
	}
	return s.postRecv()
}

func (s *session) postRecv() error {
	return s.qp.PostRecv(&roce.RecvWR{SG: []roce.SGE{s.msgMR.SGE(advertLen, advertLen)}})
}

// close gives everything back.
func (s *session) close() {
	for _, m := range []*roce.MR{s.textMR, s.fromMR, s.msgMR} {
		if m != nil {
			m.Close()
		}
	}
	if s.conn != nil {
		s.conn.Close()
	}
}

// errOver is the end of a connection between two pings.
var errOver = errors.New("the peer has disconnected")

// next takes one completion. A flush means that the connection is over.
func (s *session) next(ctx context.Context) (roce.WCOpcode, error) {
	wc, err := s.qp.SendCQ().Next(ctx)
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
	return bytes.Clone(s.msg[advertLen:]), s.postRecv()
}

// do posts a work request and waits for it.
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

// send sends a message: where memory of this side is.
func (s *session) send(ctx context.Context, m *roce.MR) error {
	binary.BigEndian.PutUint64(s.msg, m.Addr())
	binary.BigEndian.PutUint32(s.msg[8:], uint32(m.RKey()))
	binary.BigEndian.PutUint32(s.msg[12:], uint32(m.Len()))
	return s.do(ctx, roce.SendWR{Opcode: roce.Send, SG: []roce.SGE{s.msgMR.SGE(0, advertLen)}}, roce.WCSend)
}

// connParam is what rping asks for.
var connParam = roce.ConnParam{ResponderResources: 1, InitiatorDepth: 1, RetryCount: 7, RNRRetryCount: 7}

// queues are the sizes of the queues: rping has one thing under way at a time.
func queues(d *roce.Device) (roce.QPConfig, *roce.CQ, error) {
	c, err := d.CreateCQ(64)
	return roce.QPConfig{SendCQ: c, RecvCQ: c, Caps: roce.Caps{MaxSendWR: 16, MaxRecvWR: 4, MaxSendSGE: 1, MaxRecvSGE: 1}}, c, err
}

// Client connects and pings.
func Client(ctx context.Context, d *roce.Device, addr string, c Config) (r Result, err error) {
	if err := c.Validate(); err != nil {
		return r, err
	}
	config, q, err := queues(d)
	if err != nil {
		return r, err
	}
	defer q.Close()
	s := new(session)
	defer s.close()
	s.conn, err = d.Dial(ctx, addr, roce.DialConfig{QPConfig: config, Param: connParam,
		Setup: func(q *roce.QP) error { return s.setup(q, c.Size) }})
	if err != nil {
		return r, err
	}
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
	fill(s.from, n)
	clear(s.text)
	for _, m := range []*roce.MR{s.fromMR, s.textMR} {
		if err := s.send(ctx, m); err != nil {
			return err
		}
		if _, err := s.recv(ctx); err != nil {
			return err
		}
	}
	if c.Check && !bytes.Equal(s.text, s.from) {
		return errors.New("data mismatch: what came back is not what was sent")
	}
	if c.Verbose {
		fmt.Fprintf(c.Out, "ping data: %s\n", shown(text(s.text)))
	}
	return nil
}

// fill writes rping's text: a number, then letters, each time from another
// one.
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

// text is a C string.
func text(b []byte) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// maxShown is the longest text that is printed whole.
const maxShown = 256

// shown is what is printed of a text: all of a short one, the beginning of a long one and
// how many bytes it has.
func shown(b []byte) string {
	if len(b) <= maxShown {
		return string(b)
	}
	return fmt.Sprintf("%s… (%d bytes)", b[:maxShown], len(b))
}

// Server accepts one connection, serves it until the client disconnects and
// returns. listening is called when clients can connect.
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
	var queue *roce.CQ
	s, err := acceptor.One(ctx, l, func(ctx context.Context, request *roce.ConnRequest) (s *session, err error) {
		var config roce.QPConfig
		if config, queue, err = queues(d); err != nil {
			return nil, err
		}
		s = new(session)
		s.conn, err = request.Accept(ctx, roce.AcceptConfig{QPConfig: config, Param: connParam,
			Setup: func(q *roce.QP) error { return s.setup(q, MaxSize+1) }})
		if err != nil {
			s.close()
			queue.Close()
		}
		return s, err
	})
	if err != nil {
		return r, err
	}
	defer queue.Close()
	defer s.close()
	for ; ; r.Pings++ {
		n, err := s.serve(ctx, &c)
		switch {
		case errors.Is(err, errOver):
			// Both ends close: Disconnect waits for the peer's word.
			return r, s.conn.Disconnect(context.WithoutCancel(ctx))
		case err != nil:
			return r, fmt.Errorf("ping %d: %w", r.Pings, err)
		}
		r.Bytes += 2 * n
	}
}

// serve answers one ping. errOver comes only between two.
func (s *session) serve(ctx context.Context, c *Config) (n int, err error) {
	source, err := s.recv(ctx)
	if err != nil {
		return 0, err
	}
	inPing := func(err error) error {
		if errors.Is(err, errOver) {
			return errors.New("the client disconnected in the middle")
		}
		return err
	}
	if n, err = s.transfer(ctx, roce.Read, source); err != nil {
		return 0, inPing(err)
	}
	if c.Verbose {
		fmt.Fprintf(c.Out, "server ping data: %s\n", shown(text(s.text[:n])))
	}
	if err := s.send(ctx, s.textMR); err != nil {
		return 0, inPing(err)
	}
	sink, err := s.recv(ctx)
	if err != nil {
		return 0, inPing(err)
	}
	binary.BigEndian.PutUint32(sink[12:], uint32(len(text(s.text[:n]))+1))
	if _, err := s.transfer(ctx, roce.Write, sink); err != nil {
		return 0, inPing(err)
	}
	// The client has its data. If it leaves before the acknowledgement of this
	// last word arrives, the ping is complete all the same.
	if err := s.send(ctx, s.textMR); !errors.Is(err, errOver) {
		return n, err
	}
	return n, nil
}

// transfer READs or WRITEs the memory that an advertisement names.
func (s *session) transfer(ctx context.Context, op roce.Opcode, advert []byte) (n int, err error) {
	n = int(binary.BigEndian.Uint32(advert[12:]))
	if n > s.textMR.Len() {
		return 0, fmt.Errorf("the client advertises %d bytes, rping passes at most %d", n, s.textMR.Len())
	}
	want := roce.WCRead
	if op == roce.Write {
		want = roce.WCWrite
	}
	return n, s.do(ctx, roce.SendWR{Opcode: op, SG: []roce.SGE{s.textMR.SGE(0, n)}, RemoteAddr: binary.BigEndian.Uint64(advert),
		RKey: roce.RKey(binary.BigEndian.Uint32(advert[8:]))}, want)
}

// Package rstream is rstream and riostream of librdmacm's examples: it measures the time of transfers in
// both directions over an rsocket, by the stream or by writes to mapped memory.
package rstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/oob"
	"github.com/goroce/roce/rsocket"
)

// DefaultPort is the port rstream uses.
const DefaultPort = 7471

// Config are the options of both programs.
type Config struct {
	IO         bool          // riostream: write to mapped memory
	Iterations int           // -I
	Count      int           // -C transfers one way per iteration
	Size       int           // -S bytes of a transfer
	All        bool          // -S all: every size
	Custom     bool          // one test of Iterations, Count and Size; otherwise latency and bandwidth over sizes
	Buffer     int           // -B bytes of each buffer; 0: 512 KiB
	Keepalive  time.Duration // -k between probes; 0: none
	Verify     bool          // -T v: check the data
	Out        io.Writer     // the table; nil: nowhere
	Result     func(Result)  // called for each line of the table; may be nil
}

// Defaults of rstream for a custom test.
const (
	DefaultIterations = 1
	DefaultCount      = 1000
	DefaultSize       = 1000
	defaultBuffer     = 1 << 19
)

// Result is one line of the table.
type Result struct {
	Name       string        `json:"name"`
	Size       int           `json:"bytes"`
	Count      int           `json:"transfers"`
	Iterations int           `json:"iterations"`
	Elapsed    time.Duration `json:"elapsed_ns"`
}

// Bytes returns the number of bytes in both directions.
func (r Result) Bytes() int64 { return 2 * int64(r.Size) * int64(r.Count) * int64(r.Iterations) }

// String returns the line as rstream prints it.
func (r Result) String() string {
	us := float64(r.Elapsed) / float64(time.Microsecond)
	return fmt.Sprintf("%-10s%-8s%-8s%-8s%-8s%8.2fs%10.2f%11.2f", r.Name, sizeText(int64(r.Size)), countText(r.Count), countText(r.Iterations),
		sizeText(r.Bytes()), r.Elapsed.Seconds(), float64(r.Bytes())*8/1000/us, us/float64(r.Iterations)/float64(2*r.Count))
}

const header = "name      bytes   xfers   iters   total       time     Gb/sec    usec/xfer"

// stream is a connection and its role in the tests.
type stream struct {
	*rsocket.Conn
	client bool
}

// Server serves one client and returns when the tests are over. It calls listening when the
// client can connect. addr is "host:port", and host may be empty.
func Server(ctx context.Context, d *roce.Device, addr string, c Config, listening func(netip.AddrPort)) error {
	l, err := rsocket.Listen(d, addr, c.rsocket())
	if err != nil {
		return err
	}
	defer l.Close()
	listening(l.Addr().(rsocket.Addr).AddrPort)
	return c.run(ctx, false, func(ctx context.Context) (*rsocket.Conn, error) { return l.AcceptContext(ctx) })
}

// Client runs the tests with the server at addr ("host:port").
func Client(ctx context.Context, d *roce.Device, addr string, c Config) error {
	return c.run(ctx, true, func(ctx context.Context) (*rsocket.Conn, error) { return rsocket.Dial(ctx, d, addr, c.rsocket()) })
}

func (c *Config) rsocket() rsocket.Config {
	r := rsocket.Config{SendBuffer: c.Buffer, RecvBuffer: c.Buffer}
	if c.Buffer == 0 {
		r.SendBuffer, r.RecvBuffer = defaultBuffer, defaultBuffer
	}
	if c.IO {
		r.Maps = 1
	}
	return r
}

// run runs the tests: one, or latency over a first and bandwidth over a second
// connection.
func (c *Config) run(ctx context.Context, client bool, connect func(context.Context) (*rsocket.Conn, error)) error {
	if c.Out == nil {
		c.Out = io.Discard
	}
	fmt.Fprintln(c.Out, header)
	for _, tests := range c.plan() {
		conn, err := connect(ctx)
		if err != nil {
			return err
		}
		err = c.play(ctx, stream{conn, client}, tests)
		if cerr := conn.Close(); err == nil && !regularEnd(cerr, client) {
			err = cerr
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// regularEnd reports whether err is a permitted error of closing a connection after tests that passed. The client exits
// after it has the last data: if its last acknowledgement is lost, the server cannot know that the data arrived. If the
// client's DREQ is lost, too, the server gets no answer until its retries or its linger time are over.
func regularEnd(err error, client bool) bool {
	if err == nil || errors.Is(err, net.ErrClosed) {
		return true
	}
	return !client && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.ETIMEDOUT) || errors.Is(err, os.ErrDeadlineExceeded))
}

// play runs tests over one connection.
func (c *Config) play(ctx context.Context, s stream, tests []Result) error {
	defer context.AfterFunc(ctx, func() { s.Close() })()
	if c.Keepalive > 0 {
		if err := s.SetKeepAlivePeriod(c.Keepalive); err != nil {
			return err
		}
	}
	var verify *pattern
	if c.Verify {
		verify = new(pattern)
	}
	for _, t := range tests {
		run := streamTest
		if c.IO {
			run = mappedTest
		}
		elapsed, err := run(ctx, s, t, verify)
		if err != nil {
			if ctx.Err() != nil {
				err = ctx.Err()
			}
			return fmt.Errorf("%s: %w", t.Name, err)
		}
		t.Elapsed = elapsed
		fmt.Fprintln(c.Out, t)
		if c.Result != nil {
			c.Result(t)
		}
	}
	return nil
}

// plan lists the tests of each connection.
func (c *Config) plan() [][]Result {
	if c.Custom {
		return [][]Result{{{Name: "custom", Size: c.Size, Count: c.Count, Iterations: c.Iterations}}}
	}
	var latency, bandwidth []Result
	for _, size := range c.sizes() {
		n := sizeCount(size)
		latency = append(latency, Result{Name: sizeText(int64(size)) + "_lat", Size: size, Count: 1, Iterations: n})
		bandwidth = append(bandwidth, Result{Name: sizeText(int64(size)) + "_bw", Size: size, Count: n, Iterations: 1})
	}
	return [][]Result{latency, bandwidth}
}

// sizes returns the sizes of rstream: 64 bytes, 4 KiB, 64 KiB and 1 MiB. With All these are 64 bytes, and then 2^n and 1.5 · 2^n bytes from 128
// bytes up to 6 MiB.
func (c *Config) sizes() []int {
	if !c.All {
		return []int{1 << 6, 1 << 12, 1 << 16, 1 << 20}
	}
	all := []int{1 << 6}
	for p := 1 << 7; p <= 1<<22; p <<= 1 {
		all = append(all, p, p+p/2)
	}
	return all
}

// sizeCount returns how often a size is sent.
func sizeCount(size int) int {
	switch {
	case size >= 1<<20:
		return 100
	case size >= 1<<16:
		return 1000
	case size >= 1<<10:
		return 10_000
	}
	return 100_000
}

// streamTest sends over the stream: first the client, then the server the same amount.
func streamTest(_ context.Context, s stream, t Result, verify *pattern) (time.Duration, error) {
	buf := make([]byte, t.Size)
	send := func() error {
		verify.fill(buf)
		_, err := s.Write(buf)
		return err
	}
	receive := func() error {
		if _, err := io.ReadFull(s, buf); err != nil {
			return err
		}
		return verify.check(buf)
	}
	if err := s.sync(verify); err != nil {
		return 0, err
	}
	start := time.Now()
	for range t.Iterations {
		for _, step := range oob.Order(s.client, send, receive) {
			for range t.Count {
				if err := step(); err != nil {
					return 0, err
				}
			}
		}
	}
	return time.Since(start), nil
}

// syncLen is how many bytes each end sends before a test, so that both begin at the same time. In
// rstream these bytes belong to the data that is checked, in riostream they do not.
const syncLen = 16

func (s stream) sync(verify *pattern) error {
	var b [syncLen]byte
	write := func() error {
		verify.fill(b[:])
		_, err := s.Write(b[:])
		return err
	}
	read := func() error {
		if _, err := io.ReadFull(s, b[:]); err != nil {
			return err
		}
		return verify.check(b[:])
	}
	return oob.InOrder(s.client, write, read)
}

package pingpong

import (
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/tooltest"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/link/fault"
)

// server is a server on a device.
func server(d *roce.Device, c Config) func(context.Context, string, func(netip.AddrPort)) (Result, error) {
	return func(ctx context.Context, addr string, listening func(netip.AddrPort)) (Result, error) {
		return Server(ctx, d, addr, c, listening)
	}
}

// serve starts one on the loopback's TCP and returns its address.
func serve(t *testing.T, d *roce.Device, c Config) (addr string, done <-chan tooltest.Outcome[Result]) {
	t.Helper()
	return tooltest.Serve(t, server(d, c))
}

func TestPlay(t *testing.T) {
	of := func(k Kind, change func(*Config)) Config {
		c := k.Defaults()
		c.Iters, c.Check = 50, true
		change(&c)
		return c
	}
	with := func(change func(*Config)) Config { return of(RC, change) }
	for _, tt := range []struct {
		name  string
		fault fault.Config
		cfg   Config
	}{
		{"defaults", fault.Config{}, with(func(*Config) {})},
		{"one byte", fault.Config{}, with(func(c *Config) { c.Size = 1 })},
		{"odd sizes", fault.Config{}, with(func(c *Config) { c.Size, c.MTU, c.RxDepth, c.Iters = 10001, roce.MTU512, 3, 20 })},
		{"IPv6", fault.Config{}, with(func(c *Config) { c.GID = "1" })},
		{"UC", fault.Config{}, of(UC, func(c *Config) { c.Size, c.MTU = 9999, roce.MTU256 })},
		{"UD", fault.Config{}, of(UD, func(c *Config) { c.RxDepth = 2 })},
		{"UD over IPv6", fault.Config{}, of(UD, func(c *Config) { c.Size, c.GID = 1, "1" })},
		{"SRQ", fault.Config{}, of(SRQ, func(*Config) {})},
		{"SRQ with one", fault.Config{}, of(SRQ, func(c *Config) { c.QPs, c.RxDepth, c.Size = 1, 1, 5 })},
		{"SRQ with as many receives as queue pairs", fault.Config{}, of(SRQ, func(c *Config) { c.QPs, c.RxDepth, c.Iters = 20, 20, 300 })},
		{"SRQ over IPv6", fault.Config{}, of(SRQ, func(c *Config) { c.GID = "1" })},
		{"SRQ with losses", fault.Config{Seed: 6, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}, of(SRQ, func(c *Config) { c.Iters = 60 })},
		{"losses", fault.Config{Seed: 5, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}, with(func(c *Config) { c.Iters = 20 })},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sd, cd := tooltest.Pair(t, tt.fault)
			addr, served := serve(t, sd, tt.cfg)
			var out strings.Builder
			cc := tt.cfg
			cc.Out = &out
			r, err := Client(t.Context(), cd, addr, cc)
			if err != nil {
				t.Errorf("client: %v", err)
			}
			if o := <-served; o.Err != nil {
				t.Errorf("server: %v", o.Err)
			}
			if want := int64(2 * tt.cfg.Size * tt.cfg.Iters); r.Bytes != want || r.Iters != tt.cfg.Iters {
				t.Errorf("%+v, want %d bytes in %d exchanges", r, want, tt.cfg.Iters)
			}
			lines := strings.Split(out.String(), "\n")
			if q := tt.cfg.QPs; len(lines) != 2*q+1 || !strings.HasPrefix(lines[q-1], "  local address:  LID 0x0000, QPN 0x") ||
				!strings.HasPrefix(lines[q], "  remote address: LID 0x0000, QPN 0x") {
				t.Errorf("printed %q", out.String())
			}
		})
	}
}

// The server reports a peer that violates the protocol.
func TestBadPeers(t *testing.T) {
	stranger := Addr{QPN: 0x12, PSN: 1, GID: bth.GIDFrom(netip.MustParseAddr(tooltest.Client4))}
	for _, tt := range []struct{ name, send, want string }{
		{"hangs up", "", "read the remote address: EOF"},
		{"talks nonsense", strings.Repeat("?", RecordLen), "want lid:qpn:psn:gid"},
		{"has no GID", string(Addr{QPN: 0x12}.Append(nil)), "no GID"},
		{"does not confirm", string(stranger.Append(nil)), "wait for the client's confirmation: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sd, _ := tooltest.Pair(t, fault.Config{})
			addr, served := serve(t, sd, RC.Defaults())
			tooltest.BadPeer(t, addr, tt.send, tt.want, func() error { return (<-served).Err })
		})
	}
}

func TestInterrupted(t *testing.T) {
	sd, _ := tooltest.Pair(t, fault.Config{})
	tooltest.Interrupted(t, server(sd, RC.Defaults()))
}

func TestConfigCheck(t *testing.T) {
	for _, change := range []func(*Config){
		func(c *Config) { c.Size = 0 },
		func(c *Config) { c.Iters = -1 },
		func(c *Config) { c.RxDepth = 0 },
		func(c *Config) { c.MTU = 9 },
		func(c *Config) { c.Kind = 99 },
		func(c *Config) { c.GID = "eth0" },
		func(c *Config) { c.QPs = 2 },
		func(c *Config) { c.Kind, c.QPs = SRQ, 0 },
		func(c *Config) { c.Kind, c.QPs = SRQ, 256 },
		func(c *Config) { c.Kind, c.QPs, c.RxDepth = SRQ, 5, 4 },
	} {
		c := RC.Defaults()
		change(&c)
		_, err := Client(t.Context(), nil, "", c)
		if _, ok := errors.AsType[usage.Error](err); !ok {
			t.Errorf("%+v: %v", c, err)
		}
	}
	_, cd := tooltest.Pair(t, fault.Config{})
	c := RC.Defaults()
	c.GID, c.Out = "2", io.Discard
	if _, err := newEnd(cd, &c, netip.Addr{}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("GID index beyond the table: %v", err)
	}
}

// TestFewerQPs: the two sides must have the same number of queue pairs.
func TestFewerQPs(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	addr, served := serve(t, sd, SRQ.Defaults())
	c := SRQ.Defaults()
	c.QPs = 7
	if _, err := Client(t.Context(), cd, addr, c); err == nil {
		t.Error("client: no error")
	}
	if o := <-served; o.Err == nil || !strings.Contains(o.Err.Error(), "the peer has 7 queue pairs, this end 16") {
		t.Errorf("server: %v", o.Err)
	}
}

// TestTooLarge: a UD message is one packet.
func TestTooLarge(t *testing.T) {
	sd, _ := tooltest.Pair(t, fault.Config{}) // MTU 1500: packets of 1024 bytes
	addr, served := serve(t, sd, func() Config { c := UD.Defaults(); c.Size++; return c }())
	tcp, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	if o := <-served; o.Err == nil || !strings.Contains(o.Err.Error(), "a datagram has at most the port's MTU, 1024 bytes") {
		t.Errorf("server: %v", o.Err)
	}
}

func TestCheckMessage(t *testing.T) {
	_, cd := tooltest.Pair(t, fault.Config{})
	for _, c := range []Config{RC.Defaults(), UD.Defaults(), SRQ.Defaults()} {
		c.Check, c.Out = true, io.Discard
		if c.Kind == RC {
			c.Size = 2 * pageSize
		}
		e, err := newEnd(cd, &c, netip.MustParseAddr(tooltest.Server4))
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		n, pattern := e.place, kinds[c.Kind].pattern
		at := 0
		if c.Kind == SRQ {
			at = 3
		}
		b := e.recv.Bytes()[at*n:][n-c.Size : n]
		for _, marked := range []bool{false, true} {
			if fillMessage(b, pattern, marked); e.checkMessage(at, n) != nil {
				t.Errorf("%v: good message refused, marked %v", c.Kind, marked)
			}
			if e.checkMessage(at, n) == nil {
				t.Errorf("%v: message was not wiped", c.Kind)
			}
		}
		fillMessage(b, pattern, false)
		b[1] = 5
		if err := e.checkMessage(at, n); !errors.Is(err, ErrMismatch) {
			t.Errorf("%v: wrong byte: %v", c.Kind, err)
		}
		fillMessage(b, pattern, false)
		if err := e.checkMessage(at, n-1); !errors.Is(err, ErrMismatch) {
			t.Errorf("%v: short message: %v", c.Kind, err)
		}
	}
}

func TestResultString(t *testing.T) {
	r := Result{Iters: 1000, Bytes: 8192000, Time: 125 * time.Millisecond}
	want := "8192000 bytes in 0.12 seconds = 524.29 Mbit/sec\n1000 iters in 0.12 seconds = 125.00 usec/iter"
	if got := r.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// If the two ends have different sizes, each of them names the flag.
func TestSizesDiffer(t *testing.T) {
	sd, cd := tooltest.Pair(t, fault.Config{})
	c := RC.Defaults()
	c.Iters = 5
	addr, served := serve(t, sd, c)
	c.Size *= 2
	_, err := Client(t.Context(), cd, addr, c)
	for end, err := range map[string]error{"client": err, "server": (<-served).Err} {
		if err == nil || !strings.Contains(err.Error(), "give both ends the same -s") {
			t.Errorf("%s: %v", end, err)
		}
	}
}

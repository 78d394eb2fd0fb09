package perftest

import (
	"context"
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/tooltest"
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
	if c.CM {
		return tooltest.ServeAt(t, tooltest.Server4+":18515", server(d, c))
	}
	return tooltest.Serve(t, server(d, c))
}

func config(t *testing.T, name string, change func(*Config)) Config {
	t.Helper()
	i := slices.IndexFunc(Tests, func(t Test) bool { return t.Name == name })
	if i < 0 {
		t.Fatalf("no test %s", name)
	}
	c := Tests[i].Config()
	c.Check = true
	change(&c)
	return c
}

func TestRun(t *testing.T) {
	for _, tt := range []struct {
		test, name string
		fault      fault.Config
		change     func(*Config)
	}{
		{"atomic_bw", "defaults", fault.Config{}, func(*Config) {}},
		{"atomic_bw", "compare and swap", fault.Config{}, func(c *Config) { c.Atomic = CmpAndSwap }},
		{"atomic_bw", "one at a time", fault.Config{}, func(c *Config) { c.TxDepth, c.Iters = 1, 200 }},
		{"atomic_bw", "few of many", fault.Config{}, func(c *Config) { c.OutReads, c.TxDepth, c.Iters = 3, 50, 777 }},
		{"atomic_bw", "IPv6", fault.Config{}, func(c *Config) { c.GIDIndex, c.Iters = 1, 5 }},
		{"atomic_bw", "losses", fault.Config{Seed: 5, Tx: fault.Rates{Loss: 0.02, Dup: 0.1}}, func(c *Config) { c.Iters = 300 }},
		{"atomic_bw", "losses, compare and swap", fault.Config{Seed: 6, Tx: fault.Rates{Loss: 0.02, Dup: 0.1}},
			func(c *Config) { c.Atomic, c.Iters = CmpAndSwap, 300 }},
		{"send_bw", "defaults", fault.Config{}, func(*Config) {}},
		{"send_bw", "round and round", fault.Config{}, func(c *Config) { c.Size, c.RxDepth = 100, 7 }},
		{"send_bw", "losses", fault.Config{Seed: 7, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}, func(c *Config) { c.Size, c.Iters = 3000, 100 }},
		{"write_bw", "defaults", fault.Config{}, func(c *Config) { c.Iters = 500 }},
		{"write_bw", "round and round", fault.Config{}, func(c *Config) { c.Size, c.Iters = 2000, 500 }},
		{"write_bw", "one byte", fault.Config{}, func(c *Config) { c.Size, c.Iters = 1, 500 }},
		{"write_bw", "losses", fault.Config{Seed: 8, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}, func(c *Config) { c.Size, c.Iters = 3000, 100 }},
		{"read_bw", "defaults", fault.Config{}, func(*Config) {}},
		{"read_bw", "round and round", fault.Config{}, func(c *Config) { c.Size, c.TxDepth = 700, 9 }},
		{"read_bw", "losses", fault.Config{Seed: 9, Tx: fault.Rates{Loss: 0.01, Dup: 0.05}}, func(c *Config) { c.Size, c.Iters = 3000, 100 }},
	} {
		t.Run(tt.test+"/"+tt.name, func(t *testing.T) {
			sd, cd := tooltest.Pair(t, tt.fault)
			cfg := config(t, tt.test, tt.change)
			var out strings.Builder
			sc := cfg
			sc.Out = &out
			addr, served := serve(t, sd, sc)
			got, err := Client(t.Context(), cd, addr, cfg)
			o := <-served
			if err != nil || o.Err != nil {
				t.Fatalf("client: %v, server: %v", err, o.Err)
			}
			r := got.Bandwidth[0]
			if r.Size != cfg.Size || r.Iters != cfg.Iters || r.Average <= 0 || r.Peak < r.Average || r.MsgRate <= 0 {
				t.Errorf("report %+v", r)
			}
			switch told := o.Result.Bandwidth[0]; {
			case !cfg.Test.TwoSided && told != r:
				t.Errorf("the server was told %+v, want %+v", told, r)
			case cfg.Test.TwoSided && (told.Iters != r.Iters || told.Size != r.Size || told.MsgRate <= 0 || told.Peak != 0):
				t.Errorf("the server has measured %+v", told)
			}
			if !regexp.MustCompile(`(?m)^ local address:  LID 0000 QPN 0x.*\n remote address: LID 0000 QPN 0x.*\n-+\n #bytes .*\n `).MatchString(out.String()) {
				t.Errorf("printed\n%s", out.String())
			}
		})
	}
}

// hand returns the two connected ends of a test, without a TCP connection.
func hand(t *testing.T, c Config) (server, client *end) {
	t.Helper()
	sd, cd := tooltest.Pair(t, fault.Config{})
	ends := [2]*end{}
	for i, d := range []*roce.Device{sd, cd} {
		own := c
		if err := own.check(d); err != nil {
			t.Fatal(err)
		}
		s, err := newSide(d, &own, terms{cycleBuffer, cacheLine, roce.MTU1024}, netip.MustParseAddr("127.0.0.1"), i == 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		ends[i] = s.lanes[0]
	}
	for i, e := range ends {
		if err := e.connect(t.Context(), ends[1-i].local); err != nil {
			t.Fatal(err)
		}
	}
	return ends[0], ends[1]
}

// begin prepares both ends of a test, until the client's work can begin.
func begin(t *testing.T, client, server *end) (work, service) {
	t.Helper()
	v, err := server.cfg.Test.serve(server)
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.cfg.Test.work(client, server.local)
	if err != nil {
		t.Fatal(err)
	}
	if r, ok := v.(*receives); ok {
		if err := r.begin(); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return w, v
}

// A client has as many READs outstanding as both ends allow. A server answers as many as it has announced, because perftest
// relies on that.
func TestOutReads(t *testing.T) {
	for _, tt := range []struct{ own, remote, sends, answers uint8 }{{100, 2, 2, 100}, {2, 100, 2, 2}, {128, 128, 128, 128}} {
		_, d := tooltest.Pair(t, fault.Config{})
		c := config(t, "atomic_bw", func(c *Config) { c.OutReads = int(tt.own) })
		if err := c.check(d); err != nil {
			t.Fatal(err)
		}
		s, err := newSide(d, &c, terms{cycleBuffer, cacheLine, roce.MTU1024}, netip.MustParseAddr("127.0.0.1"), false)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		e := s.lanes[0]
		remote := capturedDest
		remote.GID, remote.OutReads = bth.GIDFrom(netip.MustParseAddr(tooltest.Server4)), uint32(tt.remote)
		if err := e.connect(t.Context(), remote); err != nil {
			t.Fatal(err)
		}
		if a, _ := e.qp.Query(); a.MaxRdAtomic != tt.sends || a.MaxDestRdAtomic != tt.answers {
			t.Errorf("-o %d to a peer with -o %d: sends %d, answers %d; want %d and %d", tt.own, tt.remote, a.MaxRdAtomic, a.MaxDestRdAtomic, tt.sends, tt.answers)
		}
	}
}

// The checks find a server that executes an atomic twice, not at all, or beside its word.
func TestAtomicChecks(t *testing.T) {
	fetchAdd := config(t, "atomic_bw", func(c *Config) { c.Iters, c.TxDepth = 200, 8 })
	cmpSwap := fetchAdd
	cmpSwap.Atomic = CmpAndSwap
	word := func(e *end, i int) []byte { return e.export.Bytes()[i*cacheLine:] }
	add := func(b []byte, n uint64) { binary.NativeEndian.PutUint64(b, binary.NativeEndian.Uint64(b)+n) }

	for _, tt := range []struct {
		name   string
		cfg    Config
		harm   func(server *end)
		client string // part of the client's error; "" if there is none
		server string // the same of the server
	}{
		{"good", fetchAdd, func(*end) {}, "", ""},
		{"good swap", cmpSwap, func(*end) {}, "", ""},
		{"executed twice", fetchAdd, func(e *end) { add(word(e, 63), 1) }, "at the end word 63 is 0x4, want 0x3", "word 63 is 4 after 200"},
		{"not executed", fetchAdd, func(e *end) { add(word(e, 7), math.MaxUint64) }, "at the end word 7 is 0x3, want 0x4", "word 7 is 3 after 200"},
		{"another value", cmpSwap, func(e *end) { add(word(e, 0), 1) }, "at the end word 0 is", ""},
		{"a failed comparison", cmpSwap, func(e *end) { clear(word(e, 3)[:8]) }, "at the end word 3 is 0x0", "word 3 was set to 0"},
		{"beside the word", cmpSwap, func(e *end) { word(e, 5)[8] = 1 }, "", "after word 5: 01"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := hand(t, tt.cfg)
			w, v := begin(t, c, s)
			if err := c.run(t.Context(), tt.cfg.Iters, w); err != nil {
				t.Fatal(err)
			}
			tt.harm(s)
			expect(t, "client", w.verify(t.Context()), tt.client)
			expect(t, "server", v.(cells).verify(Report{Iters: tt.cfg.Iters}), tt.server)
		})
	}

	// The next atomic on a word finds a wrong value in the middle of a test.
	for _, cfg := range []Config{fetchAdd, cmpSwap} {
		s, c := hand(t, cfg)
		w, _ := begin(t, c, s)
		add(word(s, 9), 5)
		err := c.run(t.Context(), cfg.Iters, w)
		if !errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), "9 on word 9 has returned") {
			t.Errorf("%v: %v", cfg.Atomic, err)
		}
	}
}

// expect compares the error of a check. want is part of it, "" if the check must find no error.
func expect(t *testing.T, who string, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("%s: %v", who, err)
	case want != "" && (!errors.Is(err, ErrMismatch) || !strings.Contains(err.Error(), want)):
		t.Errorf("%s: %v, want %q", who, err, want)
	}
}

func flip(b []byte, i int) { b[i] ^= 0x80 }

// The checks find a server that loses a WRITE or writes outside of it.
func TestWriteChecks(t *testing.T) {
	for _, tt := range []struct {
		name string
		size int
		harm func(before, after []byte)
		want string
	}{
		{"good", 1000, nil, ""},
		{"beside", 1000, func(_, b []byte) { flip(b, 1000) }, "between 0x3e8 and 0x400"},
		{"behind", 1365, func(_, b []byte) { flip(b, 4095) }, "after 0xad5"},
		{"the last never came", 1000, func(a, b []byte) { copy(b[3072:], a[3072:4072]) }, "nothing was written at 0xc00"},
		{"cut at its end", 1000, func(a, b []byte) { copy(b[4064:], a[4064:4072]) }, "nothing was written at 0xfe0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := hand(t, config(t, "write_bw", func(c *Config) { c.Size, c.Iters = tt.size, 9 }))
			w, v := begin(t, c, s)
			if err := c.run(t.Context(), 9, w); err != nil {
				t.Fatal(err)
			}
			if tt.harm != nil {
				tt.harm(v.(target).before, s.export.Bytes())
			}
			expect(t, "server", v.(target).verify(Report{Iters: 9}), tt.want)
		})
	}
}

// The checks find a server whose READ source changes between two runs.
func TestReadChecks(t *testing.T) {
	s, c := hand(t, config(t, "read_bw", func(c *Config) { c.Size = 1000 }))
	w, _ := begin(t, c, s)
	err := c.run(t.Context(), 20, w)
	expect(t, "good", err, "")
	flip(s.export.Bytes(), 1024+77)
	err = c.run(t.Context(), 20, w)
	expect(t, "other bytes", err, "READ 1 of 1000 bytes has")
}

// The checks find a client whose SENDs differ in the second run, or are shorter.
func TestSendChecks(t *testing.T) {
	for _, tt := range []struct {
		name string
		harm func(client *end, w sends)
		want string
	}{
		{"good", func(*end, sends) {}, ""},
		{"other bytes", func(_ *end, w sends) { flip(w.Bytes(), 1024+77) }, "message 9 of 1000 bytes has"},
		{"shorter", func(c *end, _ sends) { c.size-- }, "receive 8 with 999 bytes completes when 8 with 1000 is due"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s, c := hand(t, config(t, "send_bw", func(c *Config) { c.Size, c.Iters = 1000, 8 }))
			w, v := begin(t, c, s)
			if err := c.run(t.Context(), 8, w); err != nil {
				t.Fatal(err)
			}
			tr := &traffic{side: s.side, iters: 8, recv: []*receives{v.(*receives)}}
			if r, err := tr.run(t.Context()); err != nil || r.Iters != 8 || r.Size != 1000 {
				t.Fatalf("%+v, %v", r, err)
			}
			tt.harm(c, w.(sends))
			s.cfg.Iters = 16
			if err := v.(*receives).refill(); err != nil {
				t.Fatal(err)
			}
			if err := c.run(t.Context(), 8, w); err != nil {
				t.Fatal(err)
			}
			var err error
			for i := 8; i < 16 && err == nil; i++ {
				var wc roce.WC
				if wc, err = s.cq.Next(t.Context()); err == nil {
					err = v.(*receives).check(i, wc)
				}
			}
			expect(t, "server", err, tt.want)
		})
	}
}

// The checks find a client that reports a wrong number of messages.
func TestHostileReport(t *testing.T) {
	s, c := hand(t, config(t, "atomic_bw", func(*Config) {}))
	_, v := begin(t, c, s)
	for _, n := range []int{-1, math.MinInt, math.MaxInt, 1} {
		if err := v.(cells).verify(Report{Iters: n}); !errors.Is(err, ErrMismatch) && n != -1 {
			t.Errorf("%d messages: %v", n, err)
		}
	}
}

// The server reports a peer that violates the protocol.
func TestBadPeers(t *testing.T) {
	const hello = "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x10\x00\x00\x00\x00\x403\x00"
	peer := capturedDest
	peer.OutReads = 128
	with := func(change func(*Dest)) string {
		d := peer
		change(&d)
		return hello + string(d.Append(nil))
	}
	ok := with(func(*Dest) {})
	again := string(peer.Append(nil))
	for _, tt := range []struct{ name, send, want string }{
		{"hangs up", "", "receive the peer's version: EOF"},
		{"no address", hello, "receive the peer's address: EOF"},
		{"half an address", hello + captured[:50], "receive the peer's address: unexpected EOF"},
		{"nonsense", hello + strings.Repeat("?", DestLen), "want lid:out_reads"},
		{"no GID", with(func(d *Dest) { d.GID = roce.GID{} }), "no GID"},
		{"another IP version", with(func(d *Dest) { d.GID = bth.GIDFrom(netip.MustParseAddr(tooltest.Client6)) }), "the same IP version"},
		{"answers no atomics", with(func(d *Dest) { d.OutReads = 0 }), "out_reads 0"},
		{"leaves when connected", ok + again, "receive the peer's address: EOF"},
		{"leaves in mid-work", ok + again + again, "receive the peer's address: EOF"},
		{"reports half", ok + again + again + again + "\x00\x00\x00\x00\x00\x00\x00\x08", "receive the peer's report: EOF"},
		{"claims what it did not do", ok + again + again + again + strings.Repeat("\x00\x00\x00\x00\x00\x00\x00\x08", 5), "word 0 is 0 after 8 FETCH_AND_ADDs, want 1"},
		{"leaves before the end", ok + again + again + again + strings.Repeat("\x00", 40), "receive the peer's address: EOF"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sd, _ := tooltest.Pair(t, fault.Config{})
			addr, served := serve(t, sd, config(t, "atomic_bw", func(*Config) {}))
			tooltest.BadPeer(t, addr, tt.send, tt.want, func() error { return (<-served).Err })
		})
	}
}

func TestInterrupted(t *testing.T) {
	sd, _ := tooltest.Pair(t, fault.Config{})
	tooltest.Interrupted(t, server(sd, config(t, "atomic_bw", func(*Config) {})))
}

func TestConfigCheck(t *testing.T) {
	_, d := tooltest.Pair(t, fault.Config{})
	for _, change := range []func(*Config){
		func(c *Config) { c.Size = 16 },
		func(c *Config) { c.Iters = 4 },
		func(c *Config) { c.TxDepth = 0 },
		func(c *Config) { c.TxDepth = 15001 },
		func(c *Config) { c.RxDepth = 0 },
		func(c *Config) { c.OutReads = 129 },
		func(c *Config) { c.OutReads = 0 },
		func(c *Config) { c.MTU = 9 },
		func(c *Config) { c.GIDIndex = 2 },
	} {
		c := config(t, "atomic_bw", change)
		err := c.check(d)
		if err == nil {
			_, err = newSide(d, &c, terms{cycleBuffer, cacheLine, roce.MTU1024}, netip.Addr{}, false)
		}
		if err == nil {
			t.Errorf("%+v accepted", c)
		}
	}
	large := config(t, "write_bw", func(c *Config) { c.Size, c.TxDepth = maxSize, 129 })
	if err := large.check(d); err == nil || !strings.Contains(err.Error(), "that takes more than") {
		t.Errorf("a gigabyte and more under way: %v", err)
	}
}

func TestAtomicType(t *testing.T) {
	if s := AtomicType(9).String(); s != "AtomicType(9)" {
		t.Error(s)
	}
}

func TestNewReport(t *testing.T) {
	ms := func(v ...int) (d []time.Duration) {
		for _, x := range v {
			d = append(d, time.Duration(x)*time.Millisecond)
		}
		return d
	}
	// The test takes ten seconds, but the last two messages take only one.
	posted, completed := ms(0, 1, 9000, 9500), ms(5000, 8999, 9500, 10000)
	c := new(Config)
	got := plainReport(c, 1<<20, len(posted), completed[3]-posted[0])
	got.Peak = c.bandwidth(1<<20, peak(posted, completed))
	if want := (Report{Size: 1 << 20, Iters: 4, Peak: 2, Average: 0.4, MsgRate: 4e-7}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := plainReport(c, 8, 1, 0); got != (Report{Size: 8, Iters: 1}) {
		t.Errorf("in no time: %+v", got)
	}
	c.Gbits = true
	if got := plainReport(c, 1_000_000, 125, time.Second); got.Average != 1 || got.MsgRate != 125e-6 {
		t.Errorf("in gigabits: %+v", got)
	}
}

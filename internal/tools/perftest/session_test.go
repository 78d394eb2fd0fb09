package perftest

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"strings"
	"testing"

	"github.com/goroce/roce/bth"
)

// Two ends have a session. The client writes the same bytes as in a dialogue that was captured between two Linux hosts.
func TestSession(t *testing.T) {
	server, client := tcpPair(t)
	mine := Report{Size: 8, Iters: 1000, Peak: 1.5, Average: 0.25, MsgRate: 0.125}
	type outcome struct {
		terms
		remote Dest
		Report
		err error
	}
	play := func(s *session, mtu bth.MTU, d Dest, r Report) (o outcome) {
		if o.terms, o.err = s.negotiate(mtu); o.err != nil {
			return o
		}
		if o.remote, o.err = s.handshake(d); o.err != nil {
			return o
		}
		if o.Report, o.err = s.report(r); o.err != nil {
			return o
		}
		o.err = s.finish(d)
		return o
	}
	other := capturedDest
	other.QPN = 7
	var wrote [2]bytes.Buffer
	got := make(chan outcome)
	go func() {
		o := play(&session{ReadWriter: tee{server, &wrote[1]}, server: true}, bth.MTU4096, other, Report{})
		server.Close()
		got <- o
	}()
	c := play(&session{ReadWriter: tee{client, &wrote[0]}}, bth.MTU1024, capturedDest, mine)
	client.Close()
	s := <-got
	want := terms{cycle: 4096, line: 64, mtu: bth.MTU1024}
	if c.err != nil || c.terms != want || c.remote != other || c.Report != (Report{}) {
		t.Errorf("client: %+v", c)
	}
	if s.err != nil || s.terms != want || s.remote != capturedDest || s.Report != mine {
		t.Errorf("server: %+v", s)
	}
	golden := "6.06\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" + "\x00\x00\x10\x00" + "\x00\x00\x00\x40" + "3\x00" + captured +
		"\x00\x00\x00\x00\x00\x00\x00\x08" + "\x00\x00\x00\x00\x00\x00\x03\xe8" + "\x3f\xf8\x00\x00\x00\x00\x00\x00" +
		"\x3f\xd0\x00\x00\x00\x00\x00\x00" + "\x3f\xc0\x00\x00\x00\x00\x00\x00" + captured + "done\x00"
	if got := wrote[0].String(); got != golden {
		t.Errorf("the client wrote\n%q\nwant\n%q", got, golden)
	}
	if got, want := wrote[1].Len(), len(golden); got != want {
		t.Errorf("the server wrote %d bytes, want %d", got, want)
	}
}

// tcpPair returns a connection on the loopback interface. It needs a buffer, because both ends write "done" before they read.
func tcpPair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if client, err = net.Dial("tcp", l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	return server, client
}

// tee keeps what is written to a connection.
type tee struct {
	net.Conn
	to *bytes.Buffer
}

func (t tee) Write(b []byte) (int, error) {
	t.to.Write(b)
	return t.Conn.Write(b)
}

// scripted returns a session whose peer sends the given bytes.
func scripted(says string) *session {
	return &session{ReadWriter: struct {
		io.Reader
		io.Writer
	}{strings.NewReader(says), io.Discard}, server: true}
}

func version(s string) string { return s + strings.Repeat("\x00", versionLen-len(s)) }

func TestNegotiate(t *testing.T) {
	num := func(n uint32) string { return string(binary.BigEndian.AppendUint32(nil, n)) }
	for _, tt := range []struct {
		name, says string
		want       terms
		err        string
	}{
		{"the same", version("6.06") + num(4096) + num(64) + "3\x00", terms{4096, 64, bth.MTU1024}, ""},
		{"newer, larger", version("6.29") + num(65536) + num(128) + "5\x00", terms{65536, 128, bth.MTU2048}, ""},
		{"smaller", version("5.70") + num(1024) + num(0) + "1\x00", terms{4096, 64, bth.MTU256}, ""},
		{"too old", version("5.60"), terms{}, "version 5.60: want 5.70 or later"},
		{"no version", version("hello"), terms{}, `version is "hello"`},
		{"a version full of garbage", strings.Repeat("\xff", versionLen), terms{}, "is it perftest?"},
		{"an HTTP request", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", terms{}, `version is "GET / HTTP/1.1\r\n"`},
		{"empty", "", terms{}, "receive the peer's version: EOF"},
		{"cut in the version", "6.06", terms{}, "receive the peer's version: unexpected EOF"},
		{"cut in the buffer", version("6.06") + "\x00\x00", terms{}, "receive the peer's cycle buffer: unexpected EOF"},
		{"cut before the line", version("6.06") + num(4096), terms{}, "receive the peer's cache line: EOF"},
		{"cut in the MTU", version("6.06") + num(4096) + num(64) + "3", terms{}, "receive the peer's MTU: unexpected EOF"},
		{"huge buffer", version("6.06") + num(math.MaxUint32), terms{}, "cycle buffer is 4294967295 bytes"},
		{"huge line", version("6.06") + num(4096) + num(1<<31), terms{}, "cache line is 2147483648 bytes"},
		{"MTU 0", version("6.06") + num(4096) + num(64) + "0\x00", terms{}, `MTU is "0\x00"`},
		{"MTU 6", version("6.06") + num(4096) + num(64) + "6\x00", terms{}, `MTU is "6\x00"`},
		{"MTU of two digits", version("6.06") + num(4096) + num(64) + "33", terms{}, `MTU is "33"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := scripted(tt.says).negotiate(bth.MTU2048)
			if tt.err == "" && (err != nil || got != tt.want) {
				t.Errorf("%+v, %v; want %+v", got, err, tt.want)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

func FuzzNegotiate(f *testing.F) {
	f.Add([]byte(version("6.06") + "\x00\x00\x10\x00\x00\x00\x00\x403\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := scripted(string(b)).negotiate(bth.MTU4096)
		if err == nil && (got.cycle < cycleBuffer || got.cycle > maxCycle || got.line < cacheLine || got.line > maxCacheLine || !got.mtu.Valid()) {
			t.Errorf("%q: agreed on %+v", b, got)
		}
	})
}

func TestReportCut(t *testing.T) {
	if _, err := scripted(strings.Repeat("\x00", 39)).report(Report{}); err == nil || !strings.Contains(err.Error(), "receive the peer's report: unexpected EOF") {
		t.Error(err)
	}
}

func TestReportString(t *testing.T) {
	r := Report{Size: 8, Iters: 1000, Peak: 0.5, Average: 0.25, MsgRate: 0.032768}
	want := " #bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]\n" +
		" 8          1000             0.50               0.25                0.032768"
	if got := bandwidthHeader(false) + "\n" + r.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

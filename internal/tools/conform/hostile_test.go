package conform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math"
	"net"
	"net/netip"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/inside"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/mem"
)

// fakePeer starts a control server that handles connections with f, and returns its port.
func fakePeer(t *testing.T, f func(net.Conn)) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				f(c)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).AddrPort().Port()
}

// The errors for a missing peer and for programs that are no peer differ, and none of them makes the tester hang.
func TestNoPeer(t *testing.T) {
	for _, test := range []struct {
		name, says string
		f          func(net.Conn)
	}{
		{"hangs", "did not end within", func(c net.Conn) { io.Copy(io.Discard, c) }},
		{"hangs up", "no reply to hello", func(net.Conn) {}},
		{"speaks HTTP", "a message that is none", func(c net.Conn) { io.WriteString(c, "HTTP/1.1 400 Bad Request\r\n\r\n") }},
		{"another version", "another version", func(c net.Conn) { io.WriteString(c, `{"hello":{"version":99}}`+"\n"); io.Copy(io.Discard, c) }},
		{"endless line", "more than 65536 bytes", func(c net.Conn) {
			for b := bytes.Repeat([]byte("x"), 1000); ; {
				if _, err := c.Write(b); err != nil {
					return
				}
			}
		}},
		{"no address", "without addresses", func(c net.Conn) {
			io.WriteString(c, `{"hello":{"version":1,"mtu":1024}}`+"\n")
			io.Copy(io.Discard, c)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			r.cfg.Port = fakePeer(t, test.f)
			r.cfg.Limit = 2 * time.Second
			c, err := Run(t.Context(), r.cfg)
			if c != nil || err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%v, %v; want %q", c, err, test.says)
			}
		})
	}
	r := newRig(t)
	r.cfg.Port = 1
	if _, err := Run(t.Context(), r.cfg); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("nobody listens: %v", err)
	}
}

// If the peer vanishes in the middle of a test, the test ends soon. The results of earlier steps stay.
func TestVanishes(t *testing.T) {
	r := newRig(t)
	stop := r.serve(t)
	r.cfg.Only = regexp.MustCompile("clean/")
	n := 0
	r.cfg.Stepped = func(StepResult) {
		if n++; n == 2 {
			stop()
		}
	}
	c, err := Run(t.Context(), r.cfg)
	if _, gone := errors.AsType[*GoneError](err); !gone || c == nil {
		t.Fatalf("%v, %v", c, err)
	}
	if p, f, u := c.count("", Pass), c.count("", Fail), c.count("", Unknown); p != 2 || f != tooManyGone || u != len(c.Steps)-2-tooManyGone {
		t.Errorf("%d steps pass, %d fail, %d are not run, of %d", p, f, u, len(c.Steps))
	}
	if c.Verdict != Fail {
		t.Errorf("the card says %s", c.Verdict)
	}
	checkForms(t, c)
}

// If the peer's device is dead but its server answers, each step fails, and the card shows the last packets.
func TestSilentDevice(t *testing.T) {
	r := newRig(t, rule(t, "drop,tx"))
	r.serve(t)
	r.cfg.Limit = 3 * time.Second
	r.cfg.Only = regexp.MustCompile("clean/(send|write)/tester")
	c, err := Run(t.Context(), r.cfg)
	if c == nil {
		t.Fatal(err)
	}
	if c.count("", Fail) != 2 || c.Steps[0].Ladder == "" {
		t.Errorf("%+v", c.Steps[0])
	}
}

// If the tester's own device can no longer be opened, the peer does not fail.
func TestOwnDevice(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	opened := 0
	open := r.cfg.Open
	r.cfg.Open = func(wrap func(link.Port) (link.Port, error), notify bool) (Device, error) {
		if opened++; opened == 3 { // the first device is for the path MTU
			return Device{}, errors.New("interface eth7 is gone")
		}
		return open(wrap, notify)
	}
	r.cfg.Only = regexp.MustCompile("clean/")
	c, err := Run(t.Context(), r.cfg)
	if _, own := errors.AsType[*DeviceError](err); !own || c == nil || c.count("", Pass) != 1 || c.count("", Fail) != 0 {
		t.Fatalf("%v, %+v", err, c)
	}
}

// dying is a port that is removed after a few packets were sent.
type dying struct {
	*mem.Port
	flushes *atomic.Int32
}

func (d dying) Flush() error {
	if d.flushes.Add(1) == 3 {
		go d.Remove()
	}
	return d.Port.Flush()
}

// If the tester's interface is removed in the middle of a step, the peer does not fail.
func TestOwnInterfaceRemoved(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	opened := 0
	open := r.cfg.Open
	r.cfg.Open = func(wrap func(link.Port) (link.Port, error), notify bool) (Device, error) {
		opened++
		return open(func(p link.Port) (link.Port, error) {
			if n, ok := p.(narrow); ok && opened == 3 {
				return wrap(narrow{dying{n.Port.(*mem.Port), new(atomic.Int32)}})
			}
			return wrap(p)
		}, notify)
	}
	r.cfg.Only = regexp.MustCompile("clean/(send|write)/")
	c, err := Run(t.Context(), r.cfg)
	if _, own := errors.AsType[*DeviceError](err); !own || c == nil || c.count("", Pass) != 1 || c.count("", Fail) != 0 || !strings.Contains(strings.Join(c.Steps[1].Why, " "), "removed") {
		t.Fatalf("%v, %+v", err, c)
	}
}

// If the peer is gone, the error of the tester's completions says so.
func TestExplain(t *testing.T) {
	own := errors.New("RETRY_EXC_ERR")
	for _, test := range []struct {
		name    string
		answers int
		ends    bool // the tester ends the session
		gone    bool
	}{
		{"answers", 2, false, false},
		{"hangs up", 1, false, true},
		{"the tester has hung up", 1, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			port := fakePeer(t, func(c net.Conn) {
				for range test.answers {
					var m command
					w := newWire(c)
					if w.read(&m) == nil {
						w.write(reply{Hello: &hello{Version: protocolVersion}})
					}
				}
			})
			c, err := dialControl(t.Context(), netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), port).String(), 0)
			if err != nil {
				t.Fatal(err)
			}
			defer c.close()
			if test.ends {
				c.close()
			}
			err = c.explain(own)
			if _, gone := errors.AsType[*GoneError](err); gone != test.gone || !errors.Is(err, own) {
				t.Errorf("%v", err)
			}
			if err := c.explain(nil); err != nil {
				t.Errorf("no error became %v", err)
			}
		})
	}
}

// inSession begins a session of a server. It returns the tester's end of the connection, the server's log from then on, and a
// channel that is closed at the end of the session.
func inSession(t *testing.T, r *rig, idle time.Duration) (near net.Conn, said chan string, ended chan struct{}) {
	near, far := net.Pipe()
	said, ended = make(chan string, 2), make(chan struct{})
	s := &server{dev: r.peer, cfg: ServeConfig{Idle: idle, Log: func(line string) { said <- line }}, expected: map[string]chan *roce.ConnRequest{}}
	go func() {
		s.session(t.Context(), addressed{far})
		close(ended)
	}()
	<-said
	return near, said, ended
}

// A command that waits ends when its tester is gone. The server logs whether the tester ended the session, and what the server
// released.
func TestTesterGone(t *testing.T) {
	for _, test := range []struct {
		name, sends, says string
	}{
		{"killed", "", "the tester is gone, it was killed or its test was ended: 1 queue pair closed"},
		{"done", `{"do":"bye"}` + "\n", "the tester is done"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := newRig(t)
			near, said, ended := inSession(t, r, limitOfTests)
			w := newWire(near)
			w.write(command{Do: "create", Spec: &spec{Type: "rc", Memory: 64, Depth: 4}})
			var got reply
			if err := w.read(&got); err != nil || got.QP != 1 {
				t.Fatalf("%+v, %v", got, err)
			}
			w.write(command{Do: "wait", QP: 1, Queue: receives, Count: 1, MS: int(limitOfTests / time.Millisecond)})
			io.WriteString(near, test.sends)
			near.Close()
			<-ended
			if line := <-said; !strings.HasSuffix(line, test.says) {
				t.Errorf("the server says %q, want %q", line, test.says)
			}
			if n, _ := inside.NIC(r.peer).Count(); n > 0 {
				t.Errorf("%d queue pairs are left", n)
			}
		})
	}
}

// If a tester hangs, the server ends its session after the idle time. The time of a command that waits does not count.
func TestTesterHangs(t *testing.T) {
	r := newRig(t)
	const idle = 400 * time.Millisecond
	near, said, ended := inSession(t, r, idle)
	defer near.Close()
	w := newWire(near)
	var got reply
	for _, c := range []command{
		{Do: "create", Spec: &spec{Type: "rc", Memory: 64, Depth: 4}},
		{Do: "wait", QP: 1, Queue: receives, Count: 1, MS: int(2 * idle / time.Millisecond)},
	} {
		w.write(c)
		if err := w.read(&got); err != nil {
			t.Fatalf("%s: %v", c.Do, err)
		}
	}
	if !strings.Contains(got.Error, context.DeadlineExceeded.Error()) { // the deadline of the command, not the idle time
		t.Errorf("the wait ends with %q", got.Error)
	}
	<-ended
	if line := <-said; !strings.HasSuffix(line, "the tester has said nothing for 400ms: 1 queue pair closed") {
		t.Errorf("the server says %q", line)
	}
	if n, _ := inside.NIC(r.peer).Count(); n > 0 {
		t.Errorf("%d queue pairs are left", n)
	}
}

// addressed is a pipe whose remote address the server takes for the tester's.
type addressed struct{ net.Conn }

func (addressed) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(testerAddr, 1))
}

// The server releases the objects of a tester that disconnects, and survives testers that send nonsense.
func TestServerBounds(t *testing.T) {
	r := newRig(t)
	r.serve(t)
	addr := netip.AddrPortFrom(r.cfg.Host, r.cfg.Port).String()
	for _, test := range []struct{ sends, says string }{
		{`{"do":"dance"}`, "unknown"},
		{`{"do":"create"}`, "spec is missing"},
		{`{"do":"create","spec":{"type":"rd","memory":8,"depth":1}}`, "want rc, uc or ud"},
		{`{"do":"create","spec":{"type":"rc","memory":99999999999,"depth":1}}`, "memory"},
		{`{"do":"create","spec":{"type":"rc","memory":8,"depth":0}}`, "depth"},
		{`{"do":"wait","qp":3,"queue":"send","count":1}`, "no queue pair 3"},
		{`{"do":"target","target":{"type":"rc","peer":"x"}}`, "no IP address"},
		{`nonsense`, "a message that is none"},
	} {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(c, test.sends+"\n")
		var got reply
		if err := newWire(c).read(&got); err != nil || !strings.Contains(got.Error, test.says) {
			t.Errorf("%s: %q, %v; want %q", test.sends, got.Error, err, test.says)
		}
		c.Close()
	}
	c, err := dialControl(t.Context(), addr, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	s := spec{Type: "rc", Memory: 64, Depth: 4}
	var f *far
	for range maxEnds {
		if f, err = c.create(s); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.create(s); err == nil || !strings.Contains(err.Error(), "there already") {
		t.Errorf("too many queue pairs: %v", err)
	}
	for _, w := range []work{{Op: "send", At: 60, Size: 8, Count: 1}, {Op: "send", Size: -1, Count: 1}, {Op: "send", Size: 8, Step: math.MaxInt, Count: 2}, {Op: "send", Size: 8, Count: 1 << 30}, {Op: "x", Size: 8, Count: 1}} {
		if err := f.post(w); err == nil {
			t.Errorf("%+v was posted", w)
		}
	}
	if err := f.connect(t.Context(), address{GID: "10.77.0.2", QPN: 1 << 24}, serveTerms); err == nil {
		t.Error("a queue pair number of 25 bits was taken")
	}
	if _, err := f.wait(t.Context(), "both", 1); err == nil {
		t.Error("there is no queue of that name")
	}
	if err := f.accept(); err == nil {
		t.Error("a queue pair that nobody dials was accepted")
	}
}

// FuzzCommands: the server answers any command of a tester, and its memory is bounded.
func FuzzCommands(f *testing.F) {
	for _, c := range []command{
		{Do: "hello"}, {Do: "create", Spec: &spec{Type: "rc", Memory: 64, Depth: 4}}, {Do: "create", Spec: &spec{Type: "ud", Memory: 64, Depth: 4, SRQ: true}},
		{Do: "connect", QP: 1, Peer: &address{GID: "10.77.0.2", QPN: 7}, Terms: &serveTerms}, {Do: "receive", QP: 1, Size: 8, Count: 1},
		{Do: "post", QP: 1, Work: &work{Op: "write", Size: 8, Count: 1}}, {Do: "wait", QP: 1, Queue: sends, Count: 1}, {Do: "fill", QP: 1, Size: 9}, {Do: "peek", QP: 1, Size: 9},
		{Do: "target", Target: &targetSpec{Type: "rc", Peer: "10.77.0.2", Memory: 64}}, {Do: "target_post", QP: 2, Op: "send", Size: 4}, {Do: "close", QP: 1},
	} {
		b, _ := json.Marshal(c)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r := newRig(t)
		s := &server{dev: r.peer, cfg: ServeConfig{}, expected: map[string]chan *roce.ConnRequest{}}
		x := s.newSession(testerAddr)
		defer x.close()
		ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer stop()
		for _, first := range []string{`{"do":"create","spec":{"type":"rc","memory":64,"depth":4}}`, string(text), string(text)} {
			var c command
			if json.Unmarshal([]byte(first), &c) != nil {
				continue
			}
			if _, err := x.do(ctx, &c); err != nil && err.Error() == "" {
				t.Error("an error says nothing")
			}
		}
	})
}

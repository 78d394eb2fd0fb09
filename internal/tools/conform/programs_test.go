package conform

import (
	"context"
	"errors"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/internal/tools/rping"
)

// A test works with perftest's servers at the peer, one for each step. Here these are the servers of this stack.
func TestPerftestPeer(t *testing.T) {
	r := newRig(t)
	r.cfg.Peer, r.cfg.MTU = PeerPerftest, 1024
	r.cfg.Only = regexp.MustCompile(`clean/(send-long|write-mtu|read-1|atomic|ud)/|(drop-middle|drop-nak|corrupt)/`)
	ctx, stop := context.WithCancel(t.Context())
	running := 0
	ended := make(chan error, 100)
	for r.cfg.Port = 21000; ; r.cfg.Port += 200 { // finds a free range
		p := r.cfg.peer().(*perftestPeer)
		p.mtu = r.cfg.MTU
		steps, err := p.plan()
		if err != nil {
			t.Fatal(err)
		}
		busy := false
		for i, s := range steps {
			if !r.cfg.Only.MatchString(s.name) || busy {
				continue
			}
			at := make(chan struct{})
			c := s.program.config(r.cfg.MTU)
			if !strings.Contains(s.server, "ib_"+c.Test.Name+" ") {
				t.Errorf("%s: the command is %q", s.name, s.server)
			}
			addr := netip.AddrPortFrom(r.cfg.Host, p.port(i)).String()
			failed := make(chan error, 1)
			running++
			go func() {
				_, err := perftest.Server(ctx, r.peer, addr, c, func(netip.AddrPort) { close(at) })
				failed <- err
				ended <- err
			}()
			select {
			case <-at:
			case err := <-failed:
				if !errors.Is(err, syscall.EADDRINUSE) {
					t.Fatal(err)
				}
				busy = true
			}
		}
		if !busy {
			break
		}
	}
	c, err := Run(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	c.wantAll(t, Pass)
	if b := c.broken(); b != nil || len(c.Steps) < 20 {
		t.Errorf("%d steps, broken: %v", len(c.Steps), b)
	}
	if len(c.Notes) == 0 || !strings.Contains(strings.Join(c.Notes, " "), "perftest") {
		t.Errorf("the card does not say what perftest cannot show: %v", c.Notes)
	}
	i := slices.IndexFunc(c.Rules, func(r RuleResult) bool { return r.ID == "goback-place" })
	if c.Rules[i].Status != Pass {
		t.Errorf("the peer went back, but: %+v", c.Rules[i])
	}
	checkForms(t, c)
	stop()
	for range running {
		<-ended
	}
}

// A test works with one rping server at the peer for all steps.
func TestRpingPeer(t *testing.T) {
	r := newRig(t)
	r.cfg.Peer, r.cfg.Host, r.cfg.Port, r.cfg.MTU = PeerRping, peerAddr, 7174, 1024
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { // rping -s -P
		defer close(ended)
		for ctx.Err() == nil {
			rping.Server(ctx, r.peer, netip.AddrPortFrom(peerAddr, 7174).String(), rping.Config{}, func(netip.AddrPort) {})
		}
	}()
	r.cfg.Wait = limitOfTests
	c := r.run(t, "clean/|rping-|drop-re|loss")
	stop()
	<-ended
	c.wantAll(t, Pass)
	if len(c.Steps) < 6 || c.Verdict != Pass {
		t.Errorf("%s, %d steps", c.Verdict, len(c.Steps))
	}
	for _, rule := range c.Rules {
		if rule.Group == "connection manager" && rule.ID == "cm-ids" && rule.Status != Pass {
			t.Errorf("%+v", rule)
		}
	}
	checkForms(t, c)
}

// The commands that the user has to start on the peer's host can be printed, with the tester's MTU.
func TestCommands(t *testing.T) {
	r := newRig(t)
	for _, test := range []struct {
		peer string
		args []string
		want []string
	}{
		{PeerServe, nil, []string{"rocectl conform --serve --port 18514"}},
		{PeerRping, nil, []string{"rping -s -P -a 127.0.0.1 -p 7174 -S 6139"}},
		{PeerPerftest, []string{"-x", "1"}, []string{"ib_send_bw -F -p 18602 -n 5 -m 1024 -s 1024 -x 1", "ib_send_bw -F -p 18606 -n 5 -m 1024 -s 1025 -x 1"}},
	} {
		c := r.cfg
		c.Peer, c.PeerArgs = test.peer, test.args
		if test.peer == PeerPerftest {
			c.Only = regexp.MustCompile(`clean/send-mtu.*/tester`)
		}
		got, err := Commands(t.Context(), c)
		if test.peer == PeerPerftest && err == nil {
			for i := range got { // each step has its own port
				got[i] = regexp.MustCompile(`-p \d+`).ReplaceAllString(got[i], "-p N")
			}
			for i := range test.want {
				test.want[i] = regexp.MustCompile(`-p \d+`).ReplaceAllString(test.want[i], "-p N")
			}
		}
		if err != nil || !slices.Equal(got, test.want) {
			t.Errorf("%s: %v, %q, want %q", test.peer, err, got, test.want)
		}
	}
}

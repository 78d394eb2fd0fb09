package conform

import (
	"context"
	"net/netip"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/hubdev"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/mem"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/script"
	"github.com/goroce/roce/verify"
)

var (
	peerAddr   = netip.MustParseAddr("10.77.0.1")
	testerAddr = netip.MustParseAddr("10.77.0.2")
)

// rig is a tester and a peer on a simulated wire. The control connection goes over the loopback interface.
type rig struct {
	hub  *mem.Hub
	peer *roce.Device
	cfg  Config
}

// newRig opens a peer whose port has planted faults.
func newRig(t *testing.T, planted ...fault.Rule) *rig {
	t.Helper()
	r := &rig{hub: mem.NewHub(mem.Config{})}
	var err error
	r.peer, err = hubdev.Open(r.hub, peerAddr, roce.Config{Options: roce.Options{Congestion: &roce.DCQCN{LineRate: 10 * qp.Gbps}}}, func(p link.Port) (link.Port, error) {
		return fault.Wrap(narrow{p}, fault.Config{Rules: planted})
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.peer.Close() })
	r.cfg = Config{Host: netip.AddrFrom4([4]byte{127, 0, 0, 1}), Open: r.open, Tester: "a tester", Limit: time.Minute}
	return r
}

// narrow is a port with the MTU of Ethernet.
type narrow struct{ link.Port }

func (n narrow) Info() link.Info {
	i := n.Port.Info()
	i.MTU = 1500
	return i
}

func (r *rig) open(wrap func(link.Port) (link.Port, error), notify bool) (Device, error) {
	var o roce.Options
	if notify {
		o.Congestion = &roce.DCQCN{LineRate: 10 * qp.Gbps}
	}
	d, err := hubdev.Open(r.hub, testerAddr, roce.Config{Options: o}, func(p link.Port) (link.Port, error) { return wrap(narrow{p}) })
	if err != nil {
		return Device{}, err
	}
	return Device{d, d.Close}, nil
}

// wire is the wire of package script.
func (r *rig) wire(_ context.Context, quiet time.Duration) (*script.Wire, error) {
	p, err := r.hub.Port("script", roce.DerivedMAC(testerAddr))
	if err != nil {
		return nil, err
	}
	return &script.Wire{Port: narrow{p}, Own: bth.GIDFrom(testerAddr), Peer: bth.GIDFrom(peerAddr), MAC: roce.DerivedMAC(peerAddr), Quiet: quiet}, nil
}

// serve starts the peer's server. stop ends it.
func (r *rig) serve(t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	at, done := make(chan netip.AddrPort, 1), make(chan error, 1)
	go func() {
		done <- Serve(ctx, r.peer, "127.0.0.1:0", ServeConfig{Software: "a peer"}, func(a netip.AddrPort) { at <- a })
	}()
	stopped := false
	stop = func() {
		cancel()
		if !stopped {
			stopped = true
			if err := <-done; err != nil {
				t.Errorf("the peer: %v", err)
			}
		}
	}
	t.Cleanup(stop)
	select {
	case a := <-at:
		r.cfg.Port = a.Port()
	case err := <-done:
		t.Fatal(err)
	}
	return stop
}

// run tests the peer with some steps.
func (r *rig) run(t *testing.T, only string) *Card {
	t.Helper()
	r.cfg.Only = regexp.MustCompile(only)
	c, err := Run(t.Context(), r.cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// broken returns the rules that the peer breaks.
func (c *Card) broken() (ids []verify.RuleID) {
	for i := range c.Rules {
		if s := c.Rules[i].Status; s == Fail || s == Warn {
			ids = append(ids, c.Rules[i].ID)
		}
	}
	return ids
}

// wantAll checks the status of all steps except some.
func (c *Card) wantAll(t *testing.T, want Status, except ...string) {
	t.Helper()
	for _, s := range c.Steps {
		if s.Status != want && !slices.Contains(except, s.Name) {
			t.Errorf("%s is %s: %v %v", s.Name, s.Status, s.Why, s.Findings)
		}
	}
}

// rule parses a fault rule in the form of the flags.
func rule(t *testing.T, text string) fault.Rule {
	t.Helper()
	r, err := fault.ParseRule(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// limitOfTests is longer than any test takes, even on a busy machine.
const limitOfTests = time.Minute

// rpingPeerOfCapture is the address of the end of testdata/pcaps/loss_rping.pcap that the tests take for the peer.
var rpingPeerOfCapture = netip.MustParseAddr("10.77.0.2")

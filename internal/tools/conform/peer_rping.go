package conform

import (
	"context"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/goroce/roce/internal/tools/rping"
)

// rpingPeer is a host that runs rping -s -P.
type rpingPeer struct {
	cfg *Config
	mtu int
}

const (
	rpingPackets = 6 // size of the text, in packets of the path MTU
	rpingCount   = 4 // how many pings a step has
)

// rpingOnly are experiments for rping alone.
var rpingOnly = []experiment{
	{"rping-read", "a READ response is lost", nil, ""},
	{"rping-write", "a packet of a WRITE is lost", nil, ""},
	{"rping-send", "a SEND is lost", nil, ""},
}

func (p *rpingPeer) identify(context.Context) (Identity, error) {
	mtu, err := ownMTU(p.cfg)
	p.mtu = mtu
	return Identity{Host: p.cfg.Host.String(), Kind: "rping", MTU: mtu}, err
}

func (p *rpingPeer) unable() string {
	return "rping has no datagrams, unreliable connections and atomics, and serves no counters"
}

func (p *rpingPeer) size() int { return rpingPackets*p.mtu - 5 }

// server returns the command that starts the peer.
func (p *rpingPeer) server() string {
	return strings.Join(append([]string{"rping", "-s", "-P", "-a", p.cfg.Host.String(), "-p", strconv.Itoa(int(p.cfg.Port)), "-S", strconv.Itoa(p.size())}, p.cfg.PeerArgs...), " ")
}

// rpingExperiments are the experiments whose rules do not depend on the PSNs of one operation.
var rpingExperiments = []string{"rping-read", "rping-write", "rping-send", "duplicate", "duplicate-answers", "loss", "drop-req", "drop-rep", "drop-rtu", "duplicate-cm"}

func (p *rpingPeer) plan() (list []step, err error) {
	addr := netip.AddrPortFrom(p.cfg.Host, p.cfg.Port).String()
	run := func(ctx context.Context, s *stage) error { return p.run(ctx, s, addr) }
	add := func(st step) {
		st.server, st.run = p.server(), run
		list = append(list, st)
	}
	add(step{section: sectionClean, name: "clean/rping", about: "SENDs both ways; READs and WRITEs of the peer"})
	possible := slices.DeleteFunc(slices.Concat(experiments, rpingOnly), func(e experiment) bool { return !slices.Contains(rpingExperiments, e.name) })
	faults, err := p.cfg.withRules(possible)
	for _, e := range faults {
		add(step{section: sectionFaults, name: e.name + "/rping", about: e.about, file: e.file, tester: slices.Contains(e.ops, opCM)})
	}
	return list, err
}

// run does the tester's part of a step.
func (p *rpingPeer) run(ctx context.Context, s *stage, addr string) error {
	return patiently(ctx, p.cfg.Wait, func() error {
		_, err := rping.Client(ctx, s.dev.Device, addr, rping.Config{Count: rpingCount, Size: p.size(), Check: true})
		return err
	})
}

package conform

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/verify"
)

// perftestPeer is a host with perftest's servers. Each step has its own server, on successive ports.
type perftestPeer struct {
	cfg *Config
	mtu int
}

// program is one of perftest's programs with its options.
type program struct {
	name    string // of a workload without faults, in the names of its steps
	about   string
	test    string
	service roce.QPType
	both    bool // both ends send (-b)
	size    int  // bytes
}

// The parameters of a queue pair that perftest always sets, at both ends.
const (
	perftestTimeout = 14
	perftestRetries = 7
)

func (p *perftestPeer) identify(context.Context) (Identity, error) {
	mtu, err := ownMTU(p.cfg)
	p.mtu = mtu
	return Identity{Host: p.cfg.Host.String(), Kind: "perftest", MTU: mtu}, err
}

// ownMTU returns the configured path MTU, or else that of the tester's device.
func ownMTU(cfg *Config) (int, error) {
	if cfg.MTU > 0 {
		return cfg.MTU, nil
	}
	return deviceMTU(cfg)
}

// deviceMTU returns the path MTU of the tester's device.
func deviceMTU(cfg *Config) (int, error) {
	s, err := newStage(cfg.Open, fault.Config{}, false)
	if err != nil {
		return 0, err
	}
	return s.dev.Query().ActiveMTU.Bytes(), s.dev.Close()
}

func (p *perftestPeer) unable() string {
	return "perftest's servers make no connection by the connection manager here, withhold no receive, and serve no counters"
}

// programs are the workloads without faults.
func (p *perftestPeer) programs() (list []program) {
	for _, n := range []struct {
		name string
		size int
	}{{"1", 1}, {"mtu", p.mtu}, {"mtu+1", p.mtu + 1}, {"long", faultPackets*p.mtu - 3}} {
		for _, op := range []string{"send", "write", "read"} {
			about := fmt.Sprintf("%ss of %d bytes", strings.ToUpper(op), n.size)
			list = append(list, program{name: op + "-" + n.name, about: about, test: op + "_bw", service: roce.RC, size: n.size})
		}
	}
	return append(list,
		program{name: "atomic", about: "atomics", test: "atomic_bw", service: roce.RC, size: 8},
		program{name: "uc-send", about: "SENDs of an unreliable connection", test: "send_bw", service: roce.UC, size: 2*p.mtu + 1},
		program{name: "uc-write", about: "WRITEs of an unreliable connection", test: "write_bw", service: roce.UC, size: 2*p.mtu + 1},
		program{name: "ud", about: "datagrams", test: "send_bw", service: roce.UD, size: p.mtu})
}

func (p *perftestPeer) plan() (list []step, err error) {
	for _, pr := range p.programs() {
		name := "clean/" + pr.name
		list = append(list, step{section: sectionClean, name: name + "/tester", about: pr.about, tester: true, program: pr})
		pr.both = true
		list = append(list, step{section: sectionClean, name: name + "/peer", about: pr.about + ", both ways", program: pr})
	}
	faults, err := p.cfg.withRules(experiments)
	if err != nil {
		return nil, err
	}
	for _, e := range faults {
		for _, op := range e.ops {
			pr := program{test: op + "_bw", service: roce.RC, size: faultPackets * p.mtu}
			switch op {
			case opAtomic:
				pr.size = 8
			case opCM:
				continue
			}
			name := e.name + "/" + op
			list = append(list, step{section: sectionFaults, name: name + "/tester", about: e.about, tester: true, file: e.file, needs: e.needs, program: pr})
			if op != opAtomic {
				pr.both = true
				list = append(list, step{section: sectionFaults, name: name + "/peer", about: e.about + ", of the peer", file: e.file, program: pr})
			}
		}
	}
	for i := range list {
		pr, port := list[i].program, p.port(i)
		list[i].server = p.server(pr, port)
		clean := list[i].file == nil
		list[i].run = func(ctx context.Context, s *stage) error { return p.run(ctx, s, pr, port, clean) }
	}
	return list, nil
}

// port returns the port of the server of step i. It does not depend on the steps that are chosen.
func (p *perftestPeer) port(i int) uint16 { return p.cfg.Port + uint16(i) }

// config returns the options of the tester's end.
func (pr program) config(mtu int) (c perftest.Config) {
	for _, t := range perftest.Tests {
		if t.Name == pr.test {
			c = t.Config()
		}
	}
	c.Service, c.Both, c.Iters, c.NoPeak = pr.service, pr.both, pr.iters(), true
	if !c.Test.Fixed {
		c.Size = pr.size
	}
	c.MTU = dissect.MTUOf(mtu)
	if pr.service != roce.RC {
		c.TxDepth = 4
	}
	return c
}

func (pr program) iters() int {
	if pr.test == "atomic_bw" {
		return faultAtomics
	}
	return faultMessages
}

// server returns the command that starts the peer's end.
func (p *perftestPeer) server(pr program, port uint16) string {
	args := []string{"ib_" + pr.test, "-F", "-p", strconv.Itoa(int(port)), "-n", strconv.Itoa(pr.iters()), "-m", strconv.Itoa(p.mtu)}
	if pr.test != "atomic_bw" {
		args = append(args, "-s", strconv.Itoa(pr.size))
	}
	if pr.service != roce.RC {
		args = append(args, "-c", pr.service.String(), "-t", "4")
	}
	if pr.both {
		args = append(args, "-b")
	}
	return strings.Join(append(args, p.cfg.PeerArgs...), " ")
}

// run does the tester's part of a step.
func (p *perftestPeer) run(ctx context.Context, s *stage, pr program, port uint16, clean bool) error {
	addr := net.JoinHostPort(p.cfg.Host.String(), strconv.Itoa(int(port)))
	c := pr.config(p.mtu)
	c.Connected = func(local, remote perftest.Dest, mtu roce.MTU) {
		if pr.service == roce.UD {
			return
		}
		ends := [2]verify.ConnectionEnd{}
		for i, d := range []perftest.Dest{local, remote} {
			ends[i] = verify.ConnectionEnd{Addr: d.GID.Addr(), QPN: d.QPN, PSN: d.PSN, Timeout: perftestTimeout, Retries: perftestRetries, Depth: -1}
		}
		s.conns = append(s.conns, verify.Connection{Ends: ends, MTU: mtu.Bytes()})
	}
	c.Check = clean || pr.test == "atomic_bw" // checking READs needs one more READ, and the rule files would not fit any more
	err := patiently(ctx, p.cfg.Wait, func() error {
		_, err := perftest.Client(ctx, s.dev.Device, addr, c)
		return err
	})
	if err != nil {
		return fmt.Errorf("ib_%s: %w", pr.test, err)
	}
	return nil
}

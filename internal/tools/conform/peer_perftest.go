package conform

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/goroce/roce"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/internal/tools/perftest"
	"github.com/goroce/roce/verify"
)

// perftestPeer is a host with perftest's servers. Each step has its own server, on successive ports.
type perftestPeer struct {
	cfg *Config
	mtu int
}

// program is one of perftest's programs with its options.
type program struct {
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
	s, err := newStage(cfg.Open, nil, 0, false)
	if err != nil {
		return 0, err
	}
	return s.dev.Query().ActiveMTU.Bytes(), s.dev.Close()
}

func (p *perftestPeer) unable() string {
	return "perftest's servers make no connection by the connection manager here, withhold no receive, and serve no counters"
}

// programs are the workloads without faults.
func (p *perftestPeer) programs() (names, abouts []string, list []program) {
	add := func(name, about string, pr program) {
		names, abouts, list = append(names, name), append(abouts, about), append(list, pr)
	}
	for _, n := range []struct {
		name string
		size int
	}{{"1", 1}, {"mtu", p.mtu}, {"mtu+1", p.mtu + 1}, {"long", faultPackets*p.mtu - 3}} {
		add("send-"+n.name, "SENDs of "+strconv.Itoa(n.size)+" bytes", program{test: "send_bw", service: roce.RC, size: n.size})
		add("write-"+n.name, "WRITEs of "+strconv.Itoa(n.size)+" bytes", program{test: "write_bw", service: roce.RC, size: n.size})
		add("read-"+n.name, "READs of "+strconv.Itoa(n.size)+" bytes", program{test: "read_bw", service: roce.RC, size: n.size})
	}
	add("atomic", "atomics", program{test: "atomic_bw", service: roce.RC, size: 8})
	add("uc-send", "SENDs of an unreliable connection", program{test: "send_bw", service: roce.UC, size: 2*p.mtu + 1})
	add("uc-write", "WRITEs of an unreliable connection", program{test: "write_bw", service: roce.UC, size: 2*p.mtu + 1})
	add("ud", "datagrams", program{test: "send_bw", service: roce.UD, size: p.mtu})
	return names, abouts, list
}

func (p *perftestPeer) plan() (list []step, err error) {
	names, abouts, programs := p.programs()
	for i, pr := range programs {
		both := pr
		both.both = true
		list = append(list, p.step(step{section: sectionClean, name: "clean/" + names[i] + "/tester", about: abouts[i], tester: true}, pr),
			p.step(step{section: sectionClean, name: "clean/" + names[i] + "/peer", about: abouts[i] + ", both ways"}, both))
	}
	faults := func(name, about string, ops []string, file *impair.File, needs situation) {
		for _, op := range ops {
			pr, ok := map[string]program{opSend: {test: "send_bw"}, opWrite: {test: "write_bw"}, opRead: {test: "read_bw"}, opAtomic: {test: "atomic_bw"}}[op]
			if !ok {
				continue
			}
			if pr.service, pr.size = roce.RC, faultPackets*p.mtu; op == opAtomic {
				pr.size = 8
			}
			list = append(list, p.step(step{section: sectionFaults, name: name + "/" + op + "/tester", about: about, tester: true, file: file, needs: needs}, pr))
			if op != opAtomic {
				pr.both = true
				list = append(list, p.step(step{section: sectionFaults, name: name + "/" + op + "/peer", about: about + ", of the peer", file: file}, pr))
			}
		}
	}
	for i := range experiments {
		e := &experiments[i]
		file, err := e.load()
		if err != nil {
			return nil, err
		}
		faults(e.name, e.about, e.ops, file, e.needs)
	}
	for _, file := range p.cfg.Rules {
		faults(ownName(file), "the rules of "+file.Name, []string{opSend, opWrite, opRead, opAtomic}, file, "")
	}
	for i := range list {
		pr, port := list[i].program, p.port(i)
		list[i].server = p.server(pr, port)
		clean := list[i].file == nil
		list[i].run = func(ctx context.Context, s *stage) error { return p.run(ctx, s, pr, port, clean) }
	}
	return list, nil
}

func (p *perftestPeer) step(s step, pr program) step {
	s.program = pr
	return s
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
	if m, ok := mtuOf(mtu); ok {
		c.MTU = m
	}
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

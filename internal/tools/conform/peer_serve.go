package conform

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// servingPeer is a peer that runs [Serve].
type servingPeer struct {
	cfg  *Config
	addr string // of the control connection
	mtu  int
	cm   netip.AddrPort
}

// control returns the address of the control connection.
func (c *Config) control() string {
	return net.JoinHostPort(c.Host.String(), strconv.Itoa(int(c.Port)))
}

// serveTerms are the parameters of connections out of band. The ACK timeout of 268 ms is long enough for a busy host, and
// not too long for steps that wait for it.
var serveTerms = terms{Timeout: 16, Retries: 7, RNRRetries: 7, MinRNRTimer: 12, Reads: 16}

func (p *servingPeer) identify(ctx context.Context) (Identity, error) {
	c, err := dialControl(ctx, p.addr, p.cfg.Wait)
	if err != nil {
		return Identity{}, err
	}
	defer c.close()
	own, err := deviceMTU(p.cfg)
	if err != nil {
		return Identity{}, err
	}
	p.mtu = min(own, c.MTU)
	if p.cfg.MTU > 0 {
		p.mtu = min(p.mtu, p.cfg.MTU)
	}
	addrs := c.addrs()
	if len(addrs) == 0 {
		return Identity{}, fmt.Errorf("%s serves a device without addresses", p.addr)
	}
	if c.CMPort > 0 && c.CMPort < 1<<16 {
		at := addrs[0]
		if slices.Contains(addrs, p.cfg.Host) {
			at = p.cfg.Host
		}
		p.cm = netip.AddrPortFrom(at, uint16(c.CMPort))
	}
	return Identity{Host: p.cfg.Host.String(), Kind: "rocectl conform --serve", Software: c.Software, Addrs: c.Addrs, MTU: p.mtu}, nil
}

func (p *servingPeer) unable() string { return "" }

// workload describes operations on one transport service.
type workload struct {
	name    string
	about   string
	service string
	srq     bool
	cm      bool
	unready bool // the responder has no receive at first
	denied  bool // the request is for memory that the responder does not have
	ops     []string
}

// workloads are the workloads without faults.
var workloads = []workload{
	{name: "send", about: "SENDs, with and without immediate data", service: "rc", ops: []string{"send", "send_imm"}},
	{name: "write", about: "WRITEs, with and without immediate data", service: "rc", ops: []string{"write", "write_imm"}},
	{name: "read", about: "READs", service: "rc", ops: []string{"read"}},
	{name: "atomic", about: "atomics", service: "rc", ops: []string{"fetch_add", "compare_swap"}},
	{name: "srq", about: "SENDs to a shared receive queue", service: "rc", srq: true, ops: []string{"send"}},
	{name: "rnr", about: "SENDs before there is a receive", service: "rc", unready: true, ops: []string{"send"}},
	{name: "denied", about: "a WRITE to memory that the responder does not have", service: "rc", denied: true, ops: []string{"write"}},
	{name: "atomic-write", about: "ATOMIC WRITEs", service: "rc", ops: []string{"atomic_write"}},
	{name: "uc-send", about: "SENDs of an unreliable connection", service: "uc", ops: []string{"send", "send_imm"}},
	{name: "uc-write", about: "WRITEs of an unreliable connection", service: "uc", ops: []string{"write"}},
	{name: "ud", about: "datagrams", service: "ud", ops: []string{"send", "send_imm"}},
	{name: "cm", about: "operations on a connection of the connection manager", service: "rc", cm: true, ops: []string{"send", "write", "read"}},
}

// faulty are the workloads of experiments: several messages at once.
var faulty = map[string]workload{
	opSend: {service: "rc", ops: []string{"send"}}, opWrite: {service: "rc", ops: []string{"write"}}, opRead: {service: "rc", ops: []string{"read"}},
	opAtomic: {service: "rc", ops: []string{"fetch_add"}}, opCM: {service: "rc", cm: true, ops: []string{"send"}},
}

// Sizes of workloads with faults. The rule files depend on them.
const (
	faultMessages = 5
	faultPackets  = 8 // of each
	faultAtomics  = 16
)

// sizes returns the messages of a workload. Their lengths are around multiples of the path MTU.
func (p *servingPeer) sizes(r workload) []messages {
	if r.service == "ud" {
		return []messages{{1, 0}, {1, 1}, {1, p.mtu - 1}, {1, p.mtu}, {faultMessages, p.mtu / 2}}
	}
	if r.ops[0] == "atomic_write" {
		return []messages{{1, 8}, {faultMessages, 8}}
	}
	var list []messages
	for _, n := range []int{0, 1, 3, p.mtu - 1, p.mtu, p.mtu + 1, 2 * p.mtu, 2*p.mtu + 1} {
		list = append(list, messages{1, n})
	}
	return append(list, messages{faultMessages, faultPackets*p.mtu - 3})
}

func (p *servingPeer) plan() (list []step, err error) {
	for _, r := range workloads {
		for _, tester := range []bool{true, false} {
			if r.cm && p.cm.Port() == 0 {
				continue
			}
			st := step{section: sectionClean, name: "clean/" + r.name + "/" + requesterName(tester), about: r.about, tester: tester}
			switch {
			case r.unready && tester:
				st.needs = sentRNR
			case r.unready:
				st.needs = gotRNR
			case r.denied && tester:
				st.needs = sentFatal
			case r.denied:
				st.needs = gotFatal
			}
			list = append(list, p.complete(st, r, p.sizes(r)))
		}
	}
	faults, err := p.cfg.withRules(experiments)
	for _, e := range faults {
		for _, op := range e.ops {
			list = append(list, p.faultSteps(e, op)...)
		}
	}
	return list, err
}

// faultSteps returns the steps of one operation with faults: one with the tester as requester, and one with the peer. If the connection
// manager makes the connection, the requester is the active end.
func (p *servingPeer) faultSteps(e injected, op string) (list []step) {
	for _, tester := range []bool{true, false} {
		if op == opCM && p.cm.Port() == 0 {
			continue
		}
		file := e.file
		if op == opCM && !tester {
			file = turned(file)
		}
		sizes := []messages{{faultMessages, faultPackets * p.mtu}}
		if op == opAtomic {
			sizes = []messages{{faultAtomics, 8}}
		}
		st := step{section: sectionFaults, name: e.name + "/" + op + "/" + requesterName(tester), about: e.about, tester: tester, file: file, marks: e.name == markName}
		if st.needs = e.needs; !tester && e.needs == sentCNP {
			st.needs = gotCNP
		}
		list = append(list, p.complete(st, faulty[op], sizes))
	}
	return list
}

// complete adds the functions run and counters to a step.
func (p *servingPeer) complete(st step, r workload, sizes []messages) step {
	work := func(ctx context.Context, s *stage, c *control) error {
		t := serveTerms
		t.MTU = p.mtu
		if st.marks && s.driver == "udp" && st.tester {
			t.TrafficClass = 3 // the kernel writes the IP header, so the rule cannot mark single packets
		}
		near, distant, err := p.pair(ctx, s, c, spec{Type: r.service, SRQ: r.srq, CM: r.cm, Memory: memory, Depth: depth}, t, r.cm && !st.tester)
		if err != nil {
			return err
		}
		defer near.Close()
		requester, responder := actor(near), actor(distant)
		if !st.tester {
			requester, responder = distant, near
		}
		if r.denied {
			return denied(ctx, requester)
		}
		for _, op := range r.ops {
			for _, m := range sizes {
				if op == "fetch_add" || op == "compare_swap" {
					if m.size != 8 && m.count == 1 {
						continue
					}
					m.count = faultAtomics
				}
				if r.unready {
					m = messages{2, p.mtu + 1}
					if err := unready(ctx, requester, responder, m, func() error { return s.awaitRNR(ctx) }); err != nil {
						return err
					}
					break
				}
				if err := transfer(ctx, requester, responder, op, m, r.service); err != nil {
					return fmt.Errorf("%s of %d bytes: %w", op, m.size, err)
				}
			}
		}
		if r.cm { // the responder sends a message, too
			if err := transfer(ctx, responder, requester, "send", messages{1, p.mtu + 1}, r.service); err != nil {
				return err
			}
			return near.connection.Disconnect(ctx)
		}
		return nil
	}
	st.run = func(ctx context.Context, s *stage) error {
		c, err := dialControl(ctx, p.addr, 0)
		if err != nil {
			return err
		}
		defer c.close()
		return c.explain(work(ctx, s, c))
	}
	st.counters = func(ctx context.Context) (map[string]uint64, error) {
		c, err := dialControl(ctx, p.addr, 0)
		if err != nil {
			return nil, err
		}
		defer c.close()
		return c.counters()
	}
	return st
}

// pair makes a connected pair of queue pairs. dials says that the peer is the active end, if the connection manager connects them.
func (p *servingPeer) pair(ctx context.Context, s *stage, c *control, sp spec, t terms, dials bool) (near *end, distant *far, err error) {
	if near, err = newEnd(s.dev.Device, sp, p.cfg.Host); err != nil {
		return nil, nil, fmt.Errorf("the tester's queue pair: %w", err)
	}
	own := near
	defer func() {
		if err != nil {
			own.Close()
		}
	}()
	if distant, err = c.create(sp); err != nil {
		return nil, nil, err
	}
	if sp.CM {
		connect := p.dialCM
		if dials {
			connect = p.listenCM
		}
		if err := connect(ctx, near, distant); err != nil {
			return nil, nil, err
		}
	}
	// The queue pair of the peer may have another address than the control connection.
	if err := distant.connect(ctx, near.address(), t); err != nil {
		return nil, nil, err
	}
	if err := near.connect(ctx, distant.at, t); err != nil {
		return nil, nil, fmt.Errorf("connect to %s: %w", distant.at.GID, err)
	}
	if !sp.CM && sp.Type != "ud" {
		return near, distant, s.connected(near.address(), distant.at, t)
	}
	return near, distant, nil
}

// dialCM connects by the connection manager.
func (p *servingPeer) dialCM(ctx context.Context, near *end, distant *far) error {
	accepted := make(chan error, 1)
	go func() { accepted <- distant.accept() }()
	err := near.dial(ctx, p.cm.String(), []byte(distant.token))
	if err != nil {
		err = fmt.Errorf("the connection manager: %w", err)
		distant.c.close() // so that distant.accept returns
	}
	if aerr := <-accepted; err == nil {
		err = aerr
	}
	return err
}

// listenCM lets the peer connect to a listener of the tester.
func (p *servingPeer) listenCM(ctx context.Context, near *end, distant *far) error {
	l, err := near.Dev.Listen(ctx, ":0", roce.ListenConfig{})
	if err != nil {
		return fmt.Errorf("the tester's listener: %w", err)
	}
	defer l.Close()
	own := near.Dev.GIDs()[near.index].Addr()
	dialed := make(chan error, 1)
	go func() { dialed <- distant.dial(netip.AddrPortFrom(own, l.Addr().Port()).String()) }()
	r, err := l.Accept(ctx)
	if err == nil {
		err = near.accept(ctx, r)
	}
	if err != nil {
		err = fmt.Errorf("waiting for the peer's request for a connection: %w", err)
		distant.c.close()
	}
	if derr := <-dialed; err == nil || derr != nil && ctx.Err() == nil {
		err = derr
	}
	return err
}

// awaitRNR waits until the tap has seen an RNR NAK from either end.
func (s *stage) awaitRNR(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	return s.rec.await(ctx, func(p *dissect.Packet) bool {
		return p.Frame.Info.Headers&bth.HasAETH != 0 && p.Frame.Syndrome().Kind() == bth.KindRNR
	})
}

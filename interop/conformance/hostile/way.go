package hostile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/goroce/roce"
	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/interop/conformance/verbs"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Origin is where packets say they come from.
type Origin int

// The origins.
const (
	Peer     Origin = iota // the queue pair's peer
	Stranger               // another host of the network segment
	Routed                 // another host, as a router passes its packets on
)

// Mode is in what company packets are sent.
type Mode int

// The modes.
const (
	Alone Mode = iota // one by one
	Run               // eight times each, in one super-packet
	Mixed             // in the middle of a stream of good packets
	one8              // eight times each, one by one: what a Run is compared with
)

// Way is how the packets of a case are sent.
type Way struct {
	Origin Origin
	Mode   Mode
}

// Ways lists all of them.
func Ways() (all []Way) {
	for o := Peer; o <= Routed; o++ {
		for m := Alone; m <= Mixed; m++ {
			all = append(all, Way{o, m})
		}
	}
	return all
}

// String names the way.
func (w Way) String() string {
	return [...]string{"alone", "as a run of 8", "in a stream", "8 times"}[w.Mode] + ", from " +
		[...]string{"the peer", "a stranger on the segment", "a stranger behind a router"}[w.Origin]
}

// runLength is how often a packet is sent in a run.
const runLength = 8

// strangerMAC is the Ethernet address of the stranger on the segment.
var strangerMAC = frame.MAC{2, 0x99, 0, 0, 0, 0x99}

// routed is the address of the stranger behind the router.
var routed = bth.GIDFrom(netip.MustParseAddr("198.51.100.66"))

// stranger is the address of the stranger on the segment.
func stranger(g bth.GID) *bth.GID {
	b := other(g).Addr().Unmap().As4()
	b[3] = 98
	o := bth.GIDFrom(netip.AddrFrom4(b))
	return &o
}

// stream is the busy valid stream of the peer, over a queue pair of its own.
type stream struct {
	qp  verbs.QP
	mr  verbs.MR
	psn bth.PSN
	n   int // packets sent
}

const (
	streamMost  = 16 // packets whose data is kept, one behind the other
	streamSpace = mtu
)

func (x *exchange) newStream() *stream {
	s := &stream{psn: 0x200}
	const room = streamMost * streamSpace
	s.mr = must1(x.node.RegMR(x.pd, must1(x.node.Alloc(room)), room, mr.LocalWrite|mr.RemoteWrite))
	s.qp, _ = x.connect(qp.RC, s.psn, mr.RemoteWrite)
	return s
}

// flow queues good packets of the stream, as long as a packet of n bytes if there are
// such.
func (x *exchange) flow(packets, n int) {
	s := x.stream
	for range packets {
		size := min(max(n-bth.BTHLen-bth.RETHLen-bth.ICRCLen, 4), streamSpace) &^ 3
		data := pattern(size)
		data[0] = byte(s.n)
		at := uint64(s.n%streamMost) * streamSpace
		x.at.queue(packet{op: bth.RCWriteOnly, ext: reth(s.mr.Addr+at, s.mr.RKey, uint32(size)), text: data}, Peer, s.qp.QPN, s.psn)
		s.psn = s.psn.Add(1)
		s.n++
	}
}

// checkStream compares the data of the stream.
func (x *exchange) checkStream() {
	s := x.stream
	if s == nil || s.n == 0 {
		return
	}
	b := must1(x.node.ReadMem(s.mr.Addr, streamMost*streamSpace))
	for i := max(s.n-streamMost, 0); i < s.n; i++ {
		if at := i % streamMost * streamSpace; b[at] != byte(i) || b[at+1] != pattern(2)[1] {
			giveUp("packet %d of %d of the good stream did not arrive", i, s.n)
		}
	}
	if a, _, err := x.node.QueryQP(s.qp.H, qp.AttrState); err != nil || a.State != qp.RTS {
		giveUp("the queue pair of the good stream is in state %v, %v", a.State, err)
	}
}

// inject sends a packet in the way of the attacker.
func (x *exchange) inject(p packet, qpn bth.QPN, psn bth.PSN) {
	a := x.at
	switch a.Way.Mode {
	case Run:
		for range runLength {
			a.queue(p, a.Way.Origin, qpn, psn)
		}
		must(a.Port.Flush())
	case Mixed:
		n := len(p.body(qpn, psn)) + bth.ICRCLen
		x.flow(runLength/2, n)
		a.queue(p, a.Way.Origin, qpn, psn)
		x.flow(runLength/2, n)
		must(a.Port.Flush())
	case one8:
		for range runLength {
			a.send(p, qpn, psn)
			x.settle()
		}
	default:
		a.send(p, qpn, psn)
	}
	x.settle()
}

// counted is what a target of this stack counts of packets that it did not take.
func counted(n verbs.Node) (uint64, bool) {
	t, ok := n.(interface{ Device() *roce.Device })
	if !ok {
		return 0, false
	}
	c := t.Device().Counters()
	return c.Drops.Malformed + c.Drops.NotForUs + c.Drops.NoQP + c.Drops.PKey + c.Drops.NoMAD + c.Drops.MADFlood + c.Drops.Overrun +
		c.ICRCErr + c.WrongPeer + c.WrongState + c.WrongTransport + c.QKeyViolation + c.CNPsIgnored, true
}

// countLimit is how long the target may take to count the packets of a stranger.
const countLimit = 2 * time.Second

// checkCount compares the packets of a stranger with what the target has counted since.
func (x *exchange) checkCount() {
	if x.at.Way.Origin == Peer || x.c.Type == qp.UD {
		return
	}
	want := uint64(x.at.sent)
	for deadline := time.Now().Add(countLimit); ; time.Sleep(time.Millisecond) {
		now, ok := counted(x.node)
		if !ok || now-x.uncounted >= want {
			return
		}
		if time.Now().After(deadline) {
			giveUp("a stranger sent %d packets, and %d were counted as dropped", want, now-x.uncounted)
		}
	}
}

// differs is what other drivers do otherwise, by name of driver and case: xdp cannot tell
// a wrong UDP checksum from one that the kernel has yet to complete, and takes it away.
var differs = map[string]map[string]string{"xdp": {"wrong UDP checksum": delivered}}

// WantIn is what has to come of a case in a way: of a stranger's packets nothing, unless
// it is a datagram; of good company, the same as without. once is what came of the case
// when its packets were sent eight times each, one by one, see [RunOnce].
func (c *Case) WantIn(w Way, driver, once string) string {
	d, other := differs[driver][c.Name]
	switch {
	case w.Origin != Peer && c.Type != qp.UD:
		return "nothing"
	case other:
		return d
	case w.Mode == Run:
		return once
	}
	return c.Want
}

// RunOnce sends the packets of a case eight times each, one by one.
func RunOnce(c Case, target verbs.Node, a *Attacker) Result {
	defer func(w Way) { a.Way = w }(a.Way)
	a.Way = Way{Peer, one8}
	return RunWay(c, target, a)
}

// RunWay injects a case in the way of the attacker, into a device context that other
// cases use, too. Answers that repeat earlier ones are left out.
func RunWay(c Case, target verbs.Node, a *Attacker) (r Result) {
	return run(c, target, a, func(x *exchange) string {
		x.checkCount()
		x.checkStream()
		x.answers = unique(x.answers)
		defer x.end()
		return x.outcome()
	})
}

// end moves the queue pairs to ERR, so that they are silent.
func (x *exchange) end() {
	for _, q := range []verbs.QP{x.qp, x.canary, x.streamQP()} {
		if q.H != 0 {
			must(x.node.ModifyQP(q.H, &verbs.QPAttr{State: qp.Err}, qp.AttrState))
		}
	}
}

func (x *exchange) streamQP() verbs.QP {
	if x.stream == nil {
		return verbs.QP{}
	}
	return x.stream.qp
}

// unique leaves out what is in the list already.
func unique(list []string) (out []string) {
	for _, s := range list {
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out
}

// CheckWay compares a result with what has to come of the case in a way.
func CheckWay(c Case, w Way, r Result, driver, once string) error {
	if r.Err != nil {
		return r.Err
	}
	want := c.WantIn(w, driver, once)
	if w.Mode != Run {
		want = strings.Join(unique(strings.Split(want, "; ")), "; ")
	}
	if r.Got != want {
		return fmt.Errorf("came of it: %s\n   expected: %s", r.Got, want)
	}
	return nil
}

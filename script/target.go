package script

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
)

// Target is a device under test that the script controls ("connect verbs").
type Target interface {
	// Connect creates a queue pair in RTS, connected to the script, with memory that the script can access.
	Connect(TargetConfig) (TargetQP, error)
}

// TargetConfig says how a queue pair is set up.
type TargetConfig struct {
	Type    qp.Type
	Peer    bth.GID
	PeerQPN bth.QPN
	RQPSN   bth.PSN // the first PSN of the script
	SQPSN   bth.PSN // the first PSN of the target
	QKey    bth.QKey
	Access  mr.Access    // access rights of the memory
	Rights  mr.Access    // access rights of the queue pair (qp_access_flags)
	Reads   uint8        // max_dest_rd_atomic
	Depth   uint8        // max_rd_atomic
	Timeout uint8        // local ACK timeout code
	Retry   uint8        // retry_cnt
	RNR     uint8        // rnr_retry
	Timer   bth.RNRTimer // min_rnr_timer
	Memory  int          // length of the memory in bytes; byte i is i modulo 256
	Recv    int          // how many receives of RecvSize bytes Connect posts
}

// Every queue pair of a script has these values.
const (
	RecvSize   = 2048
	MemorySize = 16 << 10
	pathMTU    = 1024
	targetQKey = 0x11111111
)

// TargetQP is a queue pair of a [Target].
type TargetQP interface {
	QPN() bth.QPN
	Memory() (va uint64, key bth.RKey, err error)
	Recv(n int) error // posts receives
	// Post posts a signaled work request with n bytes of the memory, to address PostVA with the key PostKey, and PostImm as immediate data.
	Post(op qp.Opcode, n int) error
	// Completions returns the completions of receives and of sends since the last call.
	Completions() (recv, send []cq.WC, err error)
	ReadMemory() ([]byte, error)
	State() (qp.State, error)
	Fail() error // moves the queue pair to ERR, so that it sends no more packets
}

// These are the remote address, the R_Key and the immediate data of the work requests of [TargetQP.Post].
const (
	PostVA  = 0x1000
	PostKey = bth.RKey(0x1234)
	PostImm = 0x89ABCDEF
)

// Counting is a Target that counts the packets that it drops. The bool is false if it cannot tell.
type Counting interface{ Dropped() (uint64, bool) }

// accesses maps names in scripts to access rights.
var accesses = map[string]mr.Access{"write": mr.RemoteWrite, "read": mr.RemoteRead, "atomic": mr.RemoteAtomic, "flush": mr.FlushGlobal, "local": mr.LocalWrite, "none": 0}

func parseAccess(t *token) (a mr.Access, err error) {
	for word := range strings.SplitSeq(t.text, ",") {
		v, ok := accesses[word]
		if !ok {
			return 0, errAt(t.at, "%s=%s: want some of write, read, atomic, flush, local, none, separated by commas", t.key, t.text)
		}
		a |= v
	}
	return a, nil
}

// recvStep posts receives on the target.
type recvStep struct{ n int }

func (p *parser) recv(l *line, t []token) (action, error) {
	if len(t) != 2 {
		return nil, errAt(t[0].pos, "want recv NUMBER")
	}
	n, err := count(&t[1], 16)
	return &recvStep{n}, err
}

// postStep posts a work request on the target, and waits for its first packet.
type postStep struct {
	op qp.Opcode
	n  int
}

// posts maps names in scripts to operations.
var posts = map[string]qp.Opcode{"SEND": qp.Send, "SEND_WITH_IMM": qp.SendImm, "WRITE": qp.Write, "WRITE_WITH_IMM": qp.WriteImm, "READ": qp.Read, "FETCH_ADD": qp.FetchAdd}

func (p *parser) post(l *line, t []token) (action, error) {
	if len(t) != 3 || t[2].key != "len" {
		return nil, errAt(t[0].pos, "want post OPERATION len=NUMBER")
	}
	op, ok := posts[t[1].text]
	if !ok {
		return nil, errAt(t[1].pos, "%q: want %s", t[1].text, strings.Join(slices.Sorted(maps.Keys(posts)), ", "))
	}
	n, err := strconv.Atoi(t[2].text)
	if err != nil || n < 0 || n > MemorySize {
		return nil, errAt(t[2].at, "%q: want 0 to %d bytes", t[2].text, MemorySize)
	}
	return &postStep{op, n}, nil
}

// outcomeStep compares the outcome of the script with the expected ones.
type outcomeStep struct {
	want  []string // any of these is right; the first is that of a peer that does no more than the standard demands
	warns bool     // the peer's kernel prints a warning (WARN or BUG)
}

// String lists the outcomes that are right.
func (o *outcomeStep) String() string { return strings.Join(o.want, " or ") }

func (p *parser) outcome(l *line, t []token) (action, error) {
	o := &outcomeStep{}
	rest := t
	for next := "outcome"; len(rest) > 1 && rest[0].text == next && rest[1].quoted && !rest[1].assign; next = "or" {
		o.want, rest = append(o.want, rest[1].text), rest[2:]
	}
	if o.warns = len(rest) == 1 && rest[0].text == "warns" && !rest[0].quoted; o.want == nil || len(rest) > 0 && !o.warns {
		return nil, errAt(t[0].pos, "want outcome \"text\", with or \"text\" for other right outcomes, and warns if the peer's kernel may print a warning")
	}
	return o, nil
}

// controlled is the state of a session with a target.
type controlled struct {
	target Target
	q      TargetQP
	before []byte // contents of the target's memory when the session began
	va     uint64 // its address

	canary    TargetQP // its response shows that the target has handled all packets that were sent before
	canaryOwn bth.QPN  // the script's queue pair for the canary
	canaryPSN bth.PSN  // of the next request to it
	alive     bool     // its response has arrived

	answers []string // descriptions of the responses

	stream    *stream // of valid packets; nil: the way of the session has none
	sent      uint64  // packets of a stranger, which the target must count as dropped
	uncounted uint64  // the count of dropped packets when the session began
}

// answerLimit is how long the session waits for a packet that the target has to send.
const answerLimit = 10 * time.Second

// settle waits until the target has sent all its responses: the canary answers, and then the session waits for Wire.Quiet.
func (s *Session) settle() error {
	c := s.ctl
	if c == nil {
		return nil
	}
	c.alive = false
	p := (&draft{packet: packet{op: bth.RCWriteOnly}, f: bth.Fields{BTH: bth.BTHFields{Flags: bth.AckReq, PKey: bth.DefaultPKey, DestQPN: c.canary.QPN(), PSN: c.canaryPSN}}})
	b, err := p.build()
	if err == nil {
		err = s.wire.queue(b)
	}
	if err == nil {
		err = s.wire.flush()
	}
	if err != nil {
		return err
	}
	c.canaryPSN = c.canaryPSN.Add(1)
	if err := s.until(answerLimit, func() bool { return c.alive }); err != nil {
		return err
	}
	if !c.alive {
		return fmt.Errorf("the target answers on no queue pair any more")
	}
	return s.until(s.wire.Quiet, func() bool { return false })
}

// Outcome describes everything that the script has caused so far: responses, completions, changes of memory, the state of the queue pair.
func (s *Session) Outcome() (string, error) {
	c := s.ctl
	if c == nil {
		return "", fmt.Errorf("only of a peer that the script controls (connect verbs) all can be seen")
	}
	if err := s.settle(); err != nil {
		return "", err
	}
	out := slices.Clone(c.answers)
	recv, send, err := c.q.Completions()
	if err != nil {
		return "", err
	}
	for _, q := range []struct {
		name string
		wcs  []cq.WC
	}{{"recv", recv}, {"send", send}} {
		if len(q.wcs) > 0 {
			out = append(out, q.name+" "+completions(q.wcs))
		}
	}
	now, err := c.q.ReadMemory()
	if err != nil {
		return "", err
	}
	if !bytes.Equal(now, c.before) {
		first, last := 0, len(now)-1
		for now[first] == c.before[first] {
			first++
		}
		for now[last] == c.before[last] {
			last--
		}
		out = append(out, fmt.Sprintf("memory %d…%d changed", first, last))
	}
	state, err := c.q.State()
	if err != nil {
		return "", err
	}
	if state != qp.RTS {
		out = append(out, state.String())
	}
	if len(out) == 0 {
		return "nothing", nil
	}
	return strings.Join(out, "; "), nil
}

// completions describes completions. Equal ones in succession are described once, with their number.
func completions(wcs []cq.WC) string {
	var words []string
	var times []int
	for _, w := range wcs {
		s := w.Status.String()
		if w.Status == cq.Success && w.Opcode.Recv() {
			s += fmt.Sprintf(" %d B", w.ByteLen)
			if w.Flags&cq.WithImm != 0 {
				s += " imm " + number(uint64(w.Imm))
			}
		}
		if n := len(words); n > 0 && words[n-1] == s {
			times[n-1]++
			continue
		}
		words, times = append(words, s), append(times, 1)
	}
	for i, n := range times {
		if n > 1 {
			words[i] += fmt.Sprintf(" ×%d", n)
		}
	}
	return strings.Join(words, ", ")
}

// connectTarget creates the queue pairs of a session with a target.
func (s *Session) connectTarget(c *connectStep) error {
	if s.opts.Target == nil {
		return fmt.Errorf("\"connect verbs\" needs a peer that scripts control; leave the peer's address out to play against a NIC in this process")
	}
	x := &controlled{target: s.opts.Target, canaryPSN: 0x100}
	set := TargetConfig{Type: map[bth.Transport]qp.Type{bth.RC: qp.RC, bth.UC: qp.UC, bth.UD: qp.UD}[c.tr], Peer: s.wire.Own,
		RQPSN: 0xFFFFFD, SQPSN: 0x800, QKey: targetQKey, Reads: 4, Depth: 4, Timeout: 20, Retry: 7, RNR: 7, Timer: 12, Memory: MemorySize,
		Access: mr.LocalWrite | mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic, Rights: mr.RemoteWrite | mr.RemoteRead | mr.RemoteAtomic}
	for _, a := range c.args {
		switch key := a.tok.key; key {
		case "access", "rights":
			v, err := parseAccess(&a.tok)
			if err != nil {
				return err
			}
			if key == "access" {
				set.Access = v
			} else {
				set.Rights = v
			}
		default:
			v, err := s.eval(&a.e)
			if err != nil {
				return err
			}
			if err := setTarget(&set, key, v); err != nil {
				return &Error{Pos: a.tok.at, Err: err}
			}
		}
	}
	canary := set
	canary.Type, canary.RQPSN, canary.Rights, canary.Recv = qp.RC, x.canaryPSN, mr.RemoteWrite, 0
	canary.PeerQPN = s.wire.qpn()
	x.canaryOwn = canary.PeerQPN
	s.own = s.wire.qpn()
	set.PeerQPN = s.own
	var err error
	if x.canary, err = x.target.Connect(canary); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	if x.q, err = x.target.Connect(set); err != nil {
		return fmt.Errorf("the target: %w", err)
	}
	va, key, err := x.q.Memory()
	if err != nil {
		return fmt.Errorf("the target's memory: %w", err)
	}
	if x.before, err = x.q.ReadMemory(); err != nil {
		return fmt.Errorf("the target's memory: %w", err)
	}
	x.va = va
	s.numbers["mem.va"], s.numbers["mem.rkey"], s.numbers["mem.len"] = va, uint64(key), uint64(set.Memory)
	s.qpn, s.first, s.next, s.theirs, s.mtu, s.qkey = x.q.QPN(), set.RQPSN, set.RQPSN, set.SQPSN, pathMTU, targetQKey
	s.latest = set.SQPSN
	s.ctl = x
	if s.opts.Way.Mode == Mixed {
		if x.stream, err = s.newStream(set); err != nil {
			return err
		}
	}
	if counts, ok := x.target.(Counting); ok {
		x.uncounted, _ = counts.Dropped()
	}
	return nil
}

// targetSettings are the settings of "connect verbs" whose values are numbers: the largest value of each, and where it is stored.
var targetSettings = map[string]struct {
	limit uint64
	set   func(c *TargetConfig, v uint64)
}{
	"psn":      {1<<24 - 1, func(c *TargetConfig, v uint64) { c.RQPSN = bth.PSN(v) }},
	"peerpsn":  {1<<24 - 1, func(c *TargetConfig, v uint64) { c.SQPSN = bth.PSN(v) }},
	"recv":     {16, func(c *TargetConfig, v uint64) { c.Recv = int(v) }},
	"reads":    {128, func(c *TargetConfig, v uint64) { c.Reads = uint8(v) }},
	"depth":    {128, func(c *TargetConfig, v uint64) { c.Depth = uint8(v) }},
	"timeout":  {31, func(c *TargetConfig, v uint64) { c.Timeout = uint8(v) }},
	"retry":    {7, func(c *TargetConfig, v uint64) { c.Retry = uint8(v) }},
	"rnr":      {7, func(c *TargetConfig, v uint64) { c.RNR = uint8(v) }},
	"rnrtimer": {31, func(c *TargetConfig, v uint64) { c.Timer = bth.RNRTimer(v) }},
}

// setTarget sets the number that a setting of "connect verbs" names.
func setTarget(c *TargetConfig, key string, v uint64) error {
	x := targetSettings[key]
	if v > x.limit {
		return fmt.Errorf("%s=%s: at most %d", key, number(v), x.limit)
	}
	x.set(c, v)
	return nil
}

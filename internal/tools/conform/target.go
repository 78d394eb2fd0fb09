package conform

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/cq"
	"github.com/goroce/roce/internal/tools/scripted"
	"github.com/goroce/roce/internal/tools/usage"
	"github.com/goroce/roce/mr"
	"github.com/goroce/roce/qp"
	"github.com/goroce/roce/script"
)

// targetSpec is script.TargetConfig in the control protocol. Codes and flags have the values of the verbs.
type targetSpec struct {
	Type    string `json:"type"`
	Peer    string `json:"peer"`
	PeerQPN uint32 `json:"peer_qpn"`
	RQPSN   uint32 `json:"rq_psn"`
	SQPSN   uint32 `json:"sq_psn"`
	QKey    uint32 `json:"qkey,omitempty"`
	Access  uint32 `json:"access"` // of the memory
	Rights  uint32 `json:"rights"` // of the queue pair
	Reads   uint8  `json:"reads"`
	Depth   uint8  `json:"depth"`
	Timeout uint8  `json:"timeout"`
	Retry   uint8  `json:"retries"`
	RNR     uint8  `json:"rnr_retries"`
	Timer   uint8  `json:"min_rnr_timer"`
	Memory  int    `json:"memory"` // byte i is i modulo 256
	Recv    int    `json:"receives"`
}

// Bounds of a target.
const (
	maxTargetMemory = 32 << 10 // a reply has the whole memory
	maxTargetRecv   = 16
)

// targetState has the values of a target that the tester has asked for.
type targetState struct {
	QPN    uint32  `json:"qpn"`
	VA     uint64  `json:"va"`
	RKey   uint32  `json:"rkey"`
	State  uint8   `json:"state"`
	Recv   []cq.WC `json:"recv,omitempty"`
	Send   []cq.WC `json:"send,omitempty"`
	Memory []byte  `json:"memory,omitempty"`
}

// config converts the spec to a script.TargetConfig.
func (s *targetSpec) config() (c script.TargetConfig, err error) {
	typ, ok := services[s.Type]
	peer, perr := netip.ParseAddr(s.Peer)
	switch {
	case !ok:
		return c, usage.Errorf("service %q: want rc, uc or ud", s.Type)
	case perr != nil:
		return c, usage.Errorf("peer %q is no IP address", s.Peer)
	case (s.PeerQPN|s.RQPSN|s.SQPSN)>>24 != 0:
		return c, usage.Errorf("a number of a queue pair, or a PSN, has more than 24 bits")
	}
	if err := errors.Join(usage.Range("memory", s.Memory, 0, maxTargetMemory), usage.Range("receives", s.Recv, 0, maxTargetRecv)); err != nil {
		return c, err
	}
	return script.TargetConfig{Type: typ, Peer: bth.GIDFrom(peer), PeerQPN: bth.QPN(s.PeerQPN), RQPSN: bth.PSN(s.RQPSN), SQPSN: bth.PSN(s.SQPSN), QKey: bth.QKey(s.QKey),
		Access: mr.Access(s.Access), Rights: mr.Access(s.Rights), Reads: s.Reads, Depth: s.Depth, Timeout: s.Timeout, Retry: s.Retry, RNR: s.RNR,
		Timer: bth.RNRTimer(s.Timer), Memory: s.Memory, Recv: s.Recv}, nil
}

// targetCommands are the commands for queue pairs that a script controls. All except "target" name such a queue pair.
var targetCommands = map[string]func(x *session, c *command, q script.TargetQP) (reply, error){
	"target": (*session).target,
	"target_receive": func(_ *session, c *command, q script.TargetQP) (reply, error) {
		if err := usage.Range("count", c.Count, 0, maxTargetRecv); err != nil {
			return reply{}, err
		}
		return reply{}, q.Recv(c.Count)
	},
	"target_post": func(_ *session, c *command, q script.TargetQP) (reply, error) {
		op, ok := opcodes[c.Op]
		if !ok {
			return reply{}, usage.Errorf("operation %q is unknown", c.Op)
		}
		if err := usage.Range("size", c.Size, 0, maxTargetMemory); err != nil {
			return reply{}, err
		}
		return reply{}, q.Post(op, c.Size)
	},
	"target_completions": func(_ *session, _ *command, q script.TargetQP) (reply, error) {
		recv, send, err := q.Completions()
		return reply{Target: &targetState{Recv: recv, Send: send}}, err
	},
	"target_memory": func(_ *session, _ *command, q script.TargetQP) (reply, error) {
		b, err := q.ReadMemory()
		return reply{Target: &targetState{Memory: b}}, err
	},
	"target_state": func(_ *session, _ *command, q script.TargetQP) (reply, error) {
		s, err := q.State()
		return reply{Target: &targetState{State: uint8(s)}}, err
	},
	"target_fail": func(_ *session, _ *command, q script.TargetQP) (reply, error) { return reply{}, q.Fail() },
	"target_close": func(x *session, c *command, _ script.TargetQP) (reply, error) {
		x.dropTarget(c.QP)
		return reply{}, nil
	},
}

// target makes a queue pair that a script controls.
func (x *session) target(c *command, _ script.TargetQP) (reply, error) {
	if c.Target == nil {
		return reply{}, usage.Errorf("target: its description is missing")
	}
	cfg, err := c.Target.config()
	if err != nil {
		return reply{}, err
	}
	if len(x.ends)+len(x.targets) >= maxEnds {
		return reply{}, fmt.Errorf("%d queue pairs are there already: close one", maxEnds)
	}
	q, err := scripted.NewTarget(x.dev).Connect(cfg)
	if err != nil {
		return reply{}, err
	}
	x.last++
	x.targets[x.last] = q
	va, key, err := q.Memory()
	return reply{QP: x.last, Target: &targetState{QPN: uint32(q.QPN()), VA: va, RKey: uint32(key)}}, err
}

// dropTarget closes a queue pair that a script controls.
func (x *session) dropTarget(n int) {
	if c, ok := x.targets[n].(io.Closer); ok {
		c.Close()
	}
	delete(x.targets, n)
}

// farTarget is the peer as the target of a script.
type farTarget struct{ c *control }

// nameOf returns the name of a value in the protocol, which is a key of names.
func nameOf[T comparable](names map[string]T, value T) string {
	for name, v := range names {
		if v == value {
			return name
		}
	}
	return fmt.Sprint(value)
}

func (t *farTarget) Connect(c script.TargetConfig) (script.TargetQP, error) {
	r, err := t.c.call(command{Do: "target", Target: &targetSpec{Type: nameOf(services, c.Type), Peer: c.Peer.Addr().String(), PeerQPN: uint32(c.PeerQPN), RQPSN: uint32(c.RQPSN), SQPSN: uint32(c.SQPSN),
		QKey: uint32(c.QKey), Access: uint32(c.Access), Rights: uint32(c.Rights), Reads: c.Reads, Depth: c.Depth, Timeout: c.Timeout, Retry: c.Retry, RNR: c.RNR,
		Timer: uint8(c.Timer), Memory: c.Memory, Recv: c.Recv}})
	if err == nil && r.Target == nil {
		err = errors.New("the peer has made a queue pair and does not say its number")
	}
	if err != nil {
		return nil, err
	}
	return &farTargetQP{t.c, r.QP, *r.Target}, nil
}

// farTargetQP is a queue pair of the peer that a script controls.
type farTargetQP struct {
	c  *control
	qp int
	at targetState
}

// ask sends a command about the queue pair.
func (q *farTargetQP) ask(m command) (targetState, error) {
	m.QP = q.qp
	r, err := q.c.call(m)
	if err != nil || r.Target == nil {
		return targetState{}, err
	}
	return *r.Target, nil
}

func (q *farTargetQP) QPN() bth.QPN { return bth.QPN(q.at.QPN) }

func (q *farTargetQP) Memory() (uint64, bth.RKey, error) { return q.at.VA, bth.RKey(q.at.RKey), nil }

func (q *farTargetQP) Recv(n int) error {
	_, err := q.ask(command{Do: "target_receive", Count: n})
	return err
}

func (q *farTargetQP) Post(op qp.Opcode, n int) error {
	_, err := q.ask(command{Do: "target_post", Op: nameOf(opcodes, op), Size: n})
	return err
}

func (q *farTargetQP) Completions() (recv, send []cq.WC, err error) {
	s, err := q.ask(command{Do: "target_completions"})
	return s.Recv, s.Send, err
}

func (q *farTargetQP) ReadMemory() ([]byte, error) {
	s, err := q.ask(command{Do: "target_memory"})
	return s.Memory, err
}

func (q *farTargetQP) State() (qp.State, error) {
	s, err := q.ask(command{Do: "target_state"})
	return qp.State(s.State), err
}

func (q *farTargetQP) Fail() error {
	_, err := q.ask(command{Do: "target_fail"})
	return err
}

// Dropped returns how many packets the peer has dropped. known is false if the peer does not have all the counters for it.
func (t *farTarget) Dropped() (n uint64, known bool) {
	c, err := t.c.counters()
	if err != nil {
		return 0, false
	}
	for _, name := range []string{"dropped", "icrc_err", "wrong_peer", "wrong_state", "wrong_transport", "qkey_violation", "rp_cnp_ignored"} {
		v, ok := c[name]
		if !ok {
			return 0, false
		}
		n += v
	}
	return n, true
}

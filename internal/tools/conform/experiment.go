package conform

import (
	"embed"
	"path/filepath"
	"slices"
	"strings"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/impair"
	"github.com/goroce/roce/link/fault"
)

// The rule files of the experiments, in the format of rocectl impair. A rule that has opcodes and no direction applies to the requests
// of the end that is the requester of the step, and to the responses to these.
//
//go:embed faults/*.yaml
var files embed.FS

// experiment describes faults in the path.
type experiment struct {
	name  string // also that of its rule file
	about string
	ops   []string // the workloads in which it is done
	// needs is a situation that must occur, otherwise the experiment has shown nothing; "": no situation is needed.
	needs situation
}

// The workloads of experiments: kinds of operations between queue pairs that are connected out of band, or a connection by the connection manager.
const (
	opSend   = "send"
	opWrite  = "write"
	opRead   = "read"
	opAtomic = "atomic"
	opCM     = "cm"
)

var experiments = []experiment{
	{"drop-first", "the first packet of a message is lost", []string{opSend, opWrite, opRead}, ""},
	{"drop-middle", "a packet in the middle of a message is lost", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"drop-end", "the last packet of a message is lost", []string{opSend, opWrite, opRead}, ""},
	{"drop-last", "the very last packet is lost", []string{opSend, opWrite, opRead}, ""},
	{"drop-twice", "a packet and its retransmission are lost", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"drop-nak", "a packet and the NAK for it are lost", []string{opSend, opWrite, opAtomic}, ""},
	{"drop-ack", "the last acknowledgement is lost", []string{opSend, opWrite}, ""},
	{"drop-request", "a READ request is lost", []string{opRead}, ""},
	{"drop-answer", "the answer to an atomic is lost", []string{opAtomic}, ""},
	{"corrupt", "a packet has a bit error", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"reorder", "three packets overtake one", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"duplicate", "requests arrive twice", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"duplicate-answers", "responses arrive twice", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{"loss", "10 % of all packets are lost", []string{opSend, opWrite, opRead, opAtomic}, ""},
	{markName, "data packets are marked Congestion Experienced", []string{opSend, opWrite}, sentCNP},
	{"drop-req", "the REQ is lost", []string{opCM}, ""},
	{"drop-rep", "the REP is lost", []string{opCM}, ""},
	{"drop-rtu", "the RTU is lost", []string{opCM}, ""},
	{"duplicate-cm", "messages of the connection manager arrive twice", []string{opCM}, ""},
}

// markName is the name of the experiment with congestion marks. If the driver cannot mark single packets, all packets of a connection have the mark.
const markName = "mark"

// load reads the rules of the experiment.
func (e *experiment) load() (*impair.File, error) {
	name := e.name + ".yaml"
	text, err := files.ReadFile("faults/" + name)
	if err != nil {
		return nil, err
	}
	return impair.Parse(name, text)
}

// injected is an experiment with its rules.
type injected struct {
	experiment
	file *impair.File
}

// withRules returns experiments with their rules, and then an experiment for each rule file of the user.
func (c *Config) withRules(experiments []experiment) (list []injected, err error) {
	for _, e := range experiments {
		file, err := e.load()
		if err != nil {
			return nil, err
		}
		list = append(list, injected{e, file})
	}
	for _, f := range c.Rules {
		name := strings.TrimSuffix(filepath.Base(f.Name), filepath.Ext(f.Name))
		list = append(list, injected{experiment{name: name, about: "the rules of " + f.Name, ops: []string{opSend, opWrite, opRead, opAtomic}}, f})
	}
	return list, nil
}

// aimed returns the rules for a step, with the directions of requests and responses. tester says that the tester is the requester; otherwise
// the peer is.
func aimed(rules []fault.Rule, tester bool) []fault.Rule {
	rules = slices.Clone(rules)
	requests, responses := fault.Rx, fault.Tx
	if tester {
		requests, responses = fault.Tx, fault.Rx
	}
	for i := range rules {
		if rules[i].Dir != 0 || rules[i].Ops == (fault.OpcodeSet{}) {
			continue
		}
		rules[i].Func = func(dir fault.Direction, p *bth.Packet) bool {
			if p.Info.Flags&bth.Response != 0 {
				return dir == responses
			}
			return dir == requests
		}
	}
	return rules
}

// turned returns the rule file with both directions exchanged.
func turned(f *impair.File) *impair.File {
	t := *f
	t.Rules = slices.Clone(f.Rules)
	for i := range t.Rules {
		switch r := &t.Rules[i]; r.Dir {
		case fault.Tx:
			r.Dir = fault.Rx
		case fault.Rx:
			r.Dir = fault.Tx
		}
	}
	return &t
}

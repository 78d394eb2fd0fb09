package verify

import (
	"time"

	"github.com/goroce/roce/bth"
)

// Scope is what CNPs are paced by. Adapters differ in it.
type Scope string

// The scopes.
const (
	ByQueuePair   Scope = "qp"          // one queue pair
	ByAddresses   Scope = "addresses"   // a pair of addresses
	ByDestination Scope = "destination" // the address that CNPs go to, whatever they come from
	ByPort        Scope = "port"        // the address that CNPs come from
)

// Scopes lists all scopes, the narrowest first.
var Scopes = []Scope{ByQueuePair, ByAddresses, ByDestination, ByPort}

// CNPSpacing is how far CNPs are apart that one port sends.
type CNPSpacing struct {
	Scope Scope         `json:"scope"`
	Least time.Duration `json:"least_ns"` // between two of one scope
	Count int           `json:"count"`    // of such distances
}

// key returns what a CNP has in common with the others of its scope.
func (s Scope) key(p *packet) flowKey {
	k := flowKey{p.Frame.Src, p.Frame.Dst, p.Frame.DestQPN()}
	switch s {
	case ByAddresses:
		k.qpn = 0
	case ByDestination:
		k.src, k.qpn = bth.GID{}, 0
	case ByPort:
		k.dst, k.qpn = bth.GID{}, 0
	}
	return k
}

// cnps follows congestion marks and notifications.
type cnps struct {
	last    map[Scope]map[flowKey]lastCNP
	spacing map[Scope]*CNPSpacing
	marked  map[[2]bth.GID]int // hosts: packets from one to the other that were marked since the last CNP
}

type lastCNP struct {
	at    time.Time
	frame Frame
}

func (c *cnps) init() {
	c.last, c.spacing, c.marked = map[Scope]map[flowKey]lastCNP{}, map[Scope]*CNPSpacing{}, map[[2]bth.GID]int{}
	for _, s := range Scopes {
		c.last[s] = map[flowKey]lastCNP{}
	}
}

// mark notes a packet with a congestion mark.
func (v *Verifier) mark(p *packet) {
	if p.Frame.CE() && len(v.cnps.marked) < maxFlows {
		v.cnps.marked[[2]bth.GID{p.Frame.Src, p.Frame.Dst}]++
	}
}

// notification judges a CNP.
func (v *Verifier) notification(p *packet) {
	f := &p.Frame
	if f.Data[1] != 0 && f.Data[1] != 0x40 || f.Data[4] != 0x40 || f.Data[8] != 0 || f.PSN() != 0 || f.PayloadLen() != 0 || !zeros(f.Data[bth.BTHLen:len(f.Data)-bth.ICRCLen]) {
		v.find(cnpFormat, nil, "The CNP has other flags than BECN, a PSN, or bytes that are not zero.")
	}
	if p.out {
		v.happened(f.Src, cnpSent)
	}
	v.happened(f.Dst, cnpReceived)
	pair := [2]bth.GID{f.Dst, f.Src}
	if p.out && v.cnps.marked[pair] == 0 {
		v.suspect(cnpUnmarked, nil, nil, "No packet from %s has come with a congestion mark since the CNP before.", f.Dst.Addr())
	}
	if n := v.cnps.marked[pair]; n > 1 && v.cfg.Slack > 0 {
		v.cnps.marked[pair]-- // the others may have arrived after the CNP had left
	} else {
		delete(v.cnps.marked, pair)
	}
	v.spacing(p)
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// spacing measures how far a CNP is from the one before, in each scope, and judges it in one.
func (v *Verifier) spacing(p *packet) {
	for _, s := range Scopes {
		k := s.key(p)
		last, ok := v.cnps.last[s][k]
		if !ok && len(v.cnps.last[s]) >= maxFlows {
			continue
		}
		v.cnps.last[s][k] = lastCNP{p.Time, p.frame}
		if !ok {
			continue
		}
		d := p.Time.Sub(last.at)
		sp := v.cnps.spacing[s]
		if sp == nil {
			sp = &CNPSpacing{Scope: s, Least: d}
			v.cnps.spacing[s] = sp
		}
		sp.Count++
		sp.Least = min(sp.Least, d)
		scope := v.cfg.CNPScope
		if scope == "" {
			scope = ByQueuePair
		}
		if s == scope && d < v.cfg.CNPInterval {
			v.find(cnpPacing, []Frame{last.frame}, "The CNP comes %v after the one before of the same scope (%s); %v is the least.", round(d), s, v.cfg.CNPInterval)
		}
	}
}

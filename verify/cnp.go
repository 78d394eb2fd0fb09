package verify

import (
	"bytes"
	"cmp"
	"time"

	"github.com/goroce/roce/bth"
)

// Scope is the set of CNPs to which one minimal interval applies. Adapters differ in it.
type Scope string

// The scopes.
const (
	ByQueuePair   Scope = "qp"          // CNPs to one queue pair
	ByAddresses   Scope = "addresses"   // CNPs from one address to another
	ByDestination Scope = "destination" // CNPs to one address, from any address
	ByPort        Scope = "port"        // CNPs from one address
)

// Scopes lists all scopes, the narrowest first.
var Scopes = []Scope{ByQueuePair, ByAddresses, ByDestination, ByPort}

// CNPSpacing is the distance in time between successive CNPs of one scope.
type CNPSpacing struct {
	Scope Scope         `json:"scope"`
	Least time.Duration `json:"least_ns"` // the shortest distance
	Count int           `json:"count"`    // how many distances were measured
}

// key returns the addresses and the queue pair that all CNPs of one scope share. The other fields are zero.
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
	if f.Data[1] != 0 && f.Data[1] != 0x40 || f.Data[4] != 0x40 || f.Data[8] != 0 || f.PSN() != 0 || f.PayloadLen() != 0 || len(bytes.Trim(f.Data[bth.BTHLen:len(f.Data)-bth.ICRCLen], "\x00")) > 0 {
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
		v.cnps.marked[pair]-- // the other marked packets may have arrived after the CNP had left
	} else {
		delete(v.cnps.marked, pair)
	}
	v.spacing(p)
}

// spacing measures the time since the previous CNP in each scope, and judges it in the configured scope.
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
		if s == cmp.Or(v.cfg.CNPScope, ByQueuePair) && d < v.cfg.CNPInterval {
			v.find(cnpPacing, []Frame{last.frame}, "The CNP comes %v after the one before of the same scope (%s); %v is the least.", round(d), s, v.cfg.CNPInterval)
		}
	}
}

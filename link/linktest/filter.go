package linktest

import (
	"fmt"
	"sync"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/link"
)

// Filter is a model of early drop: Go code that drops the packets that a driver's program in the
// kernel would drop. It does not limit management datagrams.
type Filter struct {
	mu       sync.Mutex
	on       bool
	admitted map[bth.QPN]bth.GID
	drops    link.FilterDrops
	calls    []string
}

// Filtered puts a Filter in front of the ports of one card.
func Filtered(ports []link.Port) ([]link.Port, *Filter) {
	f := &Filter{admitted: map[bth.QPN]bth.GID{}}
	var out []link.Port
	for _, p := range ports {
		out = append(out, &filtered{Port: p, filter: f})
	}
	return out, f
}

// filtered is a Port behind a Filter.
type filtered struct {
	link.Port
	filter *Filter
	packet frame.Packet
}

// Inner returns the Port inside.
func (p *filtered) Inner() link.Port { return p.Port }

// Filter implements link.Filterer.
func (p *filtered) Filter(l link.MADLimit) (link.Filter, error) {
	if l.Idle.Gap <= 0 || l.Busy.Gap < l.Idle.Gap || l.Idle.Burst < l.Idle.Gap || l.Busy.Burst < l.Busy.Gap || l.BusyFor <= 0 {
		return nil, fmt.Errorf("limit %+v", l)
	}
	p.filter.on = true
	return p.filter, nil
}

// Recv implements link.Port.
func (p *filtered) Recv(fr []link.Frame) (int, error) {
	n, err := p.Port.Recv(fr)
	kept := 0
	for _, f := range fr[:n] {
		if p.filter.passes(&f, &p.packet, p.Info().Layout) {
			fr[kept] = f
			kept++
		}
	}
	return kept, err
}

// passes reports whether a frame reaches the Port.
func (f *Filter) passes(fr *link.Frame, p *frame.Packet, l frame.Layout) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.on {
		return true
	}
	// The filter does not check lengths and opcodes: the receiver does.
	if fr.Parse(p, l) != nil || p.Dst.IsMulticast() || p.DestQPN() == bth.QPNGSI {
		return true
	}
	from, known := f.admitted[p.DestQPN()]
	switch {
	case from == paused:
		f.drops.NoReceive++
	case !known:
		f.drops.NoQP++
	case from != bth.GID{} && from != p.Src:
		f.drops.WrongPeer++
	default:
		return true
	}
	return false
}

// Admit implements link.Filter.
func (f *Filter) Admit(n bth.QPN, from bth.GID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.admitted[n] = from
	call := "admit any"
	switch from {
	case bth.GID{}:
	case paused:
		call = "pause"
	default:
		call = "admit " + from.Addr().String()
	}
	f.calls = append(f.calls, call)
}

// paused is the source address of a queue pair that is paused.
var paused = bth.GID{0: 0xFF, 1: 0xFF}

// Pause implements link.Filter.
func (f *Filter) Pause(n bth.QPN) { f.Admit(n, paused) }

// Forget implements link.Filter.
func (f *Filter) Forget(n bth.QPN) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.admitted, n)
	f.calls = append(f.calls, "forget")
}

// Drops implements link.Filter.
func (f *Filter) Drops() link.FilterDrops {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.drops
}

// Calls returns the calls of Admit, Pause and Forget since the previous call of Calls, and the
// number of queue pairs that are admitted now.
func (f *Filter) Calls() (calls []string, admitted int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	calls, f.calls = f.calls, nil
	return calls, len(f.admitted)
}

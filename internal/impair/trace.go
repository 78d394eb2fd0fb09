package impair

import (
	"fmt"
	"strconv"
	"time"

	"github.com/goroce/roce/link/fault"
	"github.com/goroce/roce/link/pcap"
)

// Trace writes the frames of a bridge to a pcapng file: each frame when it arrives at one interface, and again when it leaves at the
// other. The records of one interface are what the peer at this interface has sent and received.
//
// The comment of an arrival says which faults the packet got, and why. The comment of a departure names the arrival, and
// says what has changed since:
//
//	seq=12 a-to-b conn=1 rel=4 iter=1 drop rule="the fifth packet" line=9
//	seq=14 of=13 delay 2.003ms
//
// Sequence numbers count arrivals and departures together. The number of the arrival is also the
// packet ID of both records.
type Trace struct {
	w     *pcap.Writer
	point Point
	rules []Rule
	seq   uint64
	text  []byte
	dirty bool
}

// Point says at which interfaces a trace records packets.
type Point uint8

// The points. With AtA and AtB, the trace has each packet once, as the peer at that interface has sent or received it.
const (
	Both Point = iota
	AtA
	AtB
)

// Points has the names of the points, in their order.
var Points = []string{Both: "both", AtA: "a", AtB: "b"}

// NewTrace begins a trace of a bridge between two ends, which Config.Ends names. rules has their names and lines for the
// comments. The caller closes w when the bridge has ended.
func NewTrace(w *pcap.Writer, point Point, ends []string, rules []Rule) (*Trace, error) {
	for i, name := range ends {
		side := []string{"interface A", "interface B"}[i]
		if _, err := w.AddInterface(pcap.Interface{Name: name, Description: side + " of rocectl impair", LinkType: pcap.Ethernet}); err != nil {
			return nil, err
		}
	}
	return &Trace{w: w, point: point, rules: rules, dirty: true}, nil
}

// arrived records a frame as it arrived at an interface, 0 for A and 1 for B, and returns its sequence number. The comment
// is that of verdict.
func (t *Trace) arrived(iface int, at time.Time, data []byte, v *fault.Verdict, roce bool) uint64 {
	t.seq++
	b := append(t.text[:0], "seq="...)
	b = strconv.AppendUint(b, t.seq, 10)
	b = append(b, [...]string{" a-to-b", " b-to-a"}[iface]...)
	if roce {
		b = t.verdict(b, v)
	}
	t.text = b
	t.write(iface, pcap.In, at, data, t.seq)
	return t.seq
}

// verdict appends the connection of a packet, its place in the connection, its faults, and the rule that caused them.
func (t *Trace) verdict(b []byte, v *fault.Verdict) []byte {
	number := func(name string, n int) {
		b = append(append(append(b, ' '), name...), '=')
		b = strconv.AppendInt(b, int64(n), 10)
	}
	if v.Place.Conn > 0 {
		number("conn", v.Place.Conn)
	}
	if v.Place.Known {
		number("rel", v.Place.Rel)
	}
	if v.Iter > 0 {
		number("iter", v.Iter)
	}
	if v.Faults == 0 && v.Refused == "" {
		return b
	}
	b = append(append(b, ' '), v.Faults.String()...)
	if v.Refused != "" {
		b = fmt.Appendf(b, " refused=%q", v.Refused)
	}
	switch {
	case v.Rule >= 0 && v.Rule < len(t.rules):
		b = fmt.Appendf(b, " rule=%q line=%d", t.rules[v.Rule].Name, t.rules[v.Rule].Line)
	case v.Rule >= 0: // it is the rule of a flag
		number("rule", v.Rule+1)
	default:
		b = append(b, " random"...)
	}
	return b
}

// left records a frame that leaves at an interface. of is the sequence number of its arrival. why names its faults, "" if there are
// none. late is the time since the arrival.
func (t *Trace) left(iface int, at time.Time, data []byte, of uint64, why string, late time.Duration) {
	t.seq++
	b := append(t.text[:0], "seq="...)
	b = strconv.AppendUint(b, t.seq, 10)
	b = append(b, " of="...)
	b = strconv.AppendUint(b, of, 10)
	if why != "" {
		b = append(append(b, ' '), why...)
		b = append(append(b, ' '), late.String()...)
	}
	t.text = b
	t.write(iface, pcap.Out, at, data, of)
}

func (t *Trace) write(iface int, dir pcap.Direction, at time.Time, data []byte, id uint64) {
	if t.point != Both && iface != int(t.point-AtA) {
		return
	}
	t.dirty = true
	t.w.Write(&pcap.Record{Time: at, Data: data, LinkType: pcap.Ethernet, Direction: dir, Interface: iface, Comment: string(t.text), ID: id})
}

// flush writes the buffered records to the file, so that another process can read them, and so that they are not lost if the process is
// killed. After an error of the file it always returns that error.
func (t *Trace) flush() error {
	if !t.dirty {
		return nil
	}
	t.dirty = false
	return t.w.Flush()
}

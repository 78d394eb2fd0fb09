package lnd

import (
	"errors"
	"io"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/examples/o2iblnd/sniff"
	"github.com/goroce/roce/examples/o2iblnd/wire"
	"github.com/goroce/roce/link/pcap"
)

const captures = "../../../testdata/pcaps/lnet/"

// capture holds the messages of o2iblnd in a capture file, without repetitions.
type capture struct {
	units   []*unit
	refused []moment                 // REJs without private data of o2iblnd
	ended   []moment                 // DREQs
	asked   map[netip.Addr][]*cm.REQ // REQs of each host, also the repeated ones
	resent  map[netip.Addr]int       // how many SENDs each host has repeated
}

// unit is a message, a refusal, or a request whose private data is not a message.
type unit struct {
	*sniff.Unit
	at      time.Duration
	request bool
	cut     bool // the capture file has only a part of the private data
}

// moment is a message of the connection manager without private data.
type moment struct {
	at     time.Duration
	src    netip.Addr
	reason cm.RejectReason
}

var errNoMessage = errors.New("the private data of a request is no message of o2iblnd")

// captured reads a capture file. Bytes that the capture cut off are zero: no rule depends on payload.
func captured(t *testing.T, name string) *capture {
	t.Helper()
	f, err := os.Open(captures + name + ".pcap")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	r, err := pcap.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{asked: map[netip.Addr][]*cm.REQ{}, resent: map[netip.Addr]int{}}
	var a sniff.Assembler
	var began time.Time
	type place struct { // identifies a packet that may be repeated
		src netip.Addr
		n   uint32 // QPN, or ID of the connection manager
		psn bth.PSN
		op  bth.Opcode
	}
	seen := map[place]bool{}
	again := func(p place) bool {
		defer func() { seen[p] = true }()
		return seen[p]
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return c
		}
		if err != nil {
			t.Fatal(err)
		}
		if began.IsZero() {
			began = rec.Time
		}
		data, layout, ok := rec.Frame()
		cut := rec.OrigLen - len(rec.Data)
		var p frame.Packet
		if !ok || p.Parse(append(slices.Clone(data), make([]byte, cut)...), layout) != nil {
			continue
		}
		src, dst, at := p.Src.Addr(), p.Dst.Addr(), rec.Time.Sub(began)
		var mad cm.Message
		if p.Op.Transport() == bth.UD {
			mad, _ = cm.DecodeMAD(p.Payload()) // nil if it is another datagram
		}
		u := a.Packet(&p, mad)
		switch m := mad.(type) {
		case *cm.REQ:
			c.asked[src] = append(c.asked[src], m)
			if again(place{src: src, n: uint32(m.LocalID), op: p.Op}) {
				continue
			}
			if u == nil {
				u = &sniff.Unit{Src: src, Dst: dst, QPN: bth.QPNGSI, Own: m.QPN, Bytes: m.Private[36:92], Err: errNoMessage}
			}
			c.units = append(c.units, &unit{Unit: u, at: at, request: true, cut: cut > 0})
			continue
		case *cm.REJ:
			if u == nil {
				c.refused = append(c.refused, moment{at, src, m.Reason})
			}
		case *cm.DREQ:
			if !again(place{src: src, n: uint32(m.LocalID), psn: 1, op: p.Op}) {
				c.ended = append(c.ended, moment{at: at, src: src})
			}
		}
		if u == nil {
			continue
		}
		if mad == nil && again(place{src, uint32(u.QPN), u.PSN, bth.RCSendOnly}) {
			c.resent[src]++
			continue
		}
		c.units = append(c.units, &unit{Unit: u, at: at})
	}
}

// answer returns the index of the answer to the request at index i: the next message of the connection manager
// in the other direction. -1: there is none.
func (c *capture) answer(i int) int {
	for j := i + 1; j < len(c.units); j++ {
		if a := c.units[j]; a.QPN == bth.QPNGSI && !a.request && a.Src == c.units[i].Dst {
			return j
		}
	}
	return -1
}

// stamp returns the stamp in the first answer of a host from index from on, 0 if there is none.
func (c *capture) stamp(from int, host netip.Addr) wire.Stamp {
	for _, u := range c.units[from:] {
		switch {
		case u.Src != host || u.QPN != bth.QPNGSI || u.request || u.Err != nil:
		case u.Reject == nil:
			return u.Message.SrcStamp
		case u.Reject.Stamp != 0:
			return u.Reject.Stamp
		}
	}
	return 0
}

// dialing reports whether a host had its own request under way when it answered the request at index i.
// The answer to its own request comes later in the capture than the request at i.
func (c *capture) dialing(i, answer int) bool {
	for j, b := range c.units[:answer] {
		if b.request && b.Src == c.units[i].Dst {
			if at := c.answer(j); at < 0 || at > i {
				return true
			}
		}
	}
	return false
}

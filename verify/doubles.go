package verify

import (
	"hash/maphash"
	"time"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/link/pcap"
)

// place names a point of capture. A packet that a host forwards is captured there as it comes and as it leaves, with another hop
// limit if the host is a router; a packet that is sent again has those of the first time.
type place struct {
	file, iface, ifindex int
	direction            pcap.Direction
	hops                 uint8
}

// placeOf returns where a packet was captured.
func placeOf(p *packet) place {
	hops := uint8(0)
	switch ip := p.Frame.IP; len(ip) {
	case 20:
		hops = ip[8]
	case 40:
		hops = ip[7]
	}
	return place{p.frame.File, p.Interface, p.IfIndex, p.Direction, hops}
}

// doubles recognises packets that were captured at two places. They are byte for byte the same. The
// n-th such packet at one place is the n-th at every other.
type doubles struct {
	seed   maphash.Seed
	places map[place]uint16
	seenAt map[uint64]*sighting
	recent fifo.Queue[uint64] // keys of seenAt, the oldest first
	free   *sighting          // the latest that was forgotten
}

// sighting is where a packet was seen, and how often.
type sighting struct {
	first tally
	more  []tally
	most  int
}

// tally is how often a packet was seen at a place.
type tally struct {
	place uint16
	n     int
}

// Bounds of the memory that packets take which are kept to be recognised.
const (
	maxDoubles = 1 << 16
	maxPlaces  = 1 << 10
)

// seen reports whether the packet was captured at another place before.
func (d *doubles) seen(p *packet) bool {
	if d.places == nil {
		d.seed, d.places, d.seenAt = maphash.MakeSeed(), map[place]uint16{}, map[uint64]*sighting{}
	}
	k := placeOf(p)
	at, ok := d.places[k]
	if !ok {
		if len(d.places) == maxPlaces {
			return false
		}
		at = uint16(len(d.places))
		d.places[k] = at
	}
	key := maphash.Bytes(d.seed, p.Frame.Data) ^ uint64(ipID(p))<<48
	s := d.seenAt[key]
	if s == nil {
		s = d.add(key)
		s.first.place = at
	}
	n := s.at(at)
	n.n++
	if n.n > s.most {
		s.most = n.n
		return false
	}
	return true
}

// add makes room for a packet.
func (d *doubles) add(key uint64) *sighting {
	s := d.free
	if d.free = nil; s == nil {
		s = new(sighting)
	}
	if d.recent.Len() == maxDoubles {
		old, _ := d.recent.Pop()
		if d.free = d.seenAt[old]; d.free != nil {
			*d.free = sighting{more: d.free.more[:0]}
		}
		delete(d.seenAt, old)
	}
	d.seenAt[key] = s
	*d.recent.Push() = key
	return s
}

// at returns the count of a place.
func (s *sighting) at(place uint16) *tally {
	if s.first.place == place {
		return &s.first
	}
	for i := range s.more {
		if s.more[i].place == place {
			return &s.more[i]
		}
	}
	s.more = append(s.more, tally{place: place})
	return &s.more[len(s.more)-1]
}

// contentsSeed is of the hashes that are compared with each other within a run.
var contentsSeed = maphash.MakeSeed()

// hash tells contents apart.
func hash(b []byte) uint64 { return maphash.Bytes(contentsSeed, b) }

// copyTime is how much later than a packet a copy of it may come that the network made.
const copyTime = 100 * time.Millisecond

// copied reports whether a packet may be a copy that the network made of one that came before, and notes that it cannot be
// told whether it breaks a rule. That is so if it has no identification, which IPv6 has not.
func (v *Verifier) copied(id RuleID, p *packet, before time.Time) bool {
	if p.out || ipID(p) != 0 || p.Time.Sub(before) >= copyTime {
		return false
	}
	v.limitOf(LimitCopy, id, "", p)
	return true
}

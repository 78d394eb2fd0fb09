package verify

import (
	"hash/maphash"
	"time"

	"github.com/goroce/roce/internal/fifo"
	"github.com/goroce/roce/link/pcap"
)

// place identifies a point of capture. A packet that a host forwards may be captured twice there: as it arrives and as it leaves, with
// another hop limit if the host is a router. A packet that its sender repeats has the same place as the first time.
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

// doubles recognises packets that were captured at two places: they are equal byte for byte. The n-th of several equal packets at
// one place is taken for the n-th at every other place.
type doubles struct {
	seed   maphash.Seed
	places map[place]uint16
	seenAt map[uint64]*sighting
	recent fifo.Queue[uint64] // keys of seenAt, the oldest first
	free   *sighting          // the one that was removed last, for reuse
}

// sighting is how often a packet was captured at each place. most is the largest of these counts.
type sighting struct {
	first tally
	more  []tally
	most  int
}

// tally is how often a packet was captured at one place.
type tally struct {
	place uint16
	n     int
}

// These constants bound the memory of doubles: the number of packets and the number of places that it remembers.
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

// contentsSeed is the seed of all hashes that hash returns.
var contentsSeed = maphash.MakeSeed()

// hash returns a hash of b. It is comparable with other hashes of the same process only.
func hash(b []byte) uint64 { return maphash.Bytes(contentsSeed, b) }

// copyTime is how much later than a packet a copy may come that the network made of it.
const copyTime = 100 * time.Millisecond

// copied reports whether a packet may be a copy that the network made of a packet at time before. That cannot be excluded if the packet
// has no IPv4 identification, for example with IPv6. copied then records a limit: the capture cannot tell whether the packet breaks the rule.
func (v *Verifier) copied(id RuleID, p *packet, before time.Time) bool {
	if p.out || ipID(p) != 0 || p.Time.Sub(before) >= copyTime {
		return false
	}
	v.limitOf(LimitCopy, id, "", p)
	return true
}

package frame

// Pass marks a packet whose addresses and service a queue pair has compared with those of its
// peer. [Packet.Next] keeps the pass, because the next packet has the same addresses; Parse
// and ParseBody remove it. So a queue pair compares once for each run of packets, and a packet
// with other addresses never has its pass.
//
// The zero value is ready for use. A Pass must not be copied.
type Pass struct{ epoch uint64 }

// Revoke makes the pass of every packet invalid: the caller calls it when the addresses
// or the service have changed.
func (s *Pass) Revoke() { s.epoch++ }

// SetPass gives the packet a pass. A caller that changes fields of the packet afterwards must
// parse it anew.
func (p *Packet) SetPass(s *Pass) {
	p.pass, p.epoch = s, s.epoch
	_, p.unseen = p.UnseenID()
}

// PassID is [Packet.UnseenID] for a packet with a pass, which remembers whether the driver has seen
// the Identification.
func (p *Packet) PassID() (id uint16, unseen bool) { return p.id, p.unseen }

// Has reports whether the packet has a pass that was not revoked.
func (p *Packet) Has(s *Pass) bool { return p.pass == s && p.epoch == s.epoch }

package verify

import (
	"math"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/tools/dissect"
)

// Connection is a connection that two ends set up without the connection manager, so that no capture shows its parameters.
type Connection struct {
	Ends [2]ConnectionEnd
	MTU  int // path MTU; 0: not known
}

// ConnectionEnd is one end of a [Connection], with the parameters of its requests.
type ConnectionEnd struct {
	Addr    netip.Addr
	QPN     bth.QPN
	PSN     bth.PSN // of its first request
	Timeout uint8   // local ACK timeout code; 0: none, or not known
	Retries int     // retry count; negative: not known
	Depth   int     // READs and atomics that it may have outstanding; negative: not known
}

// Connected tells the Verifier of a connection, before its first packet. The Verifier drops an older connection with the same
// addresses and queue pair numbers.
func (v *Verifier) Connected(c Connection) {
	var of [2]*agreement
	for i, e := range c.Ends {
		of[i] = &agreement{start: e.PSN & (1<<24 - 1), startKnown: true, timeout: e.Timeout, retries: e.Retries, depth: e.Depth}
		if e.Retries < 0 {
			of[i].retries = math.MaxInt
		}
	}
	a, b := c.Ends[0], c.Ends[1]
	v.connect(bth.GIDFrom(a.Addr), bth.GIDFrom(b.Addr), a.QPN, b.QPN, c.MTU, of[0], of[1], &packet{Packet: new(dissect.Packet)})
}

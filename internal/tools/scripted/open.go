package scripted

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/internal/hostnet"
	"github.com/goroce/roce/internal/machine"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/pcap"
	"github.com/goroce/roce/link/raw"
	"github.com/goroce/roce/link/udp"
	"github.com/goroce/roce/script"
)

// Links are the drivers that scripts can be played over.
var Links = []string{"raw", "udp"}

// WireConfig says how a peer is reached.
type WireConfig struct {
	Dev     string     // interface; "": the one of the route to the peer
	Link    string     // raw or udp
	Local   netip.Addr // local address; invalid: that of the route to the peer
	Peer    netip.Addr
	Capture *pcap.Writer  // gets all packets; nil: none
	Quiet   time.Duration // see script.Wire
}

// resolveLimit is how long OpenWire tries to resolve the Ethernet address of the peer.
const resolveLimit = 5 * time.Second

// OpenWire opens the wire to a peer.
func OpenWire(ctx context.Context, c WireConfig) (w *script.Wire, err error) {
	name, own := c.Dev, c.Local
	if c.Link != "udp" {
		name, own, err = machine.InterfaceTo(c.Dev, c.Local, c.Peer)
	} else if !own.IsValid() {
		if own = machine.SourceOf(c.Peer); !own.IsValid() {
			err = fmt.Errorf("no route leads to %v", c.Peer)
		}
	}
	if err != nil {
		return nil, err
	}
	w = &script.Wire{Own: bth.GIDFrom(own), Peer: bth.GIDFrom(c.Peer), Quiet: c.Quiet}
	if c.Link == "udp" {
		w.Port, err = udp.Open(udp.Config{Addr: own})
	} else {
		w.Port, err = openRaw(ctx, w, name, own, c.Peer)
	}
	if err != nil {
		return nil, err
	}
	if c.Capture != nil {
		inner := w.Port
		if w.Port, err = pcap.Wrap(inner, c.Capture, pcap.Options{}); err != nil {
			inner.Close()
			return nil, err
		}
	}
	return w, nil
}

// openRaw opens a packet socket and finds the Ethernet address of the peer.
func openRaw(ctx context.Context, w *script.Wire, name string, own, peer netip.Addr) (link.Port, error) {
	host, err := hostnet.Open(name)
	if err != nil {
		return nil, err
	}
	defer host.Close()
	ctx, stop := context.WithTimeout(ctx, resolveLimit)
	defer stop()
	n, err := host.Resolve(ctx, own, peer)
	if err != nil {
		return nil, fmt.Errorf("finding the Ethernet address for %v: %w", peer, err)
	}
	w.MAC = n.MAC
	return raw.Open(raw.Config{Interface: name})
}

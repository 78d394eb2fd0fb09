package hostilepeer

import (
	"encoding/binary"
	"net/netip"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
)

// mad writes a management datagram to b and returns its length without ICRC.
func (g *generator) mad(b []byte, path *frame.Path) int {
	bth.PutBTH(b, bth.UDSendOnly, bth.MigReq, 0, bth.DefaultPKey, bth.QPNGSI, 1)
	key := bth.QKey(bth.QKeyGSI)
	if g.one(64) {
		key ^= 1 << g.IntN(32)
	}
	bth.PutDETH(b[bth.BTHLen:], key, bth.QPNGSI)
	const head = bth.BTHLen + bth.DETHLen
	mad := (*[cm.MADLen]byte)(b[head:])
	g.message(path).Put(mad)
	if g.one(8) {
		for range 1 + g.IntN(4) {
			mad[g.IntN(len(mad))] = byte(g.Uint32())
		}
	}
	n := head + cm.MADLen
	if g.one(64) {
		n -= 4 * g.IntN(cm.MADLen/4)
	}
	return n
}

// message makes a CM message of any kind. It often uses numbers of the device that the peer
// can know: the identifiers in messages to the peer, the honest connection's queue
// pairs and GUID, and the service.
func (g *generator) message(path *frame.Path) cm.Message {
	id, remote := cm.CommID(1+g.IntN(64)), cm.CommID(g.Uint32())
	g.rig.gate.mu.Lock()
	defer g.rig.gate.mu.Unlock()
	if n := min(g.rig.gate.nheard, len(g.rig.gate.heard)); n > 0 && !g.one(4) {
		if m := g.rig.gate.heard[g.IntN(n)]; len(m) >= 32 {
			remote = cm.CommID(binary.BigEndian.Uint32(m[24:])) // the device's identifier
			if !g.one(4) {
				id = cm.CommID(binary.BigEndian.Uint32(m[28:]))
			}
		}
	}
	q := bth.QPN(0x660000 + g.IntN(64))
	guid := cm.GUID(0x66)
	near, far := g.rig.near.conn.QP().Num(), g.rig.far.conn.QP().Num()
	if g.one(4) { // the honest client's
		q, guid = far, cm.GUID(g.rig.honest.Query().GUID)
	}
	h := cm.Header{TID: g.Uint64()}
	own := path.Config()
	switch g.IntN(12) {
	case 0, 1, 2:
		req := &cm.REQ{Header: h, LocalID: id, LocalGUID: guid, QPN: q, PKey: bth.DefaultPKey, MTU: bth.MTU1024, StartingPSN: bth.PSN(g.IntN(1 << 24)),
			ServiceID: cm.Service(cm.PortSpaceTCP, uint16(7471+g.IntN(2))), LocalResponseTimeout: uint8(g.IntN(32)), MaxCMRetries: uint8(g.IntN(16)),
			ResponderResources: uint8(g.IntN(256)), InitiatorDepth: uint8(g.IntN(256)), RetryCount: 7, RNRRetryCount: 7,
			Primary: cm.Path{LocalGID: own.Src, RemoteGID: own.Dst, HopLimit: 64, AckTimeout: uint8(g.IntN(32))}}
		ip := cm.IPHeader{SrcPort: uint16(g.IntN(1 << 16)), Src: netip.Addr(own.Src.Addr()).Unmap(), Dst: victimAddr}
		ip.Put(req.Private[:])
		if g.one(8) {
			req.Alternate = req.Primary
		}
		return req
	case 3:
		return &cm.REP{Header: h, LocalID: id, RemoteID: remote, QPN: q, LocalGUID: guid}
	case 4, 5:
		return &cm.RTU{Header: h, LocalID: id, RemoteID: remote}
	case 6:
		return &cm.DREQ{Header: h, LocalID: id, RemoteID: remote, RemoteQPN: near}
	case 7:
		return &cm.DREP{Header: h, LocalID: id, RemoteID: remote}
	case 8:
		return &cm.MRA{Header: h, LocalID: id, RemoteID: remote, Of: cm.Subject(g.IntN(4)), ServiceTimeout: uint8(g.IntN(32))}
	case 9:
		return &cm.REJ{Header: h, LocalID: id, RemoteID: remote, Of: cm.Subject(g.IntN(4)), Reason: cm.RejectReason(g.IntN(40))}
	case 10:
		if g.one(2) {
			return &cm.APR{Header: h, LocalID: id, RemoteID: remote, Status: cm.APStatus(g.IntN(16))}
		}
		return &cm.LAP{Header: h, LocalID: id, RemoteID: remote, RemoteQPN: near,
			Alternate: cm.Path{LocalGID: own.Src, RemoteGID: own.Dst, HopLimit: 64, AckTimeout: uint8(g.IntN(32))}}
	}
	if g.one(2) {
		return &cm.SIDRREP{Header: h, RequestID: remote, QPN: q}
	}
	return &cm.SIDRREQ{Header: h, RequestID: id, PKey: bth.DefaultPKey, ServiceID: cm.Service(cm.PortSpaceUDP, uint16(7471+g.IntN(2)))}
}

package verify

import (
	"errors"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/tools/dissect"
)

// malformations maps the errors of parsing to the rules that such a frame breaks.
var malformations = []struct {
	err  error
	rule RuleID
}{
	{bth.ErrShort, headerShort},
	{bth.ErrOpcode, headerOpcode},
	{bth.ErrVersion, headerVersion},
	{bth.ErrPad, headerPad},
	{frame.ErrTruncated, headerUDPLength},
	{frame.ErrUDPLength, headerUDPLength},
	{frame.ErrIPHeader, headerIP},
	{frame.ErrFragment, headerFragment},
	{frame.ErrIPChecksum, headerIPChecksum},
	{frame.ErrUDPChecksum, headerUDPChecksum},
}

// malformed judges a frame that cannot be parsed as a RoCE packet.
func (v *Verifier) malformed(p *packet) {
	for _, m := range malformations {
		if errors.Is(p.Err, m.err) {
			v.find(m.rule, nil, "The frame is no packet: %v.", p.Err)
			return
		}
	}
	v.find(headerShort, nil, "The frame is no packet: %v.", p.Err)
}

// headers judges the headers of a packet without regard to other packets. It returns false if the ICRC is wrong, so that the contents
// are not reliable.
func (v *Verifier) headers(p *packet) bool {
	f := &p.Frame
	if p.Marks.Names() != nil && f.IgnoreUDPChecksum {
		v.find(headerUDPChecksum, nil, "The UDP checksum is wrong, the ICRC is right; a receiver's kernel drops the packet.")
	}
	if !p.Cut && !p.ICRCOK {
		if !p.FlushQuirk {
			v.find(headerICRC, nil, "The ICRC is wrong; a receiver drops the packet.")
			v.happened(f.Dst, wrongICRC)
			return false
		}
		v.explain(headerICRC, &rxeFlush, nil, "The ICRC is that of the headers fed twice.")
	}
	if ip := f.IP; len(ip) == 20 && ip[6]&0x40 == 0 {
		v.find(headerDontFrag, nil, "The IPv4 header allows fragments.")
	}
	v.flags(p)
	v.reserved(p)
	v.addressee(p)
	v.lengths(p)
	return true
}

// flags judges the flags of the BTH. It does not judge CNPs, which have their own rule.
func (v *Verifier) flags(p *packet) {
	f := &p.Frame
	if f.Op == bth.CNP {
		return
	}
	fl := f.Info.Flags
	if f.Solicited() && (fl&bth.Request == 0 || fl&bth.Last == 0 || fl&(bth.Send|bth.Imm) == 0) {
		v.find(headerSolicited, nil, "%s has the solicited event bit set.", f.Info.Name)
	}
	if f.AckReq() {
		switch t := f.Op.Transport(); {
		case fl&bth.Response != 0:
			v.find(headerAckReq, nil, "The response %s asks for an acknowledgement.", f.Info.Name)
		case t == bth.UD && f.DestQPN() == bth.QPNGSI:
			v.explain(headerAckReq, &rxeGSIAck, nil, "A management datagram asks for an acknowledgement.")
		case t == bth.UD || t == bth.UC:
			v.find(headerAckReq, nil, "%s asks for an acknowledgement, which the service does not have.", f.Info.Name)
		}
	}
	if f.PKey()&0x7FFF == 0 {
		v.find(headerPKey, nil, "The P_Key %#04x is none of a partition.", uint16(f.PKey()))
	}
}

// reservedExtended returns the name of the first extended header in which reserved bits are set, "" if there is none. It does not check
// packets with an RDETH or DCETH.
func reservedExtended(f *frame.Packet) string {
	d, h := f.Data, f.Info.Headers
	if h&(bth.HasRDETH|bth.HasDCETH) != 0 {
		return ""
	}
	at := bth.BTHLen
	for _, r := range []struct {
		header bth.HeaderSet
		name   string
		length int
		offset int
		mask   byte
	}{
		{bth.HasDETH, "DETH", bth.DETHLen, 4, 0xFF},
		{bth.HasXRCETH, "XRCETH", bth.XRCETHLen, 0, 0xFF},
		{bth.HasFETH, "FETH", bth.FETHLen, 0, 0xFF},
		{bth.HasAETH, "AETH", bth.AETHLen, 0, 0x80},
	} {
		if h&r.header == 0 {
			continue
		}
		if d[at+r.offset]&r.mask != 0 {
			return r.name
		}
		at += r.length
	}
	return ""
}

func (v *Verifier) reserved(p *packet) {
	f := &p.Frame
	if f.Op == bth.CNP {
		return
	}
	if f.Data[4] != 0 || f.Data[8]&0x7F != 0 {
		v.find(headerReserved, nil, "Bits of the BTH that are reserved, FECN or BECN are set: bytes 4 and 8 are %#02x and %#02x.", f.Data[4], f.Data[8])
	}
	if name := reservedExtended(f); name != "" {
		v.find(headerExtended, nil, "Reserved bits of the %s are set.", name)
	}
	if p.Cut {
		return
	}
	end := len(f.Data) - bth.ICRCLen
	for _, b := range f.Data[end-f.Pad() : end] {
		if b != 0 {
			v.find(headerPadBytes, nil, "A pad byte is %#02x.", b)
			break
		}
	}
}

// addressee judges the destination queue pair and, for QP 1, the Q_Key.
func (v *Verifier) addressee(p *packet) {
	f := &p.Frame
	group := f.Dst.IsMulticast()
	datagram := f.Op.Transport() == bth.UD
	switch q := f.DestQPN(); {
	case q == 0:
		v.find(headerDestQP, nil, "Queue pair 0 does not exist with RoCE.")
	case group != (q == bth.QPNMulticast):
		v.find(headerDestQP, nil, "The address %s and queue pair %v do not fit each other.", f.Dst.Addr(), q)
	case q == bth.QPNGSI && !datagram:
		v.find(headerDestQP, nil, "%s is for queue pair 1, which takes datagrams only.", f.Info.Name)
	case q == bth.QPNGSI && f.QKey() != bth.QKeyGSI:
		v.find(headerGSIKey, nil, "The Q_Key is %#x.", uint32(f.QKey()))
	}
}

// maxMessage is the length of the longest message.
const maxMessage = 1 << 31

// lengths judges the lengths of a packet without regard to other packets.
func (v *Verifier) lengths(p *packet) {
	f := &p.Frame
	fl, n := f.Info.Flags, f.PayloadLen()
	largest := bth.MTU4096.Bytes()
	switch {
	case fl&bth.Payload == 0:
		if n > 0 {
			v.find(lengthNone, nil, "%s carries %d bytes.", f.Info.Name, n)
		}
	case fl&bth.AtomicWrite != 0:
		if n != 8 || f.DMALen() != 8 {
			v.find(lengthAtomicWrite, nil, "%s carries %d bytes, and its RETH says %d.", f.Info.Name, n, f.DMALen())
		}
	case fl&bth.Last == 0:
		if dissect.MTUOf(n) == 0 {
			v.find(lengthMTU, nil, "%s carries %d bytes, which is no path MTU.", f.Info.Name, n)
		}
	case n > largest:
		v.find(lengthLast, nil, "%s carries %d bytes, more than the largest path MTU.", f.Info.Name, n)
	case fl&bth.First == 0 && n == 0:
		v.find(lengthLast, nil, "%s carries nothing.", f.Info.Name)
	}
	if f.Info.Headers&bth.HasRETH != 0 && f.DMALen() > maxMessage {
		v.find(lengthMax, nil, "The RETH says %d bytes.", f.DMALen())
	}
}

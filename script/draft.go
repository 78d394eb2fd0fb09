package script

import (
	"encoding/hex"
	"fmt"

	"github.com/goroce/roce/bth"
)

// packet is a packet that is ready to be sent.
type packet struct {
	body     []byte // BTH to pad
	op       bth.Opcode
	mad      bool
	noICRC   bool // the wire appends no ICRC
	badICRC  bool
	badSum   bool // the UDP checksum is wrong
	from     Origin
	src, dst *byte  // last byte of another address; nil: the address is as usual
	sport    uint16 // 0: the port is as usual
	ttl      *uint8 // nil: the TTL is as usual
	tos      uint8
}

// needsRaw reports whether the packet has fields in the headers of IP and UDP that only a driver with full access to the headers can send.
func (p *packet) needsRaw() bool {
	return p.badSum || p.from != FromPeer || p.src != nil || p.dst != nil || p.sport != 0 || p.ttl != nil
}

// trailer is how many bytes the wire adds to the body.
func (p *packet) trailer() int {
	if p.noICRC {
		return 0
	}
	return bth.ICRCLen
}

// draft is a packet whose fields are being filled in.
type draft struct {
	packet
	f        bth.Fields
	pad      int
	padSet   bool
	padBytes int

	padBytesSet bool
	tver        byte
	reserved    bool
	va          uint64
	rkey        bth.RKey
	dmalen      uint32
	dmalenSet   bool
	swap        uint64
	compare     uint64
	aeth        bth.AETHFields
	value       uint64
	imm         uint32
	inv         bth.RKey
	deth        bth.DETHFields
	srqn        bth.SRQN
	feth        bth.FETHFields
	payload     []byte
	ext         []byte // extended headers that replace those of the opcode
	extSet      bool
	cut         int
	cutSet      bool
}

// pattern appends n bytes of the pattern to the payload.
func (d *draft) pattern(n int) {
	for i := range n {
		d.payload = append(d.payload, byte(0xA0+i))
	}
}

// word sets a field whose value is not a number. known is false if t is another field.
func (d *draft) word(t *token) (known bool, err error) {
	switch t.key {
	case "icrc", "udpsum":
		if t.text != "bad" && t.text != "ok" {
			return true, errAt(t.at, "%s is ok or bad, not %q", t.key, t.text)
		}
		if t.key == "icrc" {
			d.badICRC = t.text == "bad"
		} else {
			d.badSum = t.text == "bad"
		}
	case "ext", "hex":
		b, err := parseHex(t)
		if err != nil {
			return true, err
		}
		if t.key == "ext" {
			d.ext, d.extSet = b, true
		} else {
			d.payload = append(d.payload, b...)
		}
	case "text":
		d.payload = append(d.payload, t.text...)
	default:
		return false, nil
	}
	return true, nil
}

// wordKeys are the fields that word sets.
var wordKeys = map[string]string{
	"icrc": "ok or bad", "udpsum": "UDP checksum: ok (none) or bad", "ext": "extended headers in hexadecimal instead of the opcode's; \"\" for none",
	"hex": "payload in hexadecimal", "text": "payload as text",
}

func parseHex(t *token) ([]byte, error) {
	b, err := hex.DecodeString(t.text)
	if err != nil {
		return nil, errAt(t.at, "%q is not hexadecimal", t.text)
	}
	if len(b) > maxPayload {
		return nil, errAt(t.at, "%d bytes, at most %d", len(b), maxPayload)
	}
	return b, nil
}

// build encodes the packet.
func (d *draft) build() (*packet, error) {
	if len(d.payload) > maxPayload {
		return nil, fmt.Errorf("%d bytes of payload, at most %d", len(d.payload), maxPayload)
	}
	f := &d.f
	f.BTH.Op = d.op
	if !d.dmalenSet {
		d.dmalen = uint32(len(d.payload))
	}
	f.DETH, f.XRCETH, f.FETH = &d.deth, &bth.XRCETHFields{SRQN: d.srqn}, &d.feth
	f.RETH = &bth.RETHFields{VA: d.va, RKey: d.rkey, DMALen: d.dmalen}
	f.AtomicETH = &bth.AtomicETHFields{VA: d.va, RKey: d.rkey, Swap: d.swap, Compare: d.compare}
	f.AETH, f.AtomicAckETH, f.Imm, f.IETH = &d.aeth, &bth.AtomicAckETHFields{Value: d.value}, &d.imm, &d.inv
	var b []byte
	if d.op.Known() && !d.extSet {
		b = f.Append(nil)
	} else {
		b = make([]byte, bth.BTHLen)
		bth.PutBTH(b, d.op, f.BTH.Flags, 0, f.BTH.PKey, f.BTH.DestQPN, f.BTH.PSN)
		b = append(b, d.ext...)
	}
	pad := bth.Pad(len(d.payload))
	if d.padSet {
		pad = d.pad
	}
	b[1] |= byte(pad)<<4 | d.tver
	if d.reserved {
		b[4] |= 0x3F
		b[8] |= 0x7F
	}
	if d.padBytesSet {
		pad = d.padBytes
	}
	b = append(b, d.payload...)
	b = append(b, make([]byte, pad)...)
	if d.cutSet {
		b = b[:min(d.cut, len(b))]
	}
	d.body = b
	return &d.packet, nil
}

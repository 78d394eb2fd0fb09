package frame

// Flows is a cache of the flows of whole frames. The headers of most frames differ from those of
// an earlier frame only in lengths, IPv4 Identification and checksum. For such a frame the
// result of [Packet.Parse] is known already: it is a datagram of the [Envelope] of that
// flow. The zero value is empty.
type Flows struct {
	known  [flowSlots]flow
	batch  uint64
	missed uint16 // source port of the last frame that matched no flow
	packet Packet // scratch space
}

// flowSlots is how many flows are cached, by the last bits of the source port.
const flowSlots = 64

// flow has the headers that its frames begin with.
type flow struct {
	used  uint64   // batch in which the envelope was last returned
	form  *form    // nil: none
	words words    // without the fields that vary
	sum   uint32   // of the IPv4 header, without the fields that vary
	env   Envelope // ID is zero: the number of a datagram is its identification, or 0 over IPv6
}

// NextBatch begins a batch: envelopes that Match returned before must not be used any more.
func (f *Flows) NextBatch() { f.batch++ }

// Match returns the envelope of the flow of a frame, the number i of the frame as a datagram of
// that envelope, and its body, BTH to ICRC. [Packet.ParseBody] with these results sets the same
// fields as Parse of the frame, except Packet.IP. The envelope is valid until NextBatch. Match
// returns a nil envelope if it does not know the flow, and always with [LayoutUDP], which has no
// headers; the caller then uses Parse.
func (f *Flows) Match(b []byte, l Layout) (env *Envelope, i uint16, body []byte) {
	form := formOf(&forms, b, l)
	if form == nil {
		return nil, 0, nil
	}
	port := be.Uint16(b[form.udp():])
	fl := &f.known[port%flowSlots]
	if i, body = fl.match(form, b); body == nil {
		// A flow is cached from its second frame in a row on: more are likely to follow.
		again := f.missed == port
		f.missed = port
		taken := fl.form != nil && fl.used == f.batch
		if p := &f.packet; !again || taken || p.Parse(b, l) != nil || !fl.learn(p, form, b) {
			return nil, 0, nil
		}
		if i, body = fl.match(form, b); body == nil {
			return nil, 0, nil
		}
	}
	fl.used = f.batch
	return &fl.env, i, body
}

// match returns the parts of a frame if it is of the flow; otherwise the body is nil.
func (fl *flow) match(form *form, b []byte) (i uint16, body []byte) {
	if fl.form != form || form.differs(b, &fl.words) {
		return 0, nil
	}
	headers := b[form.ip:form.n]
	var length uint16
	if form.v6 {
		h := (*[ipv6Len + udpLen]byte)(headers)
		length = be.Uint16(h[ipv6Len+4:])
		if be.Uint16(h[4:]) != length {
			return 0, nil
		}
	} else {
		h := (*[ipv4Len + udpLen]byte)(headers)
		length = be.Uint16(h[ipv4Len+4:])
		total, sum := be.Uint16(h[2:]), be.Uint16(h[10:])
		i = be.Uint16(h[4:])
		if int(total) != ipv4Len+int(length) || Fold16(fl.sum+uint32(total)+uint32(i)+uint32(sum)) != 0xFFFF {
			return 0, nil
		}
	}
	n := int(length) - udpLen
	body = b[form.n:]
	if n < 0 || n > len(body) {
		return 0, nil
	}
	return i, body[:n:n]
}

// learn makes fl the flow of the packet p in frame b. It returns false if Match cannot support the
// flow: its frames must have no UDP checksum, and DF set, as [Envelope.Seal] assumes.
func (fl *flow) learn(p *Packet, form *form, b []byte) bool {
	if p.UDPChecksum != 0 || !form.v6 && be.Uint16(p.IP[6:]) != dontFragment {
		return false
	}
	fl.set(form, b)
	fl.env = Envelope{Src: p.Src, Dst: p.Dst, SrcPort: p.SrcPort, TrafficClass: p.TrafficClass, HopLimit: p.HopLimit,
		SrcMAC: p.SrcMAC, DstMAC: p.DstMAC, VLAN: p.VLAN, IDSeen: true}
	if form.v6 {
		fl.env.FlowLabel = be.Uint32(p.IP) & maxFlowLabel
	}
	fl.env.Seal()
	return true
}

// set makes fl the flow of frames with the headers of frame b.
func (fl *flow) set(form *form, b []byte) {
	*fl = flow{form: form, words: form.fixed(b)}
	if ip := b[form.ip:]; !form.v6 {
		fl.sum = Sum16(ip[:2]) + Sum16(ip[6:10]) + Sum16(ip[12:ipv4Len])
	}
}

// SuperFlow is the flow of the last super-packet: the headers of the next one mostly differ only in lengths, IPv4
// Identification and checksums. The zero value knows no flow.
type SuperFlow struct{ flow flow }

// Match fills in the envelope of a super-packet that begins with an Ethernet header at b[0:], and returns the size of its
// headers and what is behind them. The body is nil if the super-packet is of another flow, has no body or wrong lengths, or a
// wrong IPv4 checksum. The UDP checksum may be a partial sum, and does not matter.
func (f *SuperFlow) Match(env *Envelope, b []byte) (header int, body []byte) {
	form := formOf(&superForms, b, LayoutEthernet)
	if form == nil {
		return 0, nil
	}
	id, body := f.flow.match(form, b)
	if len(body) == 0 {
		return 0, nil
	}
	*env = f.flow.env
	env.ID = id
	return form.n, body
}

// Learn makes the flow of a super-packet the known one. The caller has checked its headers, which have header bytes, and
// made env from them.
func (f *SuperFlow) Learn(env *Envelope, header int, b []byte) {
	if form := formOf(&superForms, b, LayoutEthernet); form != nil && form.n == header {
		f.flow.set(form, b)
		f.flow.env = *env
	}
}

// form describes the headers of a frame: their lengths, and the fields that vary.
type form struct {
	ip, n int  // bytes before the IP header, and of all headers
	v6    bool // IPv6
	masks words
}

// words are headers, eight bytes each; the last are the last eight, which may overlap.
type words [(MaxHeaderLen + 7) / 8]uint64

const lastWord = len(words{}) - 1

func wordsOf(headers []byte) (w words) {
	for i := range len(headers) / 8 {
		w[i] = le.Uint64(headers[8*i:])
	}
	w[lastWord] = le.Uint64(headers[len(headers)-8:])
	return w
}

func (f *form) udp() int { return f.n - udpLen }

// The forms, by the header before the IP header (none, Ethernet, Ethernet with a tag) and by the IP
// version.
var (
	forms      = newForms(false)
	superForms = newForms(true) // of super-packets
)

func newForms(super bool) (f [3][2]form) {
	for i, ip := range []int{0, ethernetLen, ethernetLen + vlanLen} {
		f[i] = [2]form{newForm(ip, false, super), newForm(ip, true, super)}
	}
	return f
}

func newForm(ip int, v6, super bool) form {
	f := form{ip: ip, v6: v6, n: ip + ipv4Len + udpLen}
	varies := []int{2, 3, 4, 5, 10, 11, ipv4Len + 4, ipv4Len + 5} // lengths, identification, checksum
	if v6 {
		f.n = ip + ipv6Len + udpLen
		varies = []int{4, 5, ipv6Len + 4, ipv6Len + 5} // lengths
	}
	if super {
		varies = append(varies, f.n-ip-2, f.n-ip-1) // UDP checksum
	}
	var b [MaxHeaderLen]byte
	for i := range b {
		b[i] = 0xFF
	}
	for _, i := range varies {
		b[ip+i] = 0
	}
	f.masks = wordsOf(b[:f.n])
	return f
}

// formOf returns the form of a frame; nil if it is too short for one.
func formOf(forms *[3][2]form, b []byte, l Layout) *form {
	kind := 0
	switch {
	case len(b) < ethernetLen+vlanLen+udpLen || l == LayoutUDP:
		return nil
	case l == LayoutEthernet:
		kind = 1
		if be.Uint16(b[12:]) == etherVLAN {
			kind = 2
		}
	}
	f := &forms[kind][0]
	if b[f.ip]>>4 == 6 {
		f = &forms[kind][1]
	}
	if len(b) < f.n {
		return nil
	}
	return f
}

// fixed returns the headers of frame b without the fields that vary.
func (f *form) fixed(b []byte) words {
	w := wordsOf(b[:f.n])
	for i := range w {
		w[i] &= f.masks[i]
	}
	return w
}

// differs reports whether the fixed parts of the headers of frame b differ from w.
func (f *form) differs(b []byte, w *words) bool {
	b = b[:f.n]
	d := le.Uint64(b[len(b)-8:])&f.masks[lastWord] ^ w[lastWord]
	for i := 0; i < len(w) && len(b) >= 8; i++ {
		d |= le.Uint64(b)&f.masks[i] ^ w[i]
		b = b[8:]
	}
	return d != 0
}

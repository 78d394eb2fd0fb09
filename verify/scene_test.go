package verify

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/cm"
	"github.com/goroce/roce/link/pcap"
)

// The two ends of a scene. The active one sends most requests.
const (
	active = iota
	passive
)

// step is a packet of a scene.
type step struct {
	name  string
	from  int
	at    time.Duration
	lost  bool // it is sent and does not arrive
	ce    bool // it arrives with a congestion mark
	quirk bool // its ICRC is that of rxe for a FLUSH
	id    uint16
	f     bth.Fields

	path *frame.Path // nil: the path of its sender

	bits func([]byte)        // changes BTH to pad, before the ICRC is computed
	wire func([]byte) []byte // changes the frame
}

// scene is a dialogue of two ends. It breaks no rule until a test changes it.
type scene struct {
	t     testing.TB
	now   time.Duration
	steps []*step
	paths [2]*frame.Path
}

var addresses = [2]bth.GID{bth.GIDFrom(netip.MustParseAddr("10.0.0.1")), bth.GIDFrom(netip.MustParseAddr("10.0.0.2"))}

// numbers has the queue pair numbers of the ends, and start the first PSN of their requests.
var (
	numbers = [2]bth.QPN{0x11, 0x22}
	start   = [2]bth.PSN{0xFFFFF0, 0x100}
)

const mtu = 1024

func emptyScene(t testing.TB) *scene {
	s := &scene{t: t}
	for i := range s.paths {
		p, err := frame.NewPath(frame.PathConfig{Src: addresses[i], Dst: addresses[1-i], SrcMAC: frame.MAC{2, 0, 0, 0, 0, byte(i)}, DstMAC: frame.MAC{2, 0, 0, 0, 0, byte(1 - i)}, SrcPort: 0xC123})
		if err != nil {
			t.Fatal(err)
		}
		s.paths[i] = p
	}
	return s
}

// wait lets time pass.
func (s *scene) wait(d time.Duration) { s.now += d }

// add adds a packet, 20 µs after the one before.
func (s *scene) add(name string, from int, f bth.Fields) *step {
	s.now += 20 * time.Microsecond
	f.BTH.PKey = bth.DefaultPKey
	f.BTH.Flags |= bth.MigReq
	if f.BTH.DestQPN == 0 {
		f.BTH.DestQPN = numbers[1-from]
	}
	p := &step{name: name, from: from, at: s.now, f: f}
	s.steps = append(s.steps, p)
	return p
}

// request adds a request of an end, whose PSN is n after its first.
func (s *scene) request(name string, from, n int, op bth.Opcode, f bth.Fields) *step {
	f.BTH.Op, f.BTH.PSN = op, start[from].Add(n)
	if fl := op.Info().Flags; fl&bth.Last != 0 && op.Transport() == bth.RC {
		f.BTH.Flags |= bth.AckReq
	}
	return s.add(name, from, f)
}

// response adds a response to a request of the other end.
func (s *scene) response(name string, from, n int, op bth.Opcode, syndrome bth.Syndrome, msn int, f bth.Fields) *step {
	f.BTH.Op, f.BTH.PSN = op, start[1-from].Add(n)
	f.AETH = &bth.AETHFields{Syndrome: syndrome, MSN: bth.MSN(msn)}
	return s.add(name, from, f)
}

// ack adds an ACKNOWLEDGE to the requests of the active end.
func (s *scene) ack(name string, n int, syndrome bth.Syndrome, msn int) *step {
	return s.response(name, passive, n, bth.RCAck, syndrome, msn, bth.Fields{})
}

// datagram adds a message of the connection manager.
func (s *scene) datagram(name string, from int, m cm.Message) *step {
	var mad [cm.MADLen]byte
	m.Put(&mad)
	return s.add(name, from, bth.Fields{BTH: bth.BTHFields{Op: bth.UDSendOnly, DestQPN: bth.QPNGSI}, DETH: &bth.DETHFields{QKey: bth.QKeyGSI, SrcQPN: bth.QPNGSI}, Payload: mad[:]})
}

// step returns the packet with a name.
func (s *scene) step(name string) *step {
	i := s.index(name)
	return s.steps[i]
}

func (s *scene) index(name string) int {
	i := slices.IndexFunc(s.steps, func(p *step) bool { return p.name == name })
	if i < 0 {
		s.t.Fatalf("the scene has no packet %q", name)
	}
	return i
}

// drop removes packets.
func (s *scene) drop(names ...string) {
	for _, n := range names {
		i := s.index(n)
		s.steps = slices.Delete(s.steps, i, i+1)
	}
}

// until removes all packets behind the one with this name.
func (s *scene) until(name string) { s.steps = s.steps[:s.index(name)+1] }

// again adds a copy of the packet name at time d after the packet after.
func (s *scene) again(name, after string, d time.Duration) *step {
	p := *s.step(name)
	p.name = name + "-copy"
	i := s.index(after)
	p.at = s.steps[i].at + d
	for i+1 < len(s.steps) && s.steps[i+1].at <= p.at {
		i++
	}
	s.steps = slices.Insert(s.steps, i+1, &p)
	return &p
}

// retries sets the retry count of the connection.
func (s *scene) retries(n uint8) {
	for _, name := range []string{"req", "req-again"} {
		message(s, name, func(m *cm.REQ) { m.RetryCount = n })
	}
}

// depth sets how many READs the passive end grants.
func (s *scene) depth(n uint8) {
	message(s, "rep", func(m *cm.REP) { m.ResponderResources = n })
}

// every changes all packets of an end.
func (s *scene) every(from int, f func(*step)) {
	for _, p := range s.steps {
		if p.from == from {
			f(p)
		}
	}
}

// frame builds the frame of a packet as it is captured at an end.
func (s *scene) frame(p *step, at int) []byte {
	path := s.paths[p.from]
	if p.path != nil {
		path = p.path
	}
	if p.ce && at != p.from {
		path = path.WithTrafficClass(3)
	} else if p.ce {
		path = path.WithTrafficClass(2)
	}
	body := p.f.Append(nil)
	if p.bits != nil {
		p.bits(body)
	}
	n := len(body) + bth.ICRCLen
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	room, crc := path.Put(b, frame.LayoutEthernet, n, p.id)
	copy(room, body)
	crc = crc.UpdateBTH(room).Update(room[bth.BTHLen:len(body)])
	if p.quirk {
		crc = crc.UpdateFlushQuirk(body)
	}
	bth.PutICRC(room[len(body):], crc)
	if p.wire != nil {
		b = p.wire(b)
	}
	return b
}

// capture returns the scene as a file, captured at an end.
func (s *scene) capture(at int) []byte {
	var b bytes.Buffer
	w := pcap.NewWriter(&b, pcap.NG, 0)
	if _, err := w.AddInterface(pcap.Interface{Name: "test", LinkType: pcap.Ethernet}); err != nil {
		s.t.Fatal(err)
	}
	slices.SortStableFunc(s.steps, func(a, b *step) int { return int(a.at - b.at) })
	var ids [2]uint16
	for _, p := range s.steps {
		ids[p.from]++
		p.id = 1000 + ids[p.from]
		if p.lost && p.from != at {
			continue
		}
		rec := pcap.Record{Time: time.Unix(1000, 0).Add(p.at), Data: s.frame(p, at), LinkType: pcap.Ethernet, Direction: pcap.In}
		if p.from == at {
			rec.Direction = pcap.Out
		}
		if err := w.Write(&rec); err != nil {
			s.t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		s.t.Fatal(err)
	}
	return b.Bytes()
}

// judge judges the scene, captured at an end.
func (s *scene) judge(at int, cfg Config) *Report {
	s.t.Helper()
	cfg.Directions = true
	r, err := Read(bytes.NewReader(s.capture(at)), cfg)
	if err != nil {
		s.t.Fatal(err)
	}
	return r
}

func bytesOf(n int) []byte { return bytes.Repeat([]byte{0x5A}, n) }

func reth(va uint64, n int) *bth.RETHFields {
	return &bth.RETHFields{VA: va, RKey: 0x4411, DMALen: uint32(n)}
}

// The codes of the handshake.
const (
	ackTimeout = 14 // 67 ms
	rnrCode    = 20 // 10.24 ms
)

// rightScene returns a scene with all kinds of packets and events that breaks no rule.
func rightScene(t testing.TB) *scene {
	s := emptyScene(t)
	s.handshake()
	s.messages()
	s.losses()
	s.readsAgain()
	s.others()
	s.farewell()
	return s
}

// connect returns a REQ of the active end.
func (s *scene) connect(tid uint64, id cm.CommID, qpn bth.QPN) *cm.REQ {
	req := &cm.REQ{Header: cm.Header{TID: tid}, LocalID: id, LocalGUID: guid, ServiceID: cm.Service(cm.PortSpaceTCP, 7174), QPN: qpn,
		ResponderResources: 4, InitiatorDepth: 4, StartingPSN: start[passive], RemoteResponseTimeout: 20, LocalResponseTimeout: 20,
		MaxCMRetries: 2, RetryCount: 2, RNRRetryCount: 7, PKey: bth.DefaultPKey, MTU: bth.MTU1024,
		Primary: cm.Path{LocalGID: addresses[active], RemoteGID: addresses[passive], AckTimeout: ackTimeout}}
	h := cm.IPHeader{SrcPort: 4000, Src: addresses[active].Addr(), Dst: addresses[passive].Addr()}
	if err := h.Put(req.Private[:]); err != nil {
		s.t.Fatal(err)
	}
	return req
}

// guid is that of the active end.
const guid cm.GUID = 0x505400FFFE00000B

func (s *scene) handshake() {
	req := s.connect(77, 0xA1, numbers[active])
	s.datagram("req", active, req)
	s.wait(5 * time.Second)
	s.datagram("req-again", active, req)
	s.datagram("rep", passive, &cm.REP{Header: cm.Header{TID: 77}, LocalID: 0xB1, RemoteID: 0xA1, QPN: numbers[passive],
		StartingPSN: start[active], ResponderResources: 4, InitiatorDepth: 4, TargetAckDelay: 3})
	s.datagram("rtu", active, &cm.RTU{Header: cm.Header{TID: 77}, LocalID: 0xA1, RemoteID: 0xB1})
}

// messages adds a message of each kind.
func (s *scene) messages() {
	s.request("send-first", active, 0, bth.RCSendFirst, bth.Fields{Payload: bytesOf(mtu)})
	s.request("send-middle", active, 1, bth.RCSendMiddle, bth.Fields{Payload: bytesOf(mtu)})
	s.request("send-last", active, 2, bth.RCSendLast, bth.Fields{Payload: bytesOf(99)})
	s.ack("send-ack", 2, bth.AckNoCredits, 1)
	s.request("write-first", active, 3, bth.RCWriteFirst, bth.Fields{RETH: reth(0x10000, 1500), Payload: bytesOf(mtu)})
	s.request("write-last", active, 4, bth.RCWriteLast, bth.Fields{Payload: bytesOf(476)})
	s.ack("write-ack", 4, bth.AckNoCredits, 2)
	s.request("read", active, 5, bth.RCReadRequest, bth.Fields{RETH: reth(0x20000, 2500)})
	s.response("read-1", passive, 5, bth.RCReadResponseFirst, bth.AckNoCredits, 3, bth.Fields{Payload: bytesOf(mtu)})
	s.response("read-2", passive, 6, bth.RCReadResponseMiddle, bth.AckNoCredits, 3, bth.Fields{Payload: bytesOf(mtu)})
	s.response("read-3", passive, 7, bth.RCReadResponseLast, bth.AckNoCredits, 3, bth.Fields{Payload: bytesOf(452)})
	s.atomic("add-1", 8)
	s.atomicAck("add-1-ack", 8, 4, 10)
	s.atomic("add-2", 9)
	s.atomicAck("add-2-ack", 9, 5, 11)
}

func (s *scene) atomic(name string, n int) {
	s.request(name, active, n, bth.RCFetchAdd, bth.Fields{AtomicETH: &bth.AtomicETHFields{VA: 0x1000, RKey: 0x4411, Swap: 1}})
}

func (s *scene) atomicAck(name string, n, msn int, value uint64) *step {
	return s.response(name, passive, n, bth.RCAtomicAck, bth.AckNoCredits, msn, bth.Fields{AtomicAckETH: &bth.AtomicAckETHFields{Value: value}})
}

// losses adds a NAK, an RNR NAK, a timeout, and an atomic whose response is lost.
func (s *scene) losses() {
	s.request("lost", active, 10, bth.RCSendOnly, bth.Fields{Payload: bytesOf(8)}).lost = true
	s.request("behind", active, 11, bth.RCSendOnly, bth.Fields{Payload: bytesOf(12)})
	s.request("behind-2", active, 12, bth.RCSendOnly, bth.Fields{Payload: bytesOf(16)})
	s.ack("nak", 10, bth.NAKSequence, 5)
	s.request("lost-again", active, 10, bth.RCSendOnly, bth.Fields{Payload: bytesOf(8)})
	s.request("behind-again", active, 11, bth.RCSendOnly, bth.Fields{Payload: bytesOf(12)})
	s.request("behind-2-again", active, 12, bth.RCSendOnly, bth.Fields{Payload: bytesOf(16)})
	s.ack("recovered", 12, bth.AckNoCredits, 8)

	s.request("unready", active, 13, bth.RCSendOnly, bth.Fields{Payload: bytesOf(20)})
	s.ack("rnr", 13, bth.RNR(rnrCode), 8)
	s.wait(11 * time.Millisecond)
	s.request("unready-again", active, 13, bth.RCSendOnly, bth.Fields{Payload: bytesOf(20)})
	s.ack("ready", 13, bth.AckNoCredits, 9)

	s.request("silent", active, 14, bth.RCSendOnly, bth.Fields{Payload: bytesOf(24)}).lost = true
	s.wait(150 * time.Millisecond)
	s.request("silent-again", active, 14, bth.RCSendOnly, bth.Fields{Payload: bytesOf(24)})
	s.ack("heard", 14, bth.AckNoCredits, 10)

	s.atomic("add-3", 15)
	s.atomicAck("add-3-ack", 15, 11, 12).lost = true
	s.wait(150 * time.Millisecond)
	s.atomic("add-3-again", 15)
	s.atomicAck("add-3-ack-again", 15, 11, 12)
	s.atomic("add-4", 16)
	s.atomicAck("add-4-ack", 16, 12, 13)
}

// readsAgain adds a READ that loses a response.
func (s *scene) readsAgain() {
	s.request("read2", active, 17, bth.RCReadRequest, bth.Fields{RETH: reth(0x30000, 3000)})
	s.response("read2-1", passive, 17, bth.RCReadResponseFirst, bth.AckNoCredits, 13, bth.Fields{Payload: bytesOf(mtu)})
	s.response("read2-2", passive, 18, bth.RCReadResponseMiddle, bth.AckNoCredits, 13, bth.Fields{Payload: bytesOf(mtu)}).lost = true
	s.response("read2-3", passive, 19, bth.RCReadResponseLast, bth.AckNoCredits, 13, bth.Fields{Payload: bytesOf(952)})
	s.request("read2-again", active, 18, bth.RCReadRequest, bth.Fields{RETH: reth(0x30000+mtu, 1976)})
	s.response("read2-2-again", passive, 18, bth.RCReadResponseFirst, bth.AckNoCredits, 13, bth.Fields{Payload: bytesOf(mtu)})
	s.response("read2-3-again", passive, 19, bth.RCReadResponseLast, bth.AckNoCredits, 13, bth.Fields{Payload: bytesOf(952)})
}

// others adds an ATOMIC WRITE, a request of the passive end, congestion marks, and packets of UC and UD.
func (s *scene) others() {
	s.request("awrite", active, 20, bth.RCAtomicWrite, bth.Fields{RETH: reth(0x40000, 8), Payload: bytesOf(8)})
	s.response("awrite-ack", passive, 20, bth.RCReadResponseOnly, bth.AckNoCredits, 14, bth.Fields{})
	s.request("reply", passive, 0, bth.RCSendOnly, bth.Fields{Payload: bytesOf(9)})
	s.response("reply-ack", active, 0, bth.RCAck, bth.AckNoCredits, 1, bth.Fields{})
	for i, name := range []string{"marked", "marked-2"} {
		s.request(name, active, 21+i, bth.RCSendOnly, bth.Fields{Payload: bytesOf(4)}).ce = true
		s.add([]string{"cnp", "cnp-2"}[i], passive, bth.Fields{BTH: bth.BTHFields{Op: bth.CNP, Flags: bth.BECN}})
		s.ack([]string{"marked-ack", "marked-2-ack"}[i], 21+i, bth.AckNoCredits, 15+i)
		s.wait(time.Millisecond)
	}
	for i, name := range []string{"uc-1", "uc-2", "uc-3"} {
		s.request(name, active, i, bth.UCSendOnly, bth.Fields{BTH: bth.BTHFields{DestQPN: 0x40}, Payload: bytesOf(5)})
	}
	s.add("ud", active, bth.Fields{BTH: bth.BTHFields{Op: bth.UDSendOnly, DestQPN: 0x30}, DETH: &bth.DETHFields{QKey: 1, SrcQPN: 0x31}, Payload: bytesOf(5)})
}

// otherPath is an alternate path of the active end.
func otherPath() cm.Path {
	return cm.Path{LocalGID: bth.GIDFrom(netip.MustParseAddr("10.0.1.1")), RemoteGID: bth.GIDFrom(netip.MustParseAddr("10.0.1.2")), HopLimit: 64, AckTimeout: ackTimeout}
}

func (s *scene) farewell() {
	s.datagram("lap", active, &cm.LAP{Header: cm.Header{TID: 90}, LocalID: 0xA1, RemoteID: 0xB1, RemoteQPN: numbers[passive], RemoteResponseTimeout: 20, Alternate: otherPath()})
	s.datagram("lap-mra", passive, &cm.MRA{Header: cm.Header{TID: 90}, LocalID: 0xB1, RemoteID: 0xA1, Of: cm.OfOther, ServiceTimeout: 21})
	s.wait(6 * time.Second)
	s.datagram("apr", passive, &cm.APR{Header: cm.Header{TID: 90}, LocalID: 0xB1, RemoteID: 0xA1})
	s.datagram("dreq", active, &cm.DREQ{Header: cm.Header{TID: 78}, LocalID: 0xA1, RemoteID: 0xB1, RemoteQPN: numbers[passive]})
	s.datagram("drep", passive, &cm.DREP{Header: cm.Header{TID: 78}, LocalID: 0xB1, RemoteID: 0xA1})
	s.refusals()
}

// refusals adds a REQ that is rejected after an MRA, a REP that is rejected, a REQ without an answer, and a SIDR_REQ with its answer.
func (s *scene) refusals() {
	s.datagram("req2", active, s.connect(79, 0xA3, 0x33))
	s.datagram("mra2", passive, &cm.MRA{Header: cm.Header{TID: 79}, LocalID: 0xB3, RemoteID: 0xA3, Of: cm.OfREQ, ServiceTimeout: 21})
	s.wait(5 * time.Second)
	s.datagram("rej2", passive, &cm.REJ{Header: cm.Header{TID: 79}, LocalID: 0xB3, RemoteID: 0xA3, Of: cm.OfREQ, Reason: cm.RejectConsumer})

	s.datagram("req3", active, s.connect(80, 0xA4, 0x34))
	s.datagram("rep3", passive, &cm.REP{Header: cm.Header{TID: 80}, LocalID: 0xB4, RemoteID: 0xA4, QPN: 0x44, StartingPSN: 5, ResponderResources: 4, InitiatorDepth: 4})
	s.datagram("mra3", active, &cm.MRA{Header: cm.Header{TID: 80}, LocalID: 0xA4, RemoteID: 0xB4, Of: cm.OfREP, ServiceTimeout: 18})
	s.datagram("rej3", active, &cm.REJ{Header: cm.Header{TID: 80}, LocalID: 0xA4, RemoteID: 0xB4, Of: cm.OfREP, Reason: cm.RejectConsumer})

	for _, name := range []string{"req4", "req4-again", "req4-last"} {
		s.datagram(name, active, s.connect(81, 0xA5, 0x35)).lost = true
		s.wait(5 * time.Second)
	}
	rej := &cm.REJ{Header: cm.Header{TID: 81}, LocalID: 0xA5, Of: cm.OfOther, Reason: cm.RejectTimeout, InfoLen: 8}
	binary.BigEndian.PutUint64(rej.Info[:], uint64(guid))
	s.datagram("rej4", active, rej)

	service := cm.Service(cm.PortSpaceUDP, 7174)
	s.datagram("sidr", active, &cm.SIDRREQ{Header: cm.Header{TID: 82}, RequestID: 0xA6, PKey: bth.DefaultPKey, ServiceID: service})
	s.wait(5 * time.Second)
	s.datagram("sidr-again", active, &cm.SIDRREQ{Header: cm.Header{TID: 82}, RequestID: 0xA6, PKey: bth.DefaultPKey, ServiceID: service})
	s.datagram("sidr-rep", passive, &cm.SIDRREP{Header: cm.Header{TID: 82}, RequestID: 0xA6, QPN: 0x50, ServiceID: service, QKey: cm.DefaultUDPQKey})
}

// unexplained returns the findings that no departure explains.
func unexplained(r *Report) (all []string, byRule map[RuleID]int) {
	byRule = map[RuleID]int{}
	for i := range r.Findings {
		if f := &r.Findings[i]; f.Departure == nil {
			all = append(all, f.String())
			byRule[f.Rule]++
		}
	}
	return all, byRule
}

// TestRightScene: a right scene has no findings and no departures, wherever it was captured.
func TestRightScene(t *testing.T) {
	for at, name := range []string{"active", "passive"} {
		r := rightScene(t).judge(at, Config{})
		for i := range r.Findings {
			t.Errorf("captured at the %s end: %s", name, &r.Findings[i])
		}
		if r.Packets < 60 {
			t.Errorf("%d packets were judged", r.Packets)
		}
	}
}

package cm

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
)

var udp = Service(PortSpaceUDP, 7174)

func resolveParam() ResolveParam {
	return ResolveParam{ServiceID: udp, Local: ownGID, Remote: peerGID, Src: netip.AddrPortFrom(ownAddr, 40000),
		Dst: netip.AddrPortFrom(peerAddr, 7174), Private: []byte("who?")}
}

func sidrPrivate(src, dst netip.Addr, port uint16, user string) (p [216]byte) {
	h := ipPrivate(src, dst, port, user)
	copy(p[:], h[:])
	return p
}

func ownSIDRREQ() *SIDRREQ {
	return &SIDRREQ{Header: Header{TID: ownTID}, RequestID: ownID, PKey: 0xFFFF, ServiceID: udp,
		Private: sidrPrivate(ownAddr, peerAddr, 40000, "who?")}
}

func peerSIDRREQ() *SIDRREQ {
	return &SIDRREQ{Header: Header{TID: peerTID}, RequestID: peerID, PKey: 0xFFFF, ServiceID: udp,
		Private: sidrPrivate(peerAddr, ownAddr, 40001, "you?")}
}

// inquiry returns an Inquiry that the owner must answer.
func (d *dialogue) inquiry() *Inquiry {
	d.Helper()
	if _, err := d.m.Listen(ListenParam{ServiceID: udp, User: "door"}); err != nil {
		d.Fatal(err)
	}
	d.recv(peerSIDRREQ())
	return d.event(ServiceRequest).Inquiry
}

func TestResolve(t *testing.T) {
	d := newDialogue(t)
	p := resolveParam()
	p.User = "me"
	q, err := d.m.Resolve(d.now, p)
	d.must(err)
	d.send(ownSIDRREQ())
	d.advance(ms(4096))
	d.send(ownSIDRREQ())
	rep := &SIDRREP{RequestID: ownID, QPN: 0x17, QKey: DefaultUDPQKey, ServiceID: udp, InfoLen: 1, Info: [72]byte{9}}
	copy(rep.Private[:], "me")
	d.recvFrom(strangerGID, rep)
	d.silent()
	d.recv(rep)
	e := d.event(Resolved)
	if e.Query != q || q.User != "me" || e.Status != SIDRValid || e.QPN != 0x17 || e.QKey != DefaultUDPQKey ||
		len(e.Private) != SIDRREPPrivateLen || string(e.Private[:3]) != "me\x00" || len(e.Info) != 1 {
		t.Errorf("event %v %+v", e, e)
	}
	d.recv(rep) // a duplicate has no effect
	d.advance(time.Hour)
	d.silent()
	d.forgotten()
}

func TestResolveFails(t *testing.T) {
	d := newDialogue(t)
	_, err := d.m.Resolve(d.now, resolveParam())
	d.must(err)
	d.m.NextMAD()
	d.recv(&SIDRREP{RequestID: ownID, Status: SIDRUnsupported, ServiceID: udp})
	if e := d.event(Resolved); e.Status != SIDRUnsupported {
		t.Error(e)
	}
	d.forgotten()

	d = newDialogue(t)
	q, err := d.m.Resolve(d.now, resolveParam())
	d.must(err)
	for range 16 {
		d.send(ownSIDRREQ())
		d.silent()
		d.advance(ms(4096))
	}
	if e := d.event(Unreachable); e.Query != q || !errors.Is(e.Err, ErrTimeout) {
		t.Error(e)
	}
	d.silent()
	d.forgotten()

	d = newDialogue(t)
	q, err = d.m.Resolve(d.now, resolveParam())
	d.must(err)
	d.send(ownSIDRREQ())
	d.recv(&SIDRREP{RequestID: ownID})
	q.Cancel() // with the event still queued
	d.advance(time.Hour)
	d.silent()
	d.forgotten()

	d = newDialogue(t)
	q, err = d.m.Resolve(d.now, resolveParam())
	d.must(err)
	d.send(ownSIDRREQ())
	q.Cancel()
	d.forgotten()
	d.advance(time.Hour)
	d.silent()

	for _, change := range []func(*ResolveParam){
		func(p *ResolveParam) { p.Local = bth.GID{} },
		func(p *ResolveParam) { p.Remote = bth.GID{} },
		func(p *ResolveParam) { p.ResponseTimeout = 32 },
		func(p *ResolveParam) { p.Src = netip.AddrPort{} },
	} {
		p := resolveParam()
		change(&p)
		_, err := d.m.Resolve(d.now, p)
		wantErrno(t, err, syscall.EINVAL)
	}
	d.forgotten()
}

func TestInquiry(t *testing.T) {
	d := newDialogue(t)
	q := d.inquiry()
	if q.User != "door" || q.ServiceID() != udp || q.LocalGID() != ownGID || q.PeerAddress() != peerGID || q.PKey() != 0xFFFF ||
		q.RemoteAddr() != netip.MustParseAddrPort("10.0.0.2:40001") || q.LocalAddr() != netip.MustParseAddrPort("10.0.0.1:7174") {
		t.Errorf("%+v", q)
	}
	d.recv(peerSIDRREQ()) // while it is pending
	d.silent()
	if n := d.m.Counters().Duplicates[AttrSIDRREQ-AttrREQ]; n != 1 {
		t.Errorf("%d duplicates counted", n)
	}
	d.must(q.Accept(0x17, 0, []byte("here")))
	want := &SIDRREP{Header: Header{TID: peerTID}, RequestID: peerID, QPN: 0x17, QKey: DefaultUDPQKey, ServiceID: udp}
	copy(want.Private[:], "here")
	d.send(want)
	err := q.Reject(SIDRReject, nil)
	wantErrno(t, err, ErrClosed)
	wantErrno(t, err, syscall.EINVAL)
	d.silent()
	d.forgotten()
	d.recv(peerSIDRREQ()) // the peer has not got the answer: its repetition is a new inquiry
	e := d.event(ServiceRequest)
	if e.Inquiry == q || len(e.Private) != SIDRREQUserLen || string(e.Private[:5]) != "you?\x00" {
		t.Errorf("event %v, private %q", e, e.Private)
	}
	d.must(e.Inquiry.Reject(SIDRReject, nil))
	d.send(&SIDRREP{Header: Header{TID: peerTID}, RequestID: peerID, Status: SIDRReject, ServiceID: udp})
	d.forgotten()
}

func TestInquiryRefused(t *testing.T) {
	refused := func(d *dialogue, req *SIDRREQ, s SIDRStatus) {
		d.Helper()
		d.recv(req)
		d.send(&SIDRREP{Header: Header{TID: peerTID}, RequestID: peerID, Status: s, ServiceID: req.ServiceID})
		d.silent()
		d.forgotten()
	}
	d := newDialogue(t)
	refused(d, peerSIDRREQ(), SIDRUnsupported)
	d.m.Listen(ListenParam{ServiceID: udp, Addr: ownAddr})
	d.m.Listen(ListenParam{ServiceID: service})
	req := peerSIDRREQ()
	req.ServiceID = service // has no UD QPs
	refused(d, req, SIDRReject)
	req = peerSIDRREQ()
	req.PKey = 1
	refused(d, req, SIDRReject)
	req = peerSIDRREQ()
	req.Private = sidrPrivate(peerAddr, netip.MustParseAddr("10.0.0.9"), 1, "")
	refused(d, req, SIDRReject)
	// A UD service does not accept connections.
	creq := peerREQ()
	creq.ServiceID = udp
	d.recv(creq)
	d.send(&REJ{Header: Header{TID: peerTID}, RemoteID: peerID, Of: OfREQ, Reason: RejectConsumer})
}

func TestInquiryLimits(t *testing.T) {
	d := newDialogue(t)
	l, _ := d.m.Listen(ListenParam{ServiceID: udp, Backlog: 3, NoIPHeader: true})
	for n := range 10 {
		req := peerSIDRREQ()
		req.RequestID += CommID(n)
		d.recv(req)
	}
	if l.Pending() != 3 || d.m.Len() != 3 || d.m.Counters().RequestsFull != 7 {
		t.Errorf("pending %d, len %d", l.Pending(), d.m.Len())
	}
	q := d.event(ServiceRequest).Inquiry
	if q.RemoteAddr().IsValid() || q.LocalAddr().IsValid() {
		t.Error("addresses without header")
	}
	l.Close(d.now)
	for range 2 {
		if o, ok := d.m.NextMAD(); !ok || SIDRStatus(o.MAD[headerLen+4]) != SIDRReject {
			t.Error("not refused")
		}
	}
	d.silent()
	d.must(q.Accept(1, 2, nil))
	d.m.NextMAD()
	d.forgotten()
}

package cm

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// eachMAD calls f with the payload of every RoCEv2 datagram for QP 1 in a classic
// pcap file of Ethernet frames.
func eachMAD(t *testing.T, file []byte, f func(mad []byte)) {
	t.Helper()
	order := binary.ByteOrder(binary.LittleEndian)
	if binary.BigEndian.Uint32(file) == 0xa1b2c3d4 {
		order = binary.BigEndian
	}
	for b := file[24:]; len(b) > 16; {
		n := order.Uint32(b[8:])
		frame := b[16 : 16+n]
		b = b[16+n:]
		var udp []byte
		switch {
		case len(frame) > 34 && be16(frame[12:]) == 0x0800 && frame[23] == 17:
			udp = frame[34:]
		case len(frame) > 54 && be16(frame[12:]) == 0x86DD && frame[20] == 17:
			udp = frame[54:]
		}
		// UDP 8, BTH 12 with opcode UD SEND_ONLY and QPN 1, DETH 8, MAD, ICRC.
		if len(udp) < 8+12+8+MADLen+4 || be16(udp[2:]) != 4791 || udp[8] != 0x64 || [3]byte(udp[8+5:]) != [3]byte{2: 1} {
			continue
		}
		f(udp[28 : 28+MADLen])
	}
}

// captures reads the capture files by name.
func captures(t *testing.T) map[string][]byte {
	names, err := filepath.Glob("../testdata/pcaps/*.pcap")
	if err != nil || len(names) == 0 {
		t.Skip("no captures under testdata/pcaps")
	}
	files := map[string][]byte{}
	for _, name := range names {
		if files[name], err = os.ReadFile(name); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

// TestCaptures decodes and encodes every captured MAD of Linux hosts: no byte may differ.
func TestCaptures(t *testing.T) {
	seen := map[Attribute]int{}
	for name, file := range captures(t) {
		eachMAD(t, file, func(b []byte) {
			m, err := DecodeMAD(b)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			seen[m.Attribute()]++
			if got := encode(m); !bytes.Equal(got, b) {
				t.Errorf("%s: %v\n%s", name, m, cmp.Diff(b, got))
			}
		})
	}
	t.Log(seen)
	for _, a := range []Attribute{AttrREQ, AttrREP, AttrRTU, AttrDREQ, AttrDREP, AttrREJ, AttrSIDRREQ, AttrSIDRREP} {
		if seen[a] == 0 {
			t.Errorf("no %v in the captures", a)
		}
	}
}

// TestSpeaksLikeLinux compares the messages of the Manager with captured ones: with the same
// parameters, Connect must send the same REQ as Linux, and Accept the same REP, except for
// the transaction ID.
func TestSpeaksLikeLinux(t *testing.T) {
	n := map[Attribute]int{}
	for name, file := range captures(t) {
		reqs := map[CommID]*REQ{}
		eachMAD(t, file, func(b []byte) {
			m, err := DecodeMAD(b)
			if err != nil {
				t.Fatal(err)
			}
			var got Out
			switch m := m.(type) {
			case *REQ:
				reqs[m.LocalID] = m
				got = replayREQ(t, m)
			case *REP:
				req := reqs[m.RemoteID]
				if req == nil {
					return // the capture began after the REQ
				}
				got = replayREP(t, req, m)
			default:
				return
			}
			n[m.Attribute()]++
			copy(got.MAD[8:16], b[8:16])
			if !bytes.Equal(got.MAD[:], b) {
				ours, _ := DecodeMAD(got.MAD[:])
				t.Errorf("%s (-linux +ours):\n%s", name, cmp.Diff(m, ours))
			}
		})
	}
	t.Log(n)
	if n[AttrREQ] == 0 || n[AttrREP] == 0 {
		t.Error("nothing was compared")
	}
}

// scripted returns a Manager whose random numbers are given.
func scripted(t *testing.T, guid GUID, numbers ...uint32) *Manager {
	m, err := NewManager(Config{GUID: guid, Rand: func() uint32 {
		v := numbers[0]
		numbers = numbers[1:]
		return v
	}})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func replayREQ(t *testing.T, req *REQ) Out {
	var h IPHeader
	if err := h.Decode(req.Private[:]); err != nil {
		t.Fatal(err)
	}
	m := scripted(t, req.LocalGUID, 2, uint32(req.LocalID), uint32(req.StartingPSN))
	c, err := m.Connect(0, ConnectParam{
		ServiceID: req.ServiceID, Local: req.Primary.LocalGID, Remote: req.Primary.RemoteGID,
		Src: netip.AddrPortFrom(h.Src, h.SrcPort), Dst: netip.AddrPortFrom(h.Dst, 0),
		QPN: req.QPN, SRQ: req.SRQ,
		ResponderResources: req.ResponderResources, InitiatorDepth: req.InitiatorDepth,
		FlowControl: req.FlowControl, RetryCount: req.RetryCount, RNRRetryCount: req.RNRRetryCount,
		MTU: req.MTU, PacketLifeTime: req.Primary.AckTimeout - 1,
		Private: req.Private[IPHeaderLen:],
	})
	if err != nil {
		t.Fatal(err)
	}
	if c.LocalAddr().Port() != h.SrcPort || c.RemoteAddr().Port() != req.ServiceID.Port() {
		t.Errorf("addresses %v and %v", c.LocalAddr(), c.RemoteAddr())
	}
	o, _ := m.NextMAD()
	return o
}

func replayREP(t *testing.T, req *REQ, rep *REP) Out {
	m := scripted(t, rep.LocalGUID, 2, uint32(rep.LocalID), uint32(rep.StartingPSN))
	if _, err := m.Listen(ListenParam{ServiceID: req.ServiceID}); err != nil {
		t.Fatal(err)
	}
	m.HandleMAD(0, req.Primary.LocalGID, req.Primary.RemoteGID, encode(req))
	e, ok := m.NextEvent()
	if !ok || e.Kind != ConnectRequest {
		t.Fatalf("%v: event %v", req, e)
	}
	if err := e.Conn.Accept(0, AcceptParam{QPN: rep.QPN, SRQ: rep.SRQ,
		ResponderResources: rep.ResponderResources, InitiatorDepth: rep.InitiatorDepth,
		FlowControl: rep.FlowControl, RNRRetryCount: rep.RNRRetryCount, Private: rep.Private[:]}); err != nil {
		t.Fatal(err)
	}
	o, _ := m.NextMAD()
	return o
}

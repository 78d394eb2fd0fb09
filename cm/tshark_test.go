package cm

import (
	"bytes"
	"encoding/binary"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// pcapOf writes MADs as a classic pcap file of Ethernet frames: IPv4, UDP 4791, BTH,
// DETH. The ICRC is zero, because tshark does not check it here.
func pcapOf(mads []Out) []byte {
	le := binary.LittleEndian
	b := le.AppendUint32(nil, 0xa1b2c3d4)
	b = le.AppendUint32(b, 4<<16|2)
	b = append(b, make([]byte, 8)...)
	b = le.AppendUint32(b, 65535)
	b = le.AppendUint32(b, 1)
	for _, o := range mads {
		f := make([]byte, 14+20+8+12+8+MADLen+4)
		f[12] = 0x08
		ip, udp, bth, deth := f[14:], f[34:], f[42:], f[54:]
		ip[0], ip[8], ip[9] = 0x45, 64, 17
		put16(ip[2:], uint16(len(f)-14))
		copy(ip[12:], o.From[12:])
		copy(ip[16:], o.To[12:])
		put16(udp, 55410)
		put16(udp[2:], 4791)
		put16(udp[4:], uint16(len(f)-34))
		bth[0], bth[7] = 0x64, 1
		put16(bth[2:], 0xFFFF)
		binary.BigEndian.PutUint32(deth, 0x80010000)
		deth[7] = 1
		copy(f[62:], o.MAD[:])
		b = append(b, make([]byte, 8)...)
		b = le.AppendUint32(b, uint32(len(f)))
		b = le.AppendUint32(b, uint32(len(f)))
		b = append(b, f...)
	}
	return b
}

// TestTsharkAlternate compares the fields about alternate paths with tshark's reading of them: in
// the REQ, the REP, LAP, MRA and APR.
func TestTsharkAlternate(t *testing.T) {
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	p := newPair(t)
	var mads []Out
	p.tap = func(o Out) { mads = append(mads, o) }
	cp := connectParam()
	cp.Alternate = of2(altPath())
	c, err := p.a.Connect(p.now, cp)
	if err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	alt := altPath()
	alt.FlowLabel = 0x99999
	if err := c.LoadAlternate(p.now, alt, []byte("lap")); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
	p.pass(c.interval) // the LAP is repeated, and an MRA answers it
	p.settle(t)
	for _, b := range p.b.byLocal {
		if err := b.AnswerAlternate(p.now, AlternateAnswer{Status: APReject, Info: []byte{7}}); err != nil {
			t.Fatal(err)
		}
	}
	p.settle(t)

	file := filepath.Join(t.TempDir(), "alternate.pcap")
	if err := os.WriteFile(file, pcapOf(mads), 0o644); err != nil {
		t.Fatal(err)
	}
	run := func(args ...string) string {
		t.Helper()
		var stderr bytes.Buffer
		cmd := exec.Command(tshark, append([]string{"-r", file}, args...)...)
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("tshark %v: %v\n%s", args, err, stderr.String())
		}
		return strings.TrimSpace(string(out))
	}
	want := []string{"ConnectRequest", "ConnectReply", "ReadyToUse", "LoadAlternatePath", "LoadAlternatePath", "MsgRcptAck", "AlternatePathResponse"}
	for i, l := range strings.Split(run("-T", "fields", "-e", "_ws.col.Info"), "\n") {
		if i >= len(want) || l != "CM: "+want[i] {
			t.Errorf("packet %d: tshark reads %q, sent were %v", i+1, l, want)
		}
	}
	// tshark 4.0 knows only the names of LAP and APR. It reads the flow label of a REQ
	// from the wrong bits.
	fields := []string{"-Y", "infiniband.cm.req", "-T", "fields"}
	for _, f := range []string{"locallid", "remotelid", "localgid", "remotegid", "tfcclass", "hoplim", "localacktout"} {
		fields = append(fields, "-e", "infiniband.cm.req.alt_"+f)
	}
	got := strings.Join(strings.Fields(run(fields...)), " ")
	if want := "65535 65535 00000000000000000000ffff0a010001 00000000000000000000ffff0a010002 0x20 0x09 0x11"; got != want {
		t.Errorf("alternate path of the REQ: %s, want %s", got, want)
	}
	if got := run("-Y", "infiniband.cm.rep", "-T", "fields", "-e", "infiniband.cm.rep.failoveracc"); got != "0x00" {
		t.Errorf("failover accepted: %s", got)
	}
	if bad := run("-Y", "_ws.malformed"); bad != "" {
		t.Errorf("malformed packets:\n%s", bad)
	}
}

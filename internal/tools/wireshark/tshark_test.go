package wireshark

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/bth"
	"github.com/goroce/roce/bth/frame"
	"github.com/goroce/roce/internal/tools/dissect"
	"github.com/goroce/roce/link/linktest"
	"github.com/goroce/roce/link/pcap"
)

// needTshark returns a function that runs tshark with the plugin.
func needTshark(t *testing.T) func(args ...string) string {
	t.Helper()
	tshark, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	plugin := filepath.Join(t.TempDir(), "roce.lua")
	f, err := os.Create(plugin)
	if err != nil {
		t.Fatal(err)
	}
	if err := WritePlugin(f, "of a test"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	return func(args ...string) string {
		cmd := exec.Command(tshark, append([]string{"-X", "lua_script:" + plugin}, args...)...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil || strings.Contains(errs.String(), "Lua") {
			t.Fatalf("tshark: %v\n%s", err, errs.String())
		}
		return out.String()
	}
}

// capture is a file for tshark.
type capture struct {
	t    *testing.T
	name string
	w    *pcap.Writer
	rnd  *rand.Rand
	n    int
}

func newCapture(t *testing.T) *capture {
	c := &capture{t: t, name: filepath.Join(t.TempDir(), "all.pcap"), rnd: rand.New(rand.NewPCG(1, 2))}
	w, err := pcap.Create(c.name, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.AddInterface(pcap.Interface{LinkType: pcap.Ethernet}); err != nil {
		t.Fatal(err)
	}
	c.w = w
	return c
}

func (c *capture) write(data []byte, orig int) {
	c.n++
	if err := c.w.Write(&pcap.Record{Time: time.Unix(int64(c.n), 0), Data: data, OrigLen: orig, LinkType: pcap.Ethernet}); err != nil {
		c.t.Fatal(err)
	}
}

// add adds all packets of a file. Super-packets are divided, as dissect does.
func (c *capture) add(file string) {
	in, err := os.Open(file)
	if err != nil {
		c.t.Fatal(err)
	}
	defer in.Close()
	r, err := pcap.NewReader(in)
	if err != nil {
		c.t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if err == io.EOF {
			return
		}
		if err != nil {
			c.t.Fatal(err)
		}
		if rec.LinkType == pcap.Ethernet {
			c.write(rec.Data, rec.OrigLen)
		}
	}
}

// packet makes a packet of an opcode: its headers and payload are random, its ICRC is right.
func (c *capture) packet(op bth.Opcode, v6 bool, payload int) []byte {
	path := linktest.Path(c.t, v6, frame.MAC{2, 0, 0, 0, 0, 1}, frame.MAC{2, 0, 0, 0, 0, 2})
	n := int(op.Info().HeaderLen) + payload + bth.Pad(payload) + bth.ICRCLen
	b := make([]byte, path.HeaderLen(frame.LayoutEthernet)+n)
	body, crc := path.Put(b, frame.LayoutEthernet, n, uint16(c.rnd.Uint32()))
	for i := range body {
		body[i] = byte(c.rnd.Uint32())
	}
	flags := bth.BTHFlags(c.rnd.Uint32()) & (bth.Solicited | bth.MigReq | bth.AckReq | bth.FECN | bth.BECN)
	bth.PutBTH(body, op, flags, bth.Pad(payload), bth.PKey(c.rnd.Uint32()), bth.QPN(2+c.rnd.Uint32N(1<<23)), bth.PSN(c.rnd.Uint32()))
	bth.PutICRC(body[n-bth.ICRCLen:], crc.UpdateBody(body[:n-bth.ICRCLen]))
	return b
}

// renamed are the fields of the plugin that have another name in the objects of dissect.
var renamed = map[string]string{"payload_len": "payload"}

// compare decodes the capture with tshark and with dissect, and compares each field of each packet. It
// returns the number of packets of each opcode.
func (c *capture) compare(tshark func(...string) string) map[bth.Opcode]int {
	if err := c.w.Close(); err != nil {
		c.t.Fatal(err)
	}
	names := []string{"opcode", "name", "payload_len", "icrc", "icrc.status"}
	for _, h := range append([]header{{fields: base}}, extended...) {
		for _, f := range h.fields {
			if !slices.Contains(names, f.name) {
				names = append(names, f.name)
			}
		}
	}
	args := []string{"-r", c.name, "-T", "fields", "-E", "occurrence=f"}
	for _, n := range names {
		args = append(args, "-e", "roce."+n)
	}
	lines := strings.Split(strings.TrimSuffix(tshark(args...), "\n"), "\n")
	file, err := os.Open(c.name)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	seen := map[bth.Opcode]int{}
	err = dissect.Read(file, func(p *dissect.Packet) error {
		line := lines[p.Num-1]
		if p.Kind != dissect.RoCE {
			if p.Kind == dissect.Other && strings.Trim(line, "\t") != "" {
				c.t.Errorf("frame %d is no RoCE packet: %q", p.Num, line)
			}
			return nil
		}
		seen[p.Frame.Op]++
		want := object(c.t, p)
		for i, cell := range strings.Split(line, "\t") {
			name := names[i]
			key := name
			if r, ok := renamed[name]; ok {
				key = r
			}
			got, expected := canonical(cell), canonical(want[key])
			switch name {
			case "icrc.status":
				expected = verdict(p)
			case "reason":
				if got != "" {
					n, _ := strconv.Atoi(got)
					got = bth.DCReason(n).String()
				}
			case "icrc":
				if !p.Cut {
					expected = fmt.Sprint(p.Frame.ICRC())
				}
			case "tver", "ee_context", "dc_key", "mtu": // dissect does not print these
				continue
			case "fecn", "becn": // dissect does not print zeros of these
				expected = canonical(strconv.FormatBool(want[key] == "true"))
			}
			if got != expected {
				c.t.Errorf("frame %d, %v: roce.%s is %q, want %q", p.Num, p.Frame.Op, name, got, expected)
			}
		}
		return nil
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return seen
}

// object returns the members of a packet's object, as text.
func object(t *testing.T, p *dissect.Packet) map[string]string {
	b, err := json.Marshal(p.JSON())
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	if err := d.Decode(&values); err != nil {
		t.Fatal(err)
	}
	m := map[string]string{}
	for k, v := range values {
		m[k] = fmt.Sprint(v)
	}
	return m
}

// canonical returns numbers and truth values in one form: versions of tshark print them differently.
func canonical(s string) string {
	switch strings.ToLower(s) {
	case "true":
		return "1"
	case "false":
		return "0"
	}
	if n, err := strconv.ParseUint(s, 0, 64); err == nil {
		return fmt.Sprint(n)
	}
	return s
}

func verdict(p *dissect.Packet) string {
	switch {
	case p.Cut:
		return "2"
	case p.ICRCOK:
		return "1"
	case p.FlushQuirk && p.Frame.Op == bth.RCFlush:
		return "3"
	}
	return "0"
}

// tshark with the plugin decodes packets as this stack does: of each opcode, over IPv4 and IPv6, with right and wrong ICRCs, whole
// and cut.
func TestEveryOpcode(t *testing.T) {
	tshark := needTshark(t)
	c := newCapture(t)
	known := 0
	for i := range 256 {
		op := bth.Opcode(i)
		if !op.Known() {
			continue
		}
		known++
		payload := 0
		if op.Info().Flags&bth.Payload != 0 {
			payload = 1 + c.rnd.IntN(40)
		}
		for _, v6 := range []bool{false, true} {
			p := c.packet(op, v6, payload)
			c.write(p, len(p))
			p[len(p)-1]++
			c.write(p, len(p))
			if payload > 0 {
				p[len(p)-1]--
				c.write(p[:len(p)-6], len(p))
			}
		}
	}
	if seen := c.compare(tshark); len(seen) != known {
		t.Errorf("%d of %d opcodes were compared", len(seen), known)
	}
}

// tshark with the plugin decodes the captures of Linux and of this stack as this stack does.
func TestCaptures(t *testing.T) {
	tshark := needTshark(t)
	c := newCapture(t)
	files, err := filepath.Glob("../../../testdata/pcaps/*.pcap")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d captures, %v", len(files), err)
	}
	for _, f := range append(files, "../../../testdata/pcaps/host/raw4-client.pcap", "../../../testdata/pcaps/host/udp6-server.pcap") {
		c.add(f)
	}
	if seen := c.compare(tshark); len(seen) < 20 {
		t.Errorf("only %d opcodes in the captures: %v", len(seen), seen)
	}
}

// The plugin fills the Info column, gives management datagrams to Wireshark's own dissector, and adds notes.
func TestInfo(t *testing.T) {
	tshark := needTshark(t)
	c := newCapture(t)
	reject := c.packet(bth.DCReject, false, 0)
	c.write(reject, len(reject))
	unknown := c.packet(bth.Opcode(0x1F), false, 0)
	c.write(unknown, len(unknown))
	super := c.packet(bth.RCSendOnly, false, 9000)
	c.write(super, len(super))
	if err := c.w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, file string
		args       []string
		want       []string
	}{
		{"FLUSH of rxe", "../../../testdata/pcaps/rxe612_run3_flush.pcap", nil,
			[]string{"RC FLUSH qpn 0x1b psn 0xfffff0 A selectivity range type global visibility va 0x7f5558df2000 rkey 0xc99 len 64 [ICRC wrong, but as rxe of Linux has it for FLUSH]", "ConnectReject"}},
		{"NAK", "../../../testdata/pcaps/loss_rping.pcap", []string{"-Y", "roce.nak && roce.syndrome == 0x60"}, []string{"NAK sequence error msn "}},
		{"fields of both dissectors", "../../../testdata/pcaps/rping.pcap", []string{"-Y", "infiniband.bth.opcode == 12 && roce.opcode == 12"}, []string{"RC READ_REQUEST qpn 0x18"}},
		{"without Wireshark's own", "../../../testdata/pcaps/rping.pcap", []string{"-o", "roce.inner:FALSE", "-Y", "roce.dest_qpn == 1 && !infiniband"}, []string{"UD SEND_ONLY qpn 0x1"}},
		{"without verdict", "../../../testdata/pcaps/rping.pcap", []string{"-o", "roce.verify:FALSE", "-Y", "roce.icrc.status == 2"}, []string{"RC READ_REQUEST"}},
		{"own opcodes", c.name, []string{"-V"}, []string{"DC REJECT", "DCCETH (goroce)", "opcode is unknown", "Several packets, which the host joined"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			out := tshark(append([]string{"-r", tt.file}, tt.args...)...)
			for _, w := range tt.want {
				if !strings.Contains(out, w) {
					t.Errorf("no %q in\n%.4000s", w, out)
				}
			}
		})
	}
}

package dissect

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/link/pcap"
)

// capture returns a capture file. The packets begin with the IP header.
func capture(t *testing.T, snap int, packets ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := pcap.NewWriter(&b, pcap.NG, snap)
	if _, err := w.AddInterface(pcap.Interface{Name: "test", LinkType: pcap.Raw}); err != nil {
		t.Fatal(err)
	}
	for i, s := range packets {
		data, err := hex.DecodeString(s)
		if err != nil {
			t.Fatal(err)
		}
		rec := pcap.Record{Time: time.Unix(1000, 0).Add(time.Duration(i) * time.Millisecond), Data: data}
		if err := w.Write(&rec); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestComment: the comment that a capture has for a packet is at the end of the packet's line and in its JSON object. A comment of
// several lines is printed as one line.
func TestComment(t *testing.T) {
	var b bytes.Buffer
	w := pcap.NewWriter(&b, pcap.NG, 0)
	if _, err := w.AddInterface(pcap.Interface{Name: "test", LinkType: pcap.Raw}); err != nil {
		t.Fatal(err)
	}
	data, err := hex.DecodeString(udSend)
	if err != nil {
		t.Fatal(err)
	}
	w.Write(&pcap.Record{Time: time.Unix(1000, 0), Data: data, Comment: "seq=1\ndrop"})
	w.Write(&pcap.Record{Time: time.Unix(1000, 0), Data: data})
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	var lines, objects []string
	err = Read(&b, func(p *Packet) error {
		o, err := json.Marshal(p.JSON())
		lines, objects = append(lines, p.Line()), append(objects, string(o))
		return err
	})
	if err != nil || len(lines) != 2 {
		t.Fatalf("%d packets, %v", len(lines), err)
	}
	if !strings.HasSuffix(lines[0], "ICRC ok  # seq=1 drop") || !strings.Contains(objects[0], `"comment":"seq=1\ndrop"`) {
		t.Errorf("%s\n%s", lines[0], objects[0])
	}
	if !strings.HasSuffix(lines[1], "ICRC ok") || strings.Contains(objects[1], "comment") {
		t.Errorf("without a comment: %s\n%s", lines[1], objects[1])
	}
}

// TestCut: a packet that was cut by a short snapshot length is decoded if the capture has all its headers.
func TestCut(t *testing.T) {
	big := writeImm[:len(writeImm)-8]
	big = big[:4] + "0540" + big[8:] // the IPv4 length is 1344, so the IPv4 checksum is wrong
	for _, tt := range []struct {
		name, packet string
		snap         int
		want         string
	}{
		{"whole", udSend, 60, "payload 8  ICRC ok"},
		{"without the ICRC", udSend, 56, "payload 8  cut short by the capture"},
		{"without the payload", udSend, 48, "UD SEND_ONLY qpn 0x25 psn 0x63e827 qkey 0x11111111 from 0x26 payload 8  cut short by the capture"},
		{"inside the DETH", udSend, 47, "  cut short by the capture, 60 bytes"},
		{"inside the UDP header", udSend, 25, "  cut short by the capture, 60 bytes"},
		{"IPv6", ack6, 64, "RC ACKNOWLEDGE qpn 0x11 psn 0x84a0a3 ACK msn 1  cut short by the capture"},
		{"wrong header", big, 40, "  cut short by the capture, 60 bytes"},
		{"no RoCE", strings.Replace(udSend, "12b7", "12b8", 1), 40, "other traffic"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := Read(bytes.NewReader(capture(t, tt.snap, tt.packet)), func(p *Packet) error {
				if got := p.Line(); !strings.Contains(got, tt.want) {
					t.Errorf("%s, want %s", got, tt.want)
				}
				if p.ICRCOK != (tt.name == "whole") {
					t.Errorf("ICRC right: %v", p.ICRCOK)
				}
				_, err := json.Marshal(p.JSON())
				return err
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}

func TestRead(t *testing.T) {
	var got []string
	err := Read(bytes.NewReader(capture(t, 0, readRequest, ack6)), func(p *Packet) error {
		got = append(got, p.Line())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"    1   0.000000  10.77.0.1 > 10.77.0.2  RC READ_REQUEST", "    2   0.001000  fd77::1 > fd77::2  RC ACKNOWLEDGE"} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Errorf("packet %d: %q, want %q…", i, got, want)
		}
	}
}

func TestReadCutPackets(t *testing.T) {
	otherPort := strings.Replace(readRequest, "12b7", "12b8", 1)
	var got []Kind
	err := Read(bytes.NewReader(capture(t, 40, readRequest, otherPort)), func(p *Packet) error {
		got = append(got, p.Kind)
		if p.Len != 60 {
			t.Errorf("length %d, want that on the wire", p.Len)
		}
		return nil
	})
	if err != nil || len(got) != 2 || got[0] != Truncated || got[1] != Other {
		t.Errorf("%v, %v; want a packet cut short and other traffic", got, err)
	}
}

func TestReadErrors(t *testing.T) {
	whole := capture(t, 0, readRequest, ack6)
	n := 0
	err := Read(bytes.NewReader(whole[:len(whole)-10]), func(*Packet) error { n++; return nil })
	if !errors.Is(err, io.ErrUnexpectedEOF) || n != 1 {
		t.Errorf("damaged file: %v after %d packets", err, n)
	}
	stop := errors.New("stop")
	if err := Read(bytes.NewReader(whole), func(*Packet) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback: %v", err)
	}
}

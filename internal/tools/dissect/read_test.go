package dissect

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/goroce/roce/link/pcap"
)

// capture makes a file of packets that begin with their IP header.
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
